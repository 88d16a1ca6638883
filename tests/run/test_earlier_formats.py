"""Commands refuse files of formats that are read no more in one line, which names the last commit that converts.

A sweep does so in tests/sweep/test_driver.py, a pull in tests/hub/test_hub.py.
"""

import tarfile
from pathlib import Path

import pytest
from stores import forge

from rlrun.cli import main
from rlrun.formats.history import CONVERTS, FIRST

ARCHIVE = Path(__file__).parents[1] / "snapshot" / "fixtures" / f"format_{FIRST}" / "runs" / "ppo.tar.xz"
EARLIER = {"lower": ({"format": FIRST - 1}, f"format {FIRST - 1}"), "missing": ({}, "no format")}
ADVICE = f": rlrun reads formats from {FIRST} on; commit {CONVERTS} is the last that converts earlier ones\n"

pytestmark = pytest.mark.parametrize(("head", "found"), EARLIER.values(), ids=EARLIER)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as files:
        files.extractall(tmp_path, filter="data")
    return tmp_path / "killed"


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Returns what a command that exits with code 2 prints to stderr."""
    assert main(words) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", ["resume", "eval", "tail", "report"])
def test_earlier_config_is_refused_in_one_line(
    command: str, head: dict[str, int], found: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, rest = (run / "config.yaml").read_text().partition("\n")
    first = "".join(f"{key}: {value}\n" for key, value in head.items())
    (run / "config.yaml").write_text(first + rest)
    place = f"{run}/config.yaml"
    if command == "report":
        place = f"{run}: config.yaml"
    assert refused([command, str(run)], capsys) == f"error: {place}: {found}{ADVICE}"


def test_earlier_snapshot_is_refused_in_one_line(
    head: dict[str, int], found: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (snapshot,) = (run / "snapshots").glob("step_*")

    def change(manifest: dict[str, int]) -> None:
        del manifest["format"]
        manifest.update(head)

    forge(snapshot, change)
    *_, line = refused(["resume", str(run)], capsys).splitlines(keepends=True)  # after a line about its added settings
    assert line == f"error: {snapshot.name}: manifest.json: {found}{ADVICE}"
