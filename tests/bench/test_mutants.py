"""Changes of single lines, and the tests that notice them."""

import ast
from pathlib import Path

import pytest
from mutation.mutants import Copy
from mutation.mutations import drawn, mutants

TEXT = '''
def score(values: list[int] = [2], scale=1.0) -> float:
    """Returns 3."""
    if len(values) > 1 and not scale:
        raise ValueError(f"{len(values) + 1} values")
    elif values is None:
        return -1
    total: float = sum(values, start=0)
    self.total = total
    return total
'''
CHANGES = {
    "if len(values) > 1 and not scale:": {
        "if len(values) > 1 or not scale:", "if len(values) >= 1 and not scale:", "if len(values) > 2 and not scale:",
        "if len(values) > 1 and (scale):",
    },
    'raise ValueError(f"{len(values) + 1} values")': {"pass"},
    "elif values is None:": {"elif values is not None:"},
    "return -1": {"return -2"},
    "total: float = sum(values, start=0)": {"total: float = sum(values)", "total: float = sum(values, start=1)"},
    "self.total = total": {"pass"},
    "return total": {"return None"},
}  # fmt: skip


def test_mutants_change_operators_constants_arguments_and_statements_of_functions() -> None:
    found: dict[str, set[str]] = {}
    for mutant in mutants("a.py", TEXT):
        found.setdefault(mutant.before.strip(), set()).add(mutant.after.strip())
        lines = TEXT.splitlines(keepends=True)
        assert lines[mutant.line - 1] == mutant.before
        lines[mutant.line - 1] = mutant.after
        ast.parse("".join(lines))
    assert found == CHANGES


def test_mutants_of_an_elif_are_probed_before_its_if() -> None:
    (mutant,) = [mutant for mutant in mutants("a.py", TEXT) if "elif" in mutant.before]
    assert TEXT.splitlines()[mutant.probe - 1].strip() == "if len(values) > 1 and not scale:"


def test_mutants_are_drawn_from_every_room_and_a_larger_draw_contains_a_smaller_one(tmp_path: Path) -> None:
    for room, functions in (("large", 20), ("small", 1)):
        (tmp_path / room).mkdir()
        (tmp_path / room / "code.py").write_text(TEXT * functions)
    few, many = drawn(tmp_path, 4, seed=1), drawn(tmp_path, 12, seed=1)
    assert [mutant.room for mutant in few] == ["large"] * 3 + ["small"]
    assert len({(mutant.file, mutant.line) for mutant in many}) == 12 and {*few} < {*many}
    assert drawn(tmp_path, 4, seed=2) != few


SOURCE = "def half(x):\n    return x / 2\n\n\ndef double(x):\n    return x * 2\n"
TESTS = """
import subprocess
import sys

import rlrun

def test_zero():
    assert rlrun.half(0) == rlrun.double(0) == 0

def test_half():
    assert subprocess.check_output([sys.executable, "-c", "import rlrun; print(rlrun.half(2))"]) == b"1.0\\n"
"""


@pytest.mark.full
def test_mutants_are_killed_by_tests_whose_processes_execute_them(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.source.mkdir(parents=True)
    (copy.source / "__init__.py").write_text(SOURCE)
    (copy.root / "test_numbers.py").write_text(TESTS)
    found = [mutant for mutant in mutants("__init__.py", SOURCE) if "3" not in mutant.after]  # other operators
    half, zero = "test_numbers.py::test_half", "test_numbers.py::test_zero"
    tests = copy.executed(found, processes=1, most=60)
    assert [{*names} for names in tests] == [{half, zero}, {zero}]
    killers = [copy.killer(mutant, names, limit=60) for mutant, names in zip(found, tests, strict=True)]
    assert killers == [half, None] and (copy.source / "__init__.py").read_text() == SOURCE
