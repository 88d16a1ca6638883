"""The files in docs/changes, of which towncrier makes the next section of CHANGELOG.md."""

import re
import tomllib

from pages import ROOT


def test_changes_are_named_by_a_kind_of_the_change_log() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in settings["type"])
    names = [path.name for path in (ROOT / settings["directory"]).iterdir() if path.name != ".gitkeep"]
    assert [name for name in names if not re.fullmatch(rf"\+[a-z0-9-]+\.({kinds})\.md", name)] == []
