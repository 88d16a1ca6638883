"""Tables fit the width of a terminal; in a pipe they are not wrapped."""

import sys

import pytest

from rlrun.cli import main
from rlrun.cli.columns import columns

ROWS = [
    ("key", "value", "meaning"),
    ("algo.gamma", "0.99", "discount per step, between 0 and 1, of all rewards"),
    ("a", "b", "c"),
]


def test_columns_are_aligned_without_a_width():
    assert [*columns(ROWS)] == [*columns(ROWS, 200)] == [
        "key         value  meaning",
        "algo.gamma  0.99   discount per step, between 0 and 1, of all rewards",
        "a           b      c",
    ]  # fmt: skip


def test_columns_wrap_the_last_one():
    assert [*columns(ROWS, 50)] == [
        "key         value  meaning",
        "algo.gamma  0.99   discount per step, between 0",
        "                   and 1, of all rewards",
        "a           b      c",
    ]


def test_cells_that_do_not_fit_stand_below_their_row():
    assert [*columns(ROWS, 30)] == [
        "key         value",
        "    meaning",
        "algo.gamma  0.99",
        "    discount per step, between",
        "    0 and 1, of all rewards",
        "a           b",
        "    c",
    ]


def test_columns_never_break_paths():
    path = f"runs/{'x' * 60}"
    assert [*columns([("run", path)], 40)] == ["run", f"    {path}"]


@pytest.mark.parametrize("words", [["list", "algo"], ["show", "algo=sac", "preset=none"]])
def test_columns_fit_the_width_of_the_terminal(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
