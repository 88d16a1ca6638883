"""The pages of the documentation, with the commands and the Python snippets on them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def commands(page: Path) -> list[list[str]]:
    """Returns the words after `rlrun` of the commands in the indented blocks of a page, without comments.

    Variables that the page assigns, as in `NAME='text'`, are replaced.
    """
    text = page.read_text().replace("\\\n", " ")
    for name, value in re.findall(r"^    ([A-Z]+)='(.*)'$", text, re.MULTILINE):
        text = text.replace(f"${name}", value)
    lines = [line for line in text.splitlines() if line.startswith("    rlrun ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def snippets(page: str, language: str = "python") -> list[str]:
    """Returns the fenced blocks of a page, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
