"""Makes names from untrusted files safe to show."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Returns `text` with control characters, text direction marks and lone surrogates replaced."""
    letters = list(text)
    for index, letter in enumerate(letters):
        if not letter.isprintable():
            letters[index] = REPLACEMENT
    return "".join(letters)


def shortened(text: str, length: int = 40) -> str:
    """Returns `text`, with its middle replaced by an ellipsis if it has more than `length` characters."""
    if len(text) <= length:
        return text
    end = length // 3
    return f"{text[: length - end - 1]}…{text[-end:]}"
