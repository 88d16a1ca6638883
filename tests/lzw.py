"""Writes files in the format of the Unix program `compress`."""


def compressed(content: bytes, clear_after: int = 1 << 20, max_bits: int = 16) -> bytes:
    """Returns a .Z file of this content. clear_after: number of codes after which the table is emptied."""
    packed = bytearray([0x1F, 0x9D, 0x80 | max_bits])
    group: list[int] = []
    table: dict[bytes, int] = {}
    size, bits, written = 257, 9, 0

    def flush() -> None:
        number = sum(code << (i * bits) for i, code in enumerate(group))
        length = bits if written else -(-len(group) * bits // 8)
        packed.extend(number.to_bytes(max(length, 0), "little"))
        group.clear()

    def write(code: int) -> None:
        nonlocal written
        group.append(code)
        written += 1
        if len(group) == 8:
            flush()

    text = b""
    for value in content:
        longer = text + bytes([value])
        if len(longer) == 1 or longer in table:
            text = longer
            continue
        write(table.get(text, text[0]))
        if size > (1 << bits) - 1 and bits < max_bits:
            if group:
                flush()
            bits += 1
        if size < 1 << max_bits:
            table[longer] = size
            size += 1
        text = longer[-1:]
        if written == clear_after:
            write(256)
            if group:
                flush()
            table.clear()
            size, bits = 257, 9
    if text:
        write(table.get(text, text[0]))
    written = 0  # the last group is not padded
    flush()
    return bytes(packed)
