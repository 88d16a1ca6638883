"""Reads files of the Unix program `compress` (.Z): LZW (Welch 1984) with codes of 9 to 16 bits.

A pure Python decoder, because the decoders on PyPI return the whole content at once: a small file can unpack to a
thousand times its size, and callers limit what they read.
"""

import io
from collections.abc import Iterator
from typing import Any

MAGIC = b"\x1f\x9d"  # the first bytes of the file
CLEAR = 256  # in block mode, the code that empties the table
LITERALS = [bytes([value]) for value in range(256)]


class CompressFileError(OSError):
    """The file is not one that `compress` writes."""


class CompressFile(io.RawIOBase):
    """Unpacks an open .Z file, which must be at its first byte, while it is read."""

    def __init__(self, file: object):
        super().__init__()
        self.chunks = decoded(file)
        self.chunk = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises CompressFileError."""
        if not self.chunk:
            self.chunk = next(self.chunks, b"")
        count = min(len(buffer), len(self.chunk))
        buffer[:count] = self.chunk[:count]
        self.chunk = self.chunk[count:]
        return count


def decoded(file: Any) -> Iterator[bytes]:
    """Yields the content of an open .Z file in chunks, none of which is empty. Raises CompressFileError.

    Codes are written in groups of 8, which are as many bytes as a code has bits. When the number of bits changes, the
    rest of a group is padding.
    """
    header = file.read(3)
    if len(header) < 3 or header[:2] != MAGIC or header[2] & 0x60:
        raise CompressFileError("its header is not that of compress")
    block_mode = bool(header[2] & 0x80)
    max_bits = header[2] & 0x1F
    if not 9 <= max_bits <= 16:
        raise CompressFileError(f"codes of {max_bits} bits are not supported")
    max_bits = max(10, max_bits)  # compress -b9 writes codes of 10 bits too
    empty = [*LITERALS, b""] if block_mode else LITERALS  # the code CLEAR stands for no text
    table = [*empty]
    previous = b""
    bits = 9
    while group := file.read(bits):
        packed = int.from_bytes(group, "little")
        texts = []
        for _ in range(8 * len(group) // bits):
            code = packed & ((1 << bits) - 1)
            packed >>= bits
            if block_mode and code == CLEAR:
                table = [*empty]
                previous = b""
                bits = 9
                break
            if code < len(table):
                text = table[code]
            elif code == len(table) and previous:  # the code that is added to the table below
                text = previous + previous[:1]
            else:
                raise CompressFileError(f"code {code} is not in the table, which has {len(table)} codes")
            if previous and len(table) < 1 << max_bits:
                table.append(previous + text[:1])
            texts.append(text)
            previous = text
            if len(table) == 1 << bits and bits < max_bits:
                bits += 1
                break
        if texts:
            yield b"".join(texts)
