"""docs/systems.md names what is there: files, algorithms, environments, and commands that compose."""

import re
import shlex
from pathlib import Path

import pytest

from rlrun.config import sources
from rlrun.config.jobs import jobs

ROOT = Path(__file__).parents[2]
HOMES = (ROOT, ROOT / "src/rlrun")
PAGE = (ROOT / "docs/systems.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
ROWS = [row for row in ROWS if row[0] != "id"]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_system_has_one_row_of_five_cells() -> None:
    assert len(ROWS) >= 41 and all(len(row) == 5 and all(row) for row in ROWS)
    ids = [row[0] for row in ROWS]
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_system_is_where_the_page_says(row: list[str]) -> None:
    _, _, where, names, command = row
    assert quoted(where) and quoted(names)
    for path in quoted(where):
        assert any((home / path).exists() for home in HOMES), path
    for name in quoted(names):
        group, _, option = name.partition("=")
        assert option in sources.options(group, [sources.CONF]), name
    (words,) = map(shlex.split, quoted(command))
    if words[0] == "python":
        assert (ROOT / words[1]).is_file()
    else:
        assert words[:2] == ["rlrun", "train"]
        jobs(words[2:])
