"""Every row of the page of options names keys and tests that exist."""

import ast
import re
from functools import cache

import pytest
from pages import ROOT, table

from rlrun.config.sources import CONF, content
from rlrun.dotted import ABSENT, lookup
from rlrun.settings import registry

ROWS = [row for row in table(ROOT / "docs/options.md") if row[0].startswith("`")]
# the section of a key -> the files that hold its keys
FILES = {
    "trainer": [CONF / "trainer/_base.yaml"],
    "env": [CONF / "env/_base.yaml"],
    "algo.loop": sorted((CONF / "algo/loop").glob("*.yaml")),
    "algo.buffer": sorted((CONF / "algo/buffer").glob("*.yaml")),
    "network": sorted((CONF / "network").glob("*.yaml")),
    "": [CONF / "train.yaml"],
}


@cache
def functions(file: str) -> set[str]:
    """Returns the names of the functions of a file."""
    return {node.name for node in ast.parse((ROOT / file).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def exists(key: str) -> bool:
    """Returns whether rlrun has a key, a part that a word chooses, or a setting of a part."""
    section, _, value = key.partition("=")
    if value:
        group = {"callbacks": "callback"}.get(section, section.rpartition(".")[2])
        return value.strip("[]") in registry.names(group)
    if key.startswith("env.wrappers."):
        _, _, wrapper, field = key.split(".")
        return field in registry.lookup("wrapper", wrapper).Config.__dataclass_fields__
    if ": " in key:  # a setting of the callback beside it
        return key.partition(": ")[0] in registry.lookup("callback", "summaries").Config.__dataclass_fields__
    of_section = next(name for name in FILES if key.startswith(f"{name}.") or not name)
    field = key.removeprefix(f"{of_section}.")
    return any(lookup(field, content(file)) is not ABSENT for file in FILES[of_section])


def test_a_wrong_key_and_a_wrong_part_do_not_exist() -> None:
    wrong = ["trainer.num_snapshot", "callbacks=[summary]", "algo.loop.lags", "rms2: true", "cluster=locals", "x.y"]
    assert not any(map(exists, wrong))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_option_has_keys_and_tests_that_exist(row: list[str]) -> None:
    _, here, effect, *tests = row
    keys = re.findall(r"`([^`]+)`", here)
    assert all(map(exists, keys)) and (keys or (here == "none" and len(effect) > 40))
    found = re.findall(r"`([\w/]+\.py)::(\w+)`", "".join(tests))
    assert found or not keys
    for file, name in found:
        assert name in functions(file)


def test_options_are_those_of_alf_and_each_has_one_row() -> None:
    names = [row[0].strip("`") for row in ROWS]
    assert len({*names}) == len(names) == 61
