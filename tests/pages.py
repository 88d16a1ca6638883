"""The pages of the documentation, and the commands on them."""

import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def commands(page: Path) -> list[list[str]]:
    """Returns the words after `rlrun` of the commands in the indented blocks of a page, without comments."""
    text = page.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("    rlrun ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]
