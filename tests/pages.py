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


def inline(page: Path) -> list[list[str]]:
    """Returns the words after `rlrun` of the commands in the sentences and tables of a page.

    `...`, which stands for words that the page leaves out, is replaced by an algorithm and an environment.
    """
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    found = re.findall(r"`rlrun ([^`]+)`", text)
    return [shlex.split(command.replace(" ... ", " algo=ppo env=CartPole ")) for command in found]


def errors(page: Path) -> list[tuple[str, list[str]]]:
    """Returns the commands of a page that begin with `$ rlrun`, each with the error lines below it."""
    found = re.findall(r"^    \$ rlrun (.*)\n((?:    error: .*\n?)+)", page.read_text(), re.MULTILINE)
    return [(command, [line.strip() for line in lines.splitlines()]) for command, lines in found]


def table(page: Path) -> list[list[str]]:
    """Returns the cells of the first table of a page, without its header."""
    _, _, *rows = [line for line in page.read_text().splitlines() if line.startswith("| ") or line.startswith("|-")]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]


def snippets(page: str, language: str = "python") -> list[str]:
    """Returns the fenced blocks of a page, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
