"""Files of data that an untrusted config may name are hashed to an end that is known before."""

import hashlib
import sys
from pathlib import Path

import pytest

from rlrun import memory
from rlrun.data_files import CHUNK, sha256


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1])
def test_hash_is_that_of_the_content(size: int, tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(b"x" * size)
    assert sha256(tmp_path / "table") == hashlib.sha256(b"x" * size).hexdigest()


def test_file_above_the_limit_is_not_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="has 11 bytes; the limit is 10"):
        sha256(tmp_path / "table", most=10)
    monkeypatch.setattr(memory, "total", lambda: 9)
    with pytest.raises(OSError, match="the limit is 9"):
        sha256(tmp_path / "table")


@pytest.mark.skipif(sys.platform != "linux", reason="files of /proc have no size")
def test_file_with_more_bytes_than_its_size_is_not_hashed() -> None:
    with pytest.raises(OSError, match="holds more bytes than its size says"):
        sha256(Path("/proc/self/pagemap"))
