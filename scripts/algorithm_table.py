"""Writes README's table of algorithms and networks from conf/ and the source: `python scripts/algorithm_table.py`.

Algorithms are grouped by the folder of their class in src/rlrun/agents. Each links to the paper that the first line of
its YAML file names.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from rlrun.cli.catalogue import family  # noqa: E402
from rlrun.config import sources  # noqa: E402 (works without an installation)

README = ROOT / "README.md"
BEGIN, END = "<!-- written by scripts/algorithm_table.py -->\n", "<!-- end of the table -->\n"
PAPERS = {  # pattern of a paper in a headline -> beginning of its address
    r"arXiv (\d{4}\.\d{5})": "https://arxiv.org/abs/",
    r"doi (10\.[^\s);,]+)": "https://doi.org/",
    r"openreview (\w+)": "https://openreview.net/forum?id=",
}


def entry(name: str, headline: str) -> str:
    """Returns an algorithm's name, with a link to its paper if the headline names one."""
    for pattern, place in PAPERS.items():
        if paper := re.search(pattern, headline):
            return f"[`{name}`]({place}{paper[1]})"
    return f"`{name}`"


def block() -> str:
    """Returns the lines between the two markers in README."""
    rows: dict[str, list[str]] = {}
    for name, file in sources.options("algo", [sources.CONF]).items():
        rows.setdefault(family(file), []).append(entry(name, sources.notes(file).headline))
    table = "".join(f"| [{name}](src/rlrun/agents/{name}) | {', '.join(rows[name])} |\n" for name in sorted(rows))
    networks = ", ".join(f"`{name}`" for name in sources.options("network", [sources.CONF]))
    return f"| family | algorithms |\n|---|---|\n{table}\nNetworks: {networks}, or your own.\n"


def written(text: str) -> str:
    """Returns the text of README with the current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + block() + END + after


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
