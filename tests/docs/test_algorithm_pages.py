"""Every page of an algorithm has the same sections, a command that composes, and keys that exist."""

import re
import shlex
import sys
from functools import cache

import pytest
from pages import ROOT
from reader import composed

from rlrun import dotted
from rlrun.config import check, sources
from rlrun.config.contents import Contents

pytest.importorskip("sphinx")
sys.path.insert(0, str(ROOT / "docs/_ext"))
from rlrun_pages import algorithms, command, preparation

SECTIONS = ("When to use it", "The update", "Limits", "Results", "Settings", "Source")
KEY = re.compile(r"`((?:algo|network|env|trainer)\.[a-z_.]+)[`=]")


@cache
def keys_of_parts() -> set[str]:
    """Returns the keys of all parts that may be chosen, such as `algo.buffer.alpha`."""
    found = set()
    contents = Contents([sources.CONF])
    for group, files in sources.groups([sources.CONF]).items():
        if not group.startswith(("algo.", "network")):
            continue
        for name, file in files.items():
            if sources.content(file):
                keys = contents.own_keys(f"{group.replace('.', '/')}/{name}")
                found |= {f"{group}.{key}" for key in keys}
    return found


@pytest.mark.parametrize("name", algorithms())
def test_algorithm_page_has_its_sections_and_keys_that_exist(name: str) -> None:
    text = (ROOT / f"docs/algorithms/{name}.md").read_text()
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert tuple(section for section in sections if section in SECTIONS) == SECTIONS
    (job,) = composed(shlex.split(command(name))[1:])
    for key in KEY.findall(text):
        known = key in keys_of_parts() or dotted.lookup(key, job.values) is not dotted.ABSENT
        assert known or check.is_open(key, job.values), key


def test_commands_with_data_sets_name_how_they_are_recorded() -> None:
    recorded = {name for name in algorithms() if preparation(name)}
    assert recorded == {"bc", "causal_bc", "iql", "ppo_demos", "sac_from_data"}
    assert recorded == {name for name in algorithms() if re.search(r"[a-z]-v0\b", command(name))}
