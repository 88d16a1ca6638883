"""The runs and steps of a comparison, and its remarks: small tables computed by hand."""

from pathlib import Path

import numpy as np
import pytest
from made_runs import config, make_run

from rlrun.cli.report import build
from rlrun.report.compare import BASELINE, compare, differences, environments, joined, method, rivals
from rlrun.report.runs import StoredRun, read
from rlrun.report.tables import at_steps, chances


def test_runs_are_put_together_by_algorithm_and_environment(tmp_path: Path) -> None:
    for seed, last in enumerate([1.0, 2.0, 3.0, 10.0]):
        make_run(tmp_path / f"a{seed}", {50: 0.0, 100: last}, seed=seed)
    make_run(tmp_path / "b", {50: 5.0, 100: 4.0}, algo="sac", env="Hopper-v5")
    found = compare(read([tmp_path])[0])
    assert (found.methods, found.envs) == (["ppo", "sac"], ["CartPole-v1", "Hopper-v5"])
    ppo, sac = found.cells["ppo", "CartPole-v1"], found.cells["sac", "Hopper-v5"]
    assert ppo.final.tolist() == [1, 2, 3, 10] and sac.best.tolist() == [5.0]
    assert ppo.grid.tolist() == [50, 100] and ppo.centre.tolist() == [0, 2.5]
    assert found.bounds == {"CartPole-v1": (0.0, 10.0), "Hopper-v5": (4.0, 5.0)}
    assert found.strata("ppo")[0].tolist() == [0.1, 0.2, 0.3, 1.0]
    assert found.gaps == ["ppo on Hopper-v5", "sac on CartPole-v1"]


def test_by_a_key_of_the_config(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {100: 1.0}, gamma=0.9)
    make_run(tmp_path / "b", {100: 2.0}, gamma=0.99)
    make_run(tmp_path / "c", {100: 3.0}, algo="cem")
    runs, _ = read([tmp_path])
    assert compare(runs, by=["algo.gamma"]).methods == ["cem, gamma=-", "ppo, gamma=0.9", "ppo, gamma=0.99"]
    assert method(runs[0], ["algo.gamma", "seed"]) == "ppo, gamma=0.9, seed=0"
    assert differences([run for run in runs if run.algo == "ppo"]) == [("algo.gamma", ["0.9", "0.99"])]


def stored(path: Path, env: str, **kwargs: object) -> StoredRun:
    values = config(env=env)
    values["env"]["kwargs"] = kwargs
    return StoredRun(path, values, {}, {}, {}, [], [])


def test_environments_are_named_by_their_class_and_the_arguments_that_differ(tmp_path: Path) -> None:
    runs = [
        stored(tmp_path / "a", "./grip.py:Grip", size=3, fast=True),
        stored(tmp_path / "b", "./grip.py:Grip", size=5, fast=True),
        stored(tmp_path / "c", "./grip.py:Grip", size=5, fast=True, deep={"er": 1}),
        stored(tmp_path / "d", "./other/two.py:Two"),
        stored(tmp_path / "e", "./more/two.py:Two"),
        stored(tmp_path / "f", "module:Own-v1"),
    ]
    last = ["./other/two.py:Two", "./more/two.py:Two", "module:Own-v1"]
    assert [*environments(runs).values()] == ["Grip size=3 er=-", "Grip size=5 er=-", "Grip size=5 er=1", *last]
    assert [*environments(runs, ["env.kwargs.size"]).values()] == ["Grip er=-", "Grip er=-", "Grip er=1", *last]
    assert [*environments(runs, ["env.kwargs"]).values()] == ["Grip"] * 3 + last


def test_a_baseline_in_an_environment_with_other_arguments_is_not_compared(tmp_path: Path) -> None:
    for name, size in (("one", 3), ("two", 5)):
        file = make_run(tmp_path / name, {100: 1.0}) / "config.yaml"
        file.write_text(file.read_text().replace("kwargs: {}", f"kwargs: {{size: {size}}}"))
    made = build([str(tmp_path / "one")], {"baseline": str(tmp_path / "two")}, "")
    assert [*made.comparison.cells] == [("ppo", "CartPole-v1 size=3"), ("ppo (baseline)", "CartPole-v1 size=5")]


def test_profile_covers_the_final_scores(tmp_path: Path) -> None:
    for seed, last in enumerate([90.0, 95.0, 98.0]):
        make_run(tmp_path / f"{seed}", {50: 0.0, 80: 100.0, 100: last}, seed=seed)
    found = compare(read([tmp_path])[0])
    assert (found.thresholds[0], found.thresholds[-1]) == pytest.approx((0.895, 0.985))
    values, _, _ = found.profiles["ppo"]
    assert (values[0], values[-1]) == (1, 0)


def test_other_metrics_are_over_the_runs_that_count(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {50: 2.0, 100: 4.0}, seed=0)
    make_run(tmp_path / "b", {50: 9.0}, status="failed", seed=1)
    make_run(tmp_path / "c", {50: 2.0, 100: 4.0}, algo="sac")
    metrics = tmp_path / "c/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("train/return_mean", "train/other"))
    found = compare(read([tmp_path])[0]).of_metric("train/return_mean")
    assert [*found.cells] == [("ppo", "CartPole-v1")] and found.methods == ["ppo", "sac"]
    assert found.cells["ppo", "CartPole-v1"].curves.tolist() == [[1.0, 2.0]]


def test_compare_interpolates_between_differing_steps(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {20: 0.0, 100: 8.0}, seed=0)
    make_run(tmp_path / "b", {40: 4.0, 104: 4.0}, seed=1)
    cell = compare(read([tmp_path])[0]).cells["ppo", "CartPole-v1"]
    assert cell.horizon == 100 and (cell.grid[0], cell.grid[-1]) == (40, 100)
    assert cell.curves[0].tolist() == pytest.approx((cell.grid / 10 - 2).tolist())
    assert cell.final.tolist() == [8.0, 4.0], "of an evaluation that was done, not of a line"


def test_compare_ignores_unfinished_runs_beside_finished_ones(tmp_path: Path) -> None:
    make_run(tmp_path / "whole", {50: 1.0, 100: 2.0}, seed=0)
    make_run(tmp_path / "short", {50: 9.0}, status="failed", seed=1)
    found = compare(read([tmp_path])[0])
    cell = found.cells["ppo", "CartPole-v1"]
    assert cell.final.tolist() == [2.0] and len(cell.series) == 2
    assert found.uncounted == {tmp_path / "short": "resumable at 50 of 100 steps"}


def test_compare_counts_unfinished_runs_up_to_the_shortest(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {20: 1.0, 40: 2.0}, status=None, seed=0)
    make_run(tmp_path / "b", {20: 3.0, 40: 4.0, 60: 5.0}, status=None, seed=1)
    found = compare(read([tmp_path])[0])
    cell = found.cells["ppo", "CartPole-v1"]
    assert cell.horizon == 40 and cell.final.tolist() == [2.0, 4.0] and not found.uncounted


def test_runs_without_a_common_step_are_never_averaged(tmp_path: Path) -> None:
    """One run is a short test that ended before the first evaluation of the others."""
    make_run(tmp_path / "a", {1000: 1.0, 2000: 2.0}, seed=0, total=2000)
    for seed in (1, 2):
        make_run(tmp_path / f"b{seed}", {4000: 3.0, 8000: 4.0 + seed, 12000: 9.0}, seed=seed, total=12000)
    make_run(tmp_path / "c", {7000: 8.0}, seed=3, total=7000)
    found = compare(read([tmp_path])[0])
    cell = found.cells["ppo", "CartPole-v1"]
    assert [one.run.path.name for one in cell.counted] == ["b1", "b2", "c"]
    assert (cell.horizon, cell.grid.tolist(), cell.final.tolist()) == (7000, [7000], [3.0, 3.0, 8.0])
    assert found.uncounted == {
        tmp_path / "a": "evaluated only from step 1,000 to 2,000, no step in common with the runs that count"
    }


def test_compare_counts_the_longer_run_without_a_common_step(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {2000: 2.0}, seed=0, total=2000)
    make_run(tmp_path / "b", {4000: 3.0, 8000: 4.0}, seed=1, total=8000)
    found = compare(read([tmp_path])[0])
    cell = found.cells["ppo", "CartPole-v1"]
    assert (cell.horizon, cell.final.tolist(), cell.best.tolist()) == (8000, [4.0], [4.0])
    reason = "evaluated only at step 2,000, no step in common with the runs that count"
    assert found.uncounted == {tmp_path / "a": reason}


def test_compare_leaves_out_steps_beyond_float_precision(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {2**53 - 2: 1.0, 2**53: 2.0, 2**53 + 1: 3.0}, total=2**53)
    cell = compare(read([tmp_path])[0]).cells["ppo", "CartPole-v1"]
    assert cell.grid.tolist() == [2**53 - 2, 2**53] and cell.final.tolist() == [2.0]


def test_compare_counts_equal_runs_once(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {50: 1.0}, status=None, seed=0)
    make_run(tmp_path / "b", {50: 1.0, 100: 2.0}, seed=0)
    make_run(tmp_path / "c", {50: 1.0, 100: 3.0}, seed=1)
    found = compare(read([tmp_path])[0])
    assert found.cells["ppo", "CartPole-v1"].final.tolist() == [2.0, 3.0]
    assert found.uncounted == {tmp_path / "a": f"same config and seed as {tmp_path / 'b'}"}


def test_runs_without_the_score_are_set_aside(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {})
    make_run(tmp_path / "b", {100: 1.0}, seed=1)
    found = compare(read([tmp_path])[0])
    assert found.uncounted == {tmp_path / "a": "no rows yet"}
    none = compare(read([tmp_path])[0], score="eval/nothing")
    assert none.methods == [] and none.uncounted[tmp_path / "b"] == "no eval/nothing yet"


def test_compare_puts_a_baseline_next_to_its_method(tmp_path: Path) -> None:
    for seed in range(4):
        make_run(tmp_path / "mine" / f"{seed}", {100: 10.0 + seed}, seed=seed)
        make_run(tmp_path / "theirs" / f"{seed}", {100: 9.0 + seed}, seed=seed)
    make_run(tmp_path / "mine" / "sac", {100: 1.0}, algo="sac")
    mine, theirs = (read([tmp_path / side])[0] for side in ("mine", "theirs"))
    found = joined(compare(mine), compare(theirs, suffix=BASELINE))
    assert found.methods == ["ppo", "ppo (baseline)", "sac"]
    assert rivals(found) == [("ppo", "ppo (baseline)")]
    (only_sac,) = read([tmp_path / "mine" / "sac"])[0]
    others = joined(compare(mine[:1]), compare([only_sac], suffix=BASELINE))
    every = joined(others, compare([only_sac]))
    assert rivals(others) == [("ppo", "sac (baseline)")]
    assert rivals(every) == [("sac", "sac (baseline)")]
    ((x, y, chance, (low, high)),) = found.pairs
    # 10 to 13 against 9 to 12: wins 1 + 2 + 3 + 4 of 16, ties 3 halves
    assert (x, y, chance) == ("ppo", "ppo (baseline)", pytest.approx((10 + 3 / 2) / 16))
    assert low <= chance <= high
    assert [row[2:] for row in chances(found).rows] == [["0.72", f"{low:.2f} to {high:.2f}", "no"]]


def test_pairs_put_the_likelier_winner_first(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {100: 1.0})
    make_run(tmp_path / "b", {100: 2.0}, algo="sac")
    ((x, y, chance, ends),) = compare(read([tmp_path])[0]).pairs
    assert (x, y, chance) == ("sac", "ppo", 1.0) and np.isnan(ends).all()
    assert chances(compare(read([tmp_path])[0])).rows == [["sac", "ppo", "", "too few runs", ""]]


def test_steps_that_no_method_had_reached_make_no_row_unless_asked_for(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {60: 1.0, 100: 2.0})
    found = compare(read([tmp_path])[0])
    assert [row[1] for row in at_steps(found).rows] == ["75", "100"]
    assert [row[1:] for row in at_steps(found, [25, 60]).rows] == [["25", ""], ["60", "1.000"]]
