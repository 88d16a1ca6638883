"""The benchmarks themselves: statistics, records, what counts as noise, the table. Nothing here is timed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from bench import compare, table  # noqa: E402
from bench.cases import CASES, drawn  # noqa: E402

from rlrun.bench import measure, pieces  # noqa: E402
from rlrun.bench.probe import Probe  # noqa: E402
from rlrun.config.jobs import jobs  # noqa: E402
from rlrun.config.schema import run_config  # noqa: E402

QUIET = Probe(100.0, 10.0, 0.0)


def one(**changes: object) -> dict[str, object]:
    found = measure.record(
        "end_to_end", "sac-X", "rlrun", "steps/s", [3.0, 1.0, 2.0], {"torch": "2"}, [QUIET, QUIET], "now"
    )
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
    assert measure.interleaved(works, 1, warm_up=False) == {"a": [7.0], "b": [8.0]}


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
        one(unit="updates/step", median=0.25),
        one(kind="micro", case="tick", unit="us", median=8.0),
        one(kind="micro", case="act", library="sb3", unit="us", median=28.0), one(library="sbx", began="earlier"),
    ]  # fmt: skip
    page = table.text(table.latest(map(json.dumps, lines)))
    assert "| sac-X | rlrun | 200.0 (1.0 to 3.0) | sb3 4.00 | 0.250 |  | 512 |" in page
    assert "| sac-X | sb3 | 50.0 (1.0 to 3.0) |  |  |  |  |" in page
    assert "| act | 7.0 (1.0 to 3.0) | 28.0 (1.0 to 3.0) | 4.0 |" in page
    assert "| tick | 8.0 (1.0 to 3.0) |  |  |" in page
    assert "999" not in page
    assert "| dqn-Pong | cleanrl | not measured |  |  |  |  |" in page, "what nobody measured is not passed over"


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_a_run_that_rlrun_accepts(name: str) -> None:
    case = CASES[name]
    words = compare.command("rlrun", case, 10, Path("peers"), Path("run"))[4:]
    config = run_config(jobs(words)[0].values)
    assert config.trainer.total_steps == 10
    assert 0 < case.first < case.last
    assert compare.command("sb3@2", case, 10, Path("peers"), Path("run"))[0] == "peers/sb3/bin/python"
    words = compare.command("rlrun-bf16@2", case, 10, Path("peers"), Path("run"))[4:]
    trainer = run_config(jobs(words)[0].values).trainer
    assert (trainer.engine, trainer.precision, trainer.threads) == ("compile", "bf16", 2)


def test_every_library_of_a_case_can_be_set_up_and_has_a_script() -> None:
    for case in CASES.values():
        for library in case.libraries:
            name = library.partition("@")[0]
            assert name in compare.OWN or name in compare.PEERS
            words = compare.command(library, case, 10, Path("peers"), Path("run"))
            assert name in compare.OWN or Path(words[1]).is_file()


def test_the_clock_runs_from_one_step_to_another(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import gymnasium, sys, torch\n"
        "from rlrun.core.state import Optim\n"
        "param, other = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))\n"
        "theirs, ours = torch.optim.Adam([param]), Optim([other], 1e-3)\n"
        "param.grad = torch.ones(1)\n"
        "tried, env = gymnasium.make('CartPole-v1'), gymnasium.make('CartPole-v1')\n"
        "tried.reset()\n"
        "tried.step(0)\n"
        "for step in range(int(sys.argv[1])):\n"
        "    env.reset()\n"
        "    env.step(0)\n"
        "    [optim() for optim in [theirs.step] * int(sys.argv[2]) + [lambda: ours.step(other.sum())]]\n"
        "    print(step, flush=True)\n"
    )
    file = tmp_path / "clock"
    for steps, printed, theirs in (("5", 5, "0"), ("9", 6, "0"), ("9", 6, "3")):
        words = [sys.executable, "-P", str(compare.CLOCK), str(file), "3", "6", str(program), steps, theirs]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert len(done.stdout.splitlines()) == printed, "it is stopped where the seventh step would begin"
        assert file.exists() == (printed == 6)
        if file.exists():
            wall, cpu, start, updates = json.loads(file.read_text())
            assert wall > 0 and cpu >= 0 and start > 0
            assert updates == 3 * max(1, int(theirs)), "of the busiest optimiser, whoever made it"


def test_a_drawn_case_is_told_by_its_seed() -> None:
    name, case = drawn(7)
    assert drawn(7) == (name, case)
    assert len({drawn(seed)[0] for seed in range(20)}) == 20
    words = compare.command("rlrun", case, 10, Path("peers"), Path("run"))[4:]
    config = run_config(jobs(words)[0].values)
    width, critics = config.network["hidden"][0], config.algo["members"]
    assert (
        name == f"drawn 7: sac-{config.env.id[:-3]}, width {width}, batch {case.peer['batch_size']}, {critics} critics"
    )
    assert (case.peer["hidden"], case.peer["critics"]) == ([width, width], critics)


def test_every_piece_is_one_that_can_be_measured() -> None:
    for words in pieces.RUNS.values():
        run_config(jobs(words)[0].values)
    case, work = next(pieces.update("dqn"))
    assert case.startswith("update dqn")
    work()
