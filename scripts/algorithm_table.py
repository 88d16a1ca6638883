"""Writes README's table of algorithms and networks from conf/ and the source: `python scripts/algorithm_table.py`.

Algorithms are grouped by the folder of their class in src/rlrun/agents. Each links to the paper that the first line of
its YAML file names.
"""

import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from rlrun.config import sources  # noqa: E402 (works without an installation)

README = ROOT / "README.md"
BEGIN, END = "<!-- written by scripts/algorithm_table.py -->\n", "<!-- end of the table -->\n"
PAPERS = {  # pattern of a paper in a headline -> beginning of its address
    r"arXiv (\d{4}\.\d{5})": "https://arxiv.org/abs/",
    r"doi (10\.[^\s);,]+)": "https://doi.org/",
    r"openreview (\w+)": "https://openreview.net/forum?id=",
}
REGISTERED = re.compile(r'@register\("algo", "(\w+)"\)')


def families() -> dict[str, str]:
    """Returns the folder in src/rlrun/agents of every registered class, by its registered name."""
    files = (ROOT / "src/rlrun/agents").glob("*/*.py")
    return {name: file.parent.name for file in files for name in REGISTERED.findall(file.read_text())}


def registered_name(file: Path) -> str | None:
    """Returns the registered name in an algorithm's YAML file, or else in the files of its defaults."""
    values = yaml.safe_load(file.read_text())
    if name := values.get("algo", {}).get("name"):
        return str(name)
    for base in values.get("defaults", []):
        if isinstance(base, str) and base != "_self_" and (name := registered_name(file.with_name(f"{base}.yaml"))):
            return name
    return None


def entry(name: str, headline: str) -> str:
    """Returns an algorithm's name, with a link to its paper if the headline names one."""
    for pattern, place in PAPERS.items():
        if paper := re.search(pattern, headline):
            return f"[`{name}`]({place}{paper[1]})"
    return f"`{name}`"


def block() -> str:
    """Returns the lines between the two markers in README."""
    folders = families()
    rows: dict[str, list[str]] = {}
    for name, file in sources.options("algo", [sources.CONF]).items():
        family = folders[registered_name(file) or ""]
        rows.setdefault(family, []).append(entry(name, sources.notes(file).headline))
    table = "".join(
        f"| [{family}](src/rlrun/agents/{family}) | {', '.join(rows[family])} |\n" for family in sorted(rows)
    )
    networks = ", ".join(f"`{name}`" for name in sources.options("network", [sources.CONF]))
    return f"| family | algorithms |\n|---|---|\n{table}\nNetworks: {networks}, or your own.\n"


def written(text: str) -> str:
    """Returns the text of README with the current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + block() + END + after


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
