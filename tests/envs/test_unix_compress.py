"""Files of the Unix program `compress` are read as it wrote them."""

import base64
import hashlib
import io
import random

import pytest
from lzw import compressed

from rlrun.envs.making.unix_compress import CompressFile, CompressFileError

# Written by compress: 90 rows of a table; the codes grow from 9 to 10 bits.
REAL = base64.b85decode(
    "ADxgjV1N*K<HkS`GH`&1p`b<#5C#h#Oo*_djD<8H8Wc!zM#C8hA4=q?kVeCd6h|UdSfgPL5E)fcw9(MULXjI+LTqR-hC-"
    "PN8P-rJ<0a6F0T*hVsL-QB5I=KLG+E<f45Lz6enfcjD9suub1Wsfv&KuTOc&N%*flHCo??$WC2I31RgPnIwtO1b?N_UH-"
    "QL(L1LRSm8D|i5E5jv-z-gV@jA7U<Rf94Xr`=05qThxBE2ka&G=^rfLalmE+qecu88O{D&3IZTRik++?wuSv?N`h=M>ixIHLXyAy~(zI7$Z1Yr"
    "&f!TrTQ8z*}WN^>-_psx=zxQt?Lwuxh?DA2>V6`4MP0XhRn@hx42L}*{`o5lO>HZcTmUn>D1a}`sw5pW};1po?`yB$6kRm!M9L?-"
    "_e&@gF?NwnsO(BKw(FYnbsgxlWnLMPY5Nq9eTB;#GZ*13B{a>6t#Ad4BCO{+IN<9NTXI}-PGV$lX>T24Vbz2-"
    "%v^&)tW#?HYMRzBU&imi95;=V1!_`*C1&x#c*YeYsIi7Q7Fm)p_ELHSrU6^I#}A8k6HNPPg^l~Sci1B7UrEEu63bZX~GC(Q$s2M"
)
REAL_SHA256 = "c6ce757977b03b07c67e3396b39fc6564e517071b9fe0515d6633d9db67fdcb7"
_draw = random.Random(0).randrange
DIGITS = b"".join(b"%d %d\n" % (_draw(10**6), i % 7) for i in range(20_000))


def unpacked(packed: bytes) -> bytes:
    return io.BufferedReader(CompressFile(io.BytesIO(packed))).read()


def test_compress_files_are_read_as_the_program_wrote_them() -> None:
    assert hashlib.sha256(unpacked(REAL)).hexdigest() == REAL_SHA256
    assert compressed(unpacked(REAL)) == REAL


@pytest.mark.parametrize("content", [b"", b"a", b"abababab", b"a" * 5000, DIGITS], ids=len)
def test_compress_files_of_every_length_are_read(content: bytes) -> None:
    assert unpacked(compressed(content)) == content


@pytest.mark.parametrize(("clear_after", "max_bits"), [(100, 16), (3000, 16), (30_000, 12), (1 << 20, 9), (9, 10)])
def test_compress_files_with_emptied_and_full_tables_are_read(clear_after: int, max_bits: int) -> None:
    assert unpacked(compressed(DIGITS, clear_after, max(10, max_bits))) == DIGITS


def test_compress_files_are_unpacked_while_they_are_read() -> None:
    source = io.BytesIO(compressed(b"a" * 100_000))
    file = io.BufferedReader(CompressFile(source))
    assert file.readline(10) == b"a" * 10
    assert source.tell() < 200


@pytest.mark.parametrize(
    ("packed", "line"),
    [
        (b"", "its header is not that of compress"),
        (b"\x1f\x8b\x90", "its header is not that of compress"),
        (b"\x1f\x9d\xf0", "its header is not that of compress"),
        (b"\x1f\x9d\x88", "codes of 8 bits are not supported"),
        (b"\x1f\x9d\x90\xff\xff", "code 511 is not in the table, which has 257 codes"),
        (REAL[:100] + b"\xff" * 9 + REAL[109:], r"code \d+ is not in the table"),
    ],
)
def test_damaged_compress_files_are_refused(packed: bytes, line: str) -> None:
    with pytest.raises(CompressFileError, match=line):
        unpacked(packed)
