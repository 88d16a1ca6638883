"""Every row of the table of features names commands and tests that exist."""

import ast
import re
import shlex
from functools import cache

import pytest
from pages import ROOT, table
from test_docs_commands import COMMANDS, ERRORS, NOT_RUN, SHORT

from rlrun.cli import main

ROWS = table(ROOT / "docs/features.md")
KNOWN = COMMANDS.keys() | SHORT.keys() | NOT_RUN.keys() | ERRORS.keys()  # run or composed by test_docs_commands.py


@cache
def functions(file: str) -> dict[str, list[str]]:
    """Returns the test functions of a file of tests/, each with its decorators."""
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {node.name: [ast.unparse(decorator) for decorator in node.decorator_list] for node in found}


def test_features_have_the_numbers_1_to_25() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 26)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_feature_has_commands_that_the_tests_of_the_pages_run(row: list[str]) -> None:
    found = re.findall(r"`([^`]+)`", row[2])
    assert found
    for text in found:
        words = shlex.split(text)
        if words[0] == "rlrun":
            assert " ".join(words[1:]) in KNOWN
        elif words[0] == "eval":
            assert main(["completion", "bash"]) == 0
        else:
            assert (ROOT / words[0]).is_file() or text.startswith("rlrun.load(")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_feature_has_tests_of_the_default_suite(row: list[str]) -> None:
    found = re.findall(r"`([\w/]+\.py)::(\w+)`( \(slow\))?", row[3])
    assert found
    for file, name, slow in found:
        marks = [mark for mark in functions(file)[name] if mark in ("pytest.mark.slow", "pytest.mark.full")]
        assert marks == (["pytest.mark.slow"] if slow else [])
    assert any(not slow for _, _, slow in found)
