"""The benchmarks themselves: statistics, records, what counts as noise, the table. Nothing here is timed."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from bench import compare, table  # noqa: E402
from bench.cases import CASES  # noqa: E402

from rlrun.bench import measure, pieces  # noqa: E402
from rlrun.bench.probe import Probe  # noqa: E402
from rlrun.config.jobs import jobs  # noqa: E402
from rlrun.config.schema import run_config  # noqa: E402

QUIET = Probe(100.0, 10.0, 0.0)


def one(**changes: object) -> dict[str, object]:
    found = measure.record("end_to_end", "sac-X", "rlrun", "steps/s", [3.0, 1.0, 2.0], {"torch": "2"}, [QUIET, QUIET])
    return found.as_json() | changes


def test_a_record_holds_median_range_and_count() -> None:
    record = one()
    assert (record["median"], record["low"], record["high"], record["repeats"]) == (2.0, 1.0, 3.0, 3)
    assert json.loads(json.dumps(record)) == record
    with pytest.raises(ValueError, match="nothing"):
        measure.summary([])


def test_repeats_are_interleaved_and_the_first_round_warms_up() -> None:
    order: list[str] = []
    works = {name: (lambda name=name: (order.append(name), float(len(order)))[1]) for name in "ab"}
    assert measure.interleaved(works, 2) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert order == ["a", "b"] * 3


def test_a_call_is_timed_by_the_given_clock() -> None:
    ticks = iter(range(100))
    calls: list[int] = []
    spent = measure.microseconds(lambda: calls.append(1), 5.0, lambda: float(next(ticks)))
    assert spent == pytest.approx(1e6 / 5)
    assert len(calls) == 6, "one to find out how many fit, then five"


@pytest.mark.parametrize(
    ("probes", "noisy"),
    [
        ([QUIET, QUIET], False),
        ([QUIET, Probe(95.0, 10.0, 0.0)], False),
        ([QUIET, Probe(80.0, 10.0, 0.0)], True),
        ([Probe(100.0, 10.0, 999.0)] * 2, True),
    ],
)
def test_a_machine_that_does_not_hold_still_gives_no_result(probes: list[Probe], noisy: bool) -> None:
    assert Probe.unsteady(probes) is noisy


def test_the_table_takes_the_latest_steady_records() -> None:
    lines = [
        one(median=100.0), one(median=50.0, library="sb3"), one(median=200.0), one(median=999.0, noisy=True),
        one(kind="micro", case="act", unit="us", median=7.0), one(unit="MiB", median=512.0),
    ]  # fmt: skip
    page = table.text(table.latest(map(json.dumps, lines)))
    assert "| sac-X | rlrun | 200.0 (1.0 to 3.0) | sb3 4.00 | 512 |" in page
    assert "| sac-X | sb3 | 50.0 (1.0 to 3.0) |  |  |" in page
    assert "| act | 7.0 (1.0 to 3.0) |" in page
    assert "999" not in page


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_a_run_that_rlrun_accepts(name: str) -> None:
    case = CASES[name]
    words = compare.command("rlrun", case, 10, Path("peers"), Path("run"))[4:]
    config = run_config(jobs(words)[0].values)
    assert config.trainer.total_steps == 10
    assert case.short < case.long
    assert compare.command("sb3@2", case, 10, Path("peers"), Path("run"))[0] == "peers/sb3/bin/python"
    words = compare.command("rlrun-bf16@2", case, 10, Path("peers"), Path("run"))[4:]
    trainer = run_config(jobs(words)[0].values).trainer
    assert (trainer.engine, trainer.precision, trainer.threads) == ("compile", "bf16", 2)


def test_every_piece_is_one_that_can_be_measured() -> None:
    for words in pieces.RUNS.values():
        run_config(jobs(words)[0].values)
    case, work = next(pieces.update("dqn"))
    assert case.startswith("update dqn")
    work()
