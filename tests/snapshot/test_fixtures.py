"""Snapshots of earlier versions, which must always load."""

import json
from pathlib import Path

import make_fixtures
import pytest
from stores import MemoryRing, equal
from test_tree import same

from rlrun.formats import history
from rlrun.snapshot.store import Store

FORMATS = sorted(make_fixtures.FOLDER.glob("format_*"), key=lambda path: int(path.name.removeprefix("format_")))


def test_every_snapshot_format_has_a_fixture() -> None:
    formats = range(history.FIRST, history.FORMAT + 1)
    assert [path.name for path in FORMATS] == [f"format_{number}" for number in formats]


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", ["step_000000010", "step_000000020", "best"])
def test_a_snapshot_of_an_earlier_version_loads_to_the_last_bit(path: Path, name: str) -> None:
    snapshot = Store(path).load(name)
    step = snapshot.step
    assert step == (20 if name.endswith("20") else 10)
    assert snapshot.digest == json.loads((path / "expected.json").read_text())[name]
    assert same(dict(snapshot.state), {key: plain(value) for key, value in make_fixtures.state(step).items()})
    for ring, expected in make_fixtures.rings(step).items():
        filled = MemoryRing(expected.capacity)
        snapshot.restore_ring(ring, filled)
        assert equal(filled, expected)
    assert (snapshot.header, snapshot.clocks) == ({"step": step, "algo": "sac"}, {"wall_s": 1.5})
    assert Store(path).load().name == "step_000000020" and not Store(path).load().faults


def plain(value: object) -> object:
    """Ordered dicts come back as dicts."""
    return dict(value) if isinstance(value, dict) else value


def test_snapshot_digests_of_todays_format_are_stable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_fixtures.segments, "SEGMENT_ROWS", 16)
    make_fixtures.make(tmp_path / "run")
    fixture = make_fixtures.FOLDER / f"format_{history.FORMAT}"
    assert (tmp_path / "run/expected.json").read_text() == (fixture / "expected.json").read_text()
