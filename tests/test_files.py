"""Files of runs and sweeps: limits of lines, folders, and refused kinds of files."""

import os
from pathlib import Path

import pytest

from rlrun import files
from rlrun.errors import ConfigError


def test_read_lines_takes_as_many_lines_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS", 2)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"1\n2\n")
    assert [*files.read_lines(path)] == [b"1\n", b"2\n"]
    path.write_bytes(b"1\n2\n3")
    with pytest.raises(ConfigError, match="has more than 2 lines"):
        [*files.read_lines(path)]


def test_read_lines_takes_lines_as_long_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_BYTES", 4)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"123\n1234")
    assert [*files.read_lines(path)] == [b"123\n", b"1234"]
    path.write_bytes(b"1234\n")
    with pytest.raises(ConfigError, match="has a line of more than 4 bytes"):
        [*files.read_lines(path)]


@pytest.mark.parametrize("target", ["nowhere", "file", "folder"])
def test_make_folder_refuses_links(target: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match="link: is a symbolic link"):
        files.make_folder(link)
    assert not (tmp_path / "nowhere").exists()


def test_make_folder_raises_the_error_of_the_system_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        files.make_folder(tmp_path / "file")


def test_folder_in_place_of_a_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        files.read(tmp_path, limit=1)
    assert str(refused.value) == f"{tmp_path}: is a folder, but must be a file"


def test_created_file_can_be_read_by_everyone_and_written_by_its_owner(tmp_path: Path) -> None:
    os.close(files.open_descriptor(tmp_path / "new", os.O_CREAT | os.O_WRONLY))
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o644 & ~umask
