"""The budget of `Any` by room: how often a room may use this type. It only falls."""

import runpy
from pathlib import Path

import pytest

COUNTER = runpy.run_path(str(Path(__file__).parents[2] / "scripts/any"))

# ./scripts/any prints the numbers, and ./scripts/any ROOM those of its files. Rooms that are not listed use none.
BUDGET = {
    "__init__": 1,
    "addons": 22,
    "agents": 58,
    "bench": 6,
    "buffers": 17,
    "cli": 34,
    "cluster": 7,
    "config": 100,
    "core": 26,
    "datasets": 6,
    "dotted": 13,
    "engine": 79,
    "envs": 191,
    "export": 4,
    "formats": 6,
    "functional": 8,
    "hub": 3,
    "images": 1,
    "indexed": 6,
    "loops": 20,
    "media": 2,
    "nested": 8,
    "networks": 31,
    "operating_system": 1,
    "python": 6,
    "report": 15,
    "run": 40,
    "rundir": 7,
    "schedules": 29,
    "settings": 18,
    "snapshot": 41,
    "spaces": 1,
    "sweep": 65,
    "telemetry": 52,
    "templates": 11,
    "tensors": 5,
    "testing": 5,
    "types": 5,
}


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return COUNTER["rooms"](COUNTER["uses"]())


def test_no_room_exceeds_its_budget_of_any(counts: dict[str, int]) -> None:
    too_many = {room: count for room, count in counts.items() if count > BUDGET.get(room, 0)}
    assert not too_many, f"write what the values are in place of `Any`: {too_many}; ./scripts/any ROOM counts by file"


def test_the_budget_of_any_falls_with_its_use(counts: dict[str, int]) -> None:
    lower = {room: counts.get(room, 0) for room, budget in BUDGET.items() if counts.get(room, 0) < budget}
    assert not lower, f"lower the numbers in BUDGET to {lower}"


def test_an_alias_of_any_counts_at_each_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rlrun/room").mkdir(parents=True)
    (tmp_path / "rlrun/types.py").write_text("from typing import Any\nTree = dict[str, Any]\nForest = list[Tree]\n")
    (tmp_path / "rlrun/room/one.py").write_text(
        "import typing\nfrom rlrun import types\nfrom rlrun.types import Forest as Trees\n"
        "def grow(trees: 'Trees') -> types.Tree:\n    'Any tree.'\n    size: typing.Any = trees\n"
    )
    monkeypatch.setitem(COUNTER["uses"].__globals__, "SOURCE", tmp_path / "rlrun")
    assert COUNTER["rooms"](COUNTER["uses"]()) == {"types": 2, "room": 3}
