"""docs/systems.md has every system of the catalogue: with its files, names and a test, or as not built yet.

Everything that the page names exists, and its commands compose.
"""

import re
import shlex
from pathlib import Path

import pytest

from rlrun.cli import COMMANDS
from rlrun.config import sources
from rlrun.config.jobs import jobs

ROOT = Path(__file__).parents[2]
HOMES = (ROOT, ROOT / "src/rlrun")
PAGE = (ROOT / "docs/systems.md").read_text()
CATALOGUE = [line.partition("\t")[0] for line in (ROOT / "tests/architecture/systems.tsv").read_text().splitlines()[1:]]
BUILT, NOT_BUILT = PAGE.split("## Not built yet")


def rows(text: str) -> list[list[str]]:
    """Returns the cells of all table rows, without the header."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "id"]


ROWS = rows(BUILT)
GROUPS = sources.groups([sources.CONF])
KEYS = {key.rpartition(".")[2] for file in sources.CONF.glob("**/*.yaml") for key in sources.notes(file).meanings}


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_system_of_the_catalogue_has_one_row() -> None:
    assert all(len(row) == 5 for row in ROWS) and all(len(row) == 2 for row in rows(NOT_BUILT))
    ids = [row[0] for row in (*ROWS, *rows(NOT_BUILT))]
    assert sorted(ids) == sorted(CATALOGUE)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_system_is_where_the_page_says(row: list[str]) -> None:
    _, _, where, names, shown = row
    assert any("/" in path for path in quoted(where)), "a system that is built has a file"
    assert quoted(names), "a system that is built has a name in a config"
    assert any("::test_" in proof for proof in quoted(shown)), "a system that is built has a test"
    for path in quoted(where):
        assert "/" not in path or any((home / path).exists() for home in HOMES), path
    for name in quoted(names):
        key, is_choice, option = name.partition("=")
        if is_choice and key in GROUPS:
            assert option in GROUPS[key], name
        else:
            assert key.rpartition(".")[2] in {"*", *KEYS, *GROUPS["network"]}, name
    for proof in quoted(shown):
        if "/" in proof or " " in proof:
            shows(*shlex.split(proof))


def shows(word: str, *words: str) -> None:
    """Whether a command is an existing script or test, or an rlrun command that composes."""
    if word == "rlrun":
        assert words[0] in COMMANDS
        if words[0] == "train":
            jobs(list(words[1:]))
        return
    file, _, test = (words[0] if word == "python" else word).partition("::")
    assert (ROOT / file).exists(), file
    assert f"def {test}(" in (ROOT / file).read_text() if test else True, test
