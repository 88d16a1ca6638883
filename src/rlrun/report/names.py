"""Names from untrusted files, in a form that is safe to show."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """`text` with every control character, text direction mark and half of a surrogate pair replaced."""
    letters = list(text)
    for place, letter in enumerate(letters):
        if not letter.isprintable():
            letters[place] = REPLACEMENT
    return "".join(letters)


def shortened(text: str, length: int = 40) -> str:
    """`text` with its middle left out where it has more than `length` characters."""
    if len(text) <= length:
        return text
    end = length // 3
    return f"{text[: length - end - 1]}…{text[-end:]}"
