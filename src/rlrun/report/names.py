"""Names from untrusted files, made fit to be shown."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """`text` with every control character, text direction mark and half of a surrogate pair replaced."""
    return "".join(letter if letter.isprintable() else REPLACEMENT for letter in text)


def shortened(text: str, length: int = 40) -> str:
    """`text` with its middle left out where it has more than `length` characters."""
    if len(text) <= length:
        return text
    end = length // 3
    return f"{text[: length - end - 1]}…{text[-end:]}"
