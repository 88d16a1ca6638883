"""The benchmarks: statistics, records, treatment of noise, the table. No test here measures time."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bench import compare, gpu, table
from bench.cases import CASES, drawn

from rlrun.bench import measure, pieces
from rlrun.bench.probe import MachineProbe
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config

ROOT = Path(__file__).parents[2]
QUIET = MachineProbe(100.0, 10.0, 0.0)


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


def test_a_call_is_timed_by_the_given_clock() -> None:
    ticks = iter(range(100))
    calls: list[int] = []
    spent = measure.microseconds(lambda: calls.append(1), 5.0, lambda: float(next(ticks)))
    assert spent == pytest.approx(1e6 / 5)
    assert len(calls) == 6, "one to find out how many fit, then five"


@pytest.mark.parametrize(
    ("probes", "piece", "whole"),
    [
        ([QUIET, QUIET], False, False),
        ([QUIET, MachineProbe(95.0, 10.0, 0.0)], False, False),
        ([QUIET, MachineProbe(80.0, 10.0, 0.0)], True, False),  # whole runs take turns: all were equally slow
        ([MachineProbe(100.0, 10.0, 999.0)] * 2, True, True),
    ],
)
def test_record_is_noisy_on_an_unsteady_machine(probes: list[MachineProbe], piece: bool, whole: bool) -> None:
    for kind, noisy in (("micro", piece), ("end_to_end", whole)):
        assert measure.record(kind, "x", "rlrun", "us", [1.0], {}, probes, "now").noisy is noisy


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


def test_the_table_has_both_clocks_of_simulators() -> None:
    lines = [
        one(kind="micro", case=case, unit=unit, median=median)
        for case, unit, median in (("4096 X, torch", "steps/s", 8e6), ("4096 X, torch", "steps/cpu-s", 9e6),
                                   ("4096 X, SyncVectorEnv", "steps/cpu-s", 1e5))
    ]  # fmt: skip
    page = table.text(table.latest(map(json.dumps, lines)))
    assert "| 4096 X, torch | 8,000,000 (1 to 3) | 9,000,000 (1 to 3) |" in page
    assert "| 4096 X, SyncVectorEnv |  | 100,000 (1 to 3) |" in page


def test_page_about_environments_has_the_recorded_speeds_of_simulators() -> None:
    records = table.latest((ROOT / "docs" / "benchmarks.jsonl").read_text().splitlines())
    rows = table.speeds(records)
    assert len(rows) == 4 and "\n".join(rows) in (ROOT / "docs" / "environments.md").read_text()


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_a_run_that_rlrun_accepts(name: str) -> None:
    case = CASES[name]
    words = compare.command("rlrun", case, 10, Path("peers"), Path("run"))[4:]
    config = run_config(jobs(words)[0].values)
    assert config.trainer.total_steps == 10
    assert case.first > 0 and case.steps > 0
    if case.algo == "ppo":
        rollout = config.algo["loop"]["rollout_steps"] * config.env.num_envs
        assert case.first % rollout == case.steps % rollout == 0, "every time has as many rollouts as updates"
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


PROGRAM = """
import sys, time
theirs = int(sys.argv[1])
import gymnasium, torch
from rlrun.core.state import Optim
param, other = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
adam, optim = torch.optim.Adam([param]), Optim([other], 1e-3)
param.grad = torch.ones(1)
tried, env = gymnasium.make("CartPole-v1"), gymnasium.make("CartPole-v1")
tried.reset()
tried.step(0)
for step in range(10 if theirs >= 0 else 5):
    env.reset()
    env.step(0)
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    for _ in range(theirs):
        adam.step()
    optim.step(other.sum())
"""


@pytest.mark.slow  # it starts a dozen processes that import torch
def test_libraries_take_turns_between_their_marks_and_updates_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(compare, "command", lambda name, *_: [sys.executable, str(program), name])
    monkeypatch.setattr(compare, "TURN", 0.05)
    turns: dict[str, list[tuple[float, float]]] = {}
    figures_of = compare.Run.figures

    def figures(run: compare.Run) -> dict[str, float]:
        turns[run.library] = run.turns
        return figures_of(run)

    monkeypatch.setattr(compare.Run, "figures", figures)
    case = replace(CASES["dqn-CartPole"], first=3, steps=2)
    found = compare.race(case, ["0", "3"], tmp_path, times=3)
    assert list(found) == list(turns) == ["0", "3"] and min(map(len, turns.values())) > 2
    taken = sorted(itertools.chain(*turns.values()))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(taken)), "never two at a time"
    assert all(one < other for one, other in zip(turns["0"], turns["3"], strict=False)), "in turn"
    for name, times in found.items():
        assert len(times) == 3 and all(0 < one["steps/s"] <= 10 for one in times), (
            "a step has work for a tenth of a second"
        )
        assert all(one["start s"] > 0 and one["MiB"] > 50 and one["steps/cpu-s"] > 0 for one in times)
        assert [one["updates/step"] for one in times] == [max(1, int(name))] * 3, "of the busiest optimiser"
    for names, why in ((["-1"], "it ended before its last step"), (["0", "x"], r"[\s\S]*ValueError")):
        with pytest.raises(SystemExit, match=f"^{names[-1]} failed: {why}"):
            compare.race(case, names, tmp_path, times=3)
    deadline = time.monotonic() + 10  # a process that was killed may still be listed
    while waiting := commands_with(str(program)):
        assert time.monotonic() < deadline, f"who waits for a turn is ended too: {waiting}"
        time.sleep(0.05)


def commands_with(text: str) -> list[str]:
    """Returns the command lines of all processes that contain a text."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(process.read_text())
    return [command for command in found if text in command]


def test_drawn_case_depends_on_its_seed() -> None:
    name, case = drawn(7)
    assert drawn(7) == (name, case)
    assert len({drawn(seed)[0] for seed in range(20)}) == 20
    words = compare.command("rlrun", case, 10, Path("peers"), Path("run"))[4:]
    config = run_config(jobs(words)[0].values)
    width, critics = config.network["hidden"][0], config.algo["critic"]["members"]
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


def test_simulators_are_measured_next_to_gymnasiums_vector_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MANY", 2)
    timers = pieces.timers("simulators", [], 0.0)
    assert [*timers] == [
        "2 CartPole, torch", "2 CartPole, SyncVectorEnv", "2 CartPole, CartPoleVectorEnv",
        "2 Pendulum, torch", "2 Pendulum, SyncVectorEnv",
    ]  # fmt: skip
    for once in timers.values():
        figures = once()
        assert figures.keys() == {"steps/s", "steps/cpu-s"} and min(figures.values()) > 0


def test_cases_of_the_gpu_are_measured_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["env=Pendulum", "preset=none", "network.hidden=[8]", "algo.loop.batch_size=8", "algo.buffer.capacity=1000"]
    monkeypatch.setattr(gpu, "RUNS", {"sac": ["algo=sac", *small]})
    monkeypatch.setattr(pieces, "WARMUP", 60)
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    monkeypatch.setattr(gpu, "COUNTS", (32,))
    waited: list[int] = []
    engines = {"eager": ["trainer.engine=eager"], "eager, bf16": ["trainer.precision=bf16"]}
    gpu.run(tmp_path / "gpu.jsonl", engines, "cpu", lambda: waited.append(1), 0.0, 1)
    records = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    assert [record["case"] for record in records] == [
        "update sac, batch 8, eager", "update sac, batch 8, eager, bf16", "replay sample 256 of 1M",
        "tick sac, 1 env on the CPU",
        "env step CartPole in torch, 32 env", "tick ppo, 32 env in torch, 16 steps, eager",
    ]  # fmt: skip
    assert all(record["library"] == "rlrun on cpu" and record["median"] > 0 for record in records)
    assert len(waited) >= len(records), "a case ends when the device has done its work"


def test_the_script_for_gpus_says_one_line_where_it_cannot_run() -> None:
    env = os.environ | {"PYTHON": "false"}  # like a Python without torch, or with a torch that finds no GPU
    command = ["bash", ROOT / "scripts" / "gpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("error: scripts/gpu needs a GPU") and done.stderr.count("\n") == 1


def test_the_script_for_another_torch_says_how_it_is_called() -> None:
    done = subprocess.run(["bash", ROOT / "scripts" / "test_torch"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: scripts/test_torch VERSION [WORDS FOR PYTEST]\n")
