"""The callback `paths` writes all training episodes as data sets."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import rlrun
from rlrun.callbacks.paths import Paths
from rlrun.testing import check_callback
from rlrun.types import Spec, Step

minari = pytest.importorskip("minari")

WORDS = ["algo=dqn", "env=CartPole", "preset=none", "trainer.eval_every=0", "trainer.eval_episodes=0", "logger=[]",
         "network.hidden=[8]", "trainer.log_every=50", "env.num_envs=2", "trainer.snapshot_every=80"]  # fmt: skip


def episodes(run: Path) -> list[Any]:
    found: list[Any] = []
    for part in sorted((run / "paths").iterdir()):
        found += minari.MinariDataset(part / "data").iterate_episodes()
    return found


def test_paths_hold_every_training_episode_once_after_a_resume(tmp_path: Path) -> None:
    words = [*WORDS, "callbacks=[paths,episodes]"]
    whole = rlrun.train(*words, "trainer.total_steps=320", run_dir=str(tmp_path / "whole"))
    half = rlrun.train(*words, "trainer.total_steps=160", run_dir=str(tmp_path / "half"))
    (half.path / "paths" / "step_000000200-v0" / "data").mkdir(parents=True)  # by a process that was then killed
    half.resume(total_steps=320)
    parts = [part.name for part in sorted((whole.path / "paths").iterdir())]
    assert parts == [f"step_{step:09}-v0" for step in (80, 160, 240, 320)]
    assert [part.name for part in sorted((half.path / "paths").iterdir())] == parts
    first, second = episodes(whole.path), episodes(half.path)
    assert len(first) == len(second) == whole.rows[-1]["train/episodes"]
    for one, other in zip(first, second, strict=True):
        for column in ("observations", "actions", "rewards", "terminations", "truncations"):
            assert np.array_equal(getattr(one, column), getattr(other, column)), column
    lengths = [line.split(",")[3] for line in (whole.path / "episodes.csv").read_text().splitlines()[1:]]
    assert [str(len(one.rewards)) for one in first] == lengths
    for one in first:
        assert (
            len(one.observations) == len(one.actions) + 1 and one.terminations[-1] and not one.terminations[:-1].any()
        )
        moved = np.abs(one.observations[1:, 0] - one.observations[:-1, 0] - 0.02 * one.observations[:-1, 1])
        assert moved.max() < 1e-6, "the position follows from the observation before"
    data = f"algo.loop.data=[{','.join(str(whole.path / 'paths' / part) for part in parts)}]"
    offline = rlrun.train(*WORDS, "algo.loop=offline", data, "trainer.total_steps=2", run_dir=str(tmp_path / "off"))
    assert offline.summary["status"] == "done"


def test_paths_change_nothing() -> None:
    check_callback("callbacks=[paths]")


def steps(first: list[list[int]], ended: list[list[int]], weight: list[list[int]]) -> list[Step]:
    """Returns the steps of two environments, whose observations and actions are the numbers of the steps."""
    found = []
    for time, (starts, ends, weights) in enumerate(zip(first, ended, weight, strict=True)):
        now = torch.full((2, 1), float(time))
        found.append({
            "obs": now, "next_obs": now + 1, "action": now, "executed": now, "reward": now[:, 0],
            "terminated": torch.tensor(ends, dtype=torch.bool), "truncated": torch.zeros(2, dtype=torch.bool),
            "weight": torch.tensor(weights), "first": torch.tensor(starts, dtype=torch.bool),
        })  # fmt: skip
    return found


def kept(found: list[Step], tmp_path: Path, resume_at: int | None = None) -> list[list[float]]:
    """Returns the rewards of each episode that the callback keeps."""
    paths: Any = Paths()
    run = SimpleNamespace(path=tmp_path, loop=SimpleNamespace(steps=0, env=SimpleNamespace(spec=Spec(None, None, 2))))
    paths.run = run
    paths.on_start()
    before: list[Any] = []
    for time, step in enumerate(found):
        if time == resume_at:
            state, before = paths.get_extra_state(), paths.episodes
            paths = Paths()
            paths.run = run
            paths.set_extra_state(state)
            paths.on_start()
        paths.on_step(step)
    return [episode["reward"].tolist() for episode in before + paths.episodes]


@pytest.mark.parametrize("resume_at", [None, 1, 3])
def test_paths_are_whole_episodes_without_masked_steps(resume_at: int | None, tmp_path: Path) -> None:
    first = [[1, 0], [0, 0], [1, 1], [0, 0], [0, 1], [0, 0]]  # environment 1 was in an episode when it began
    ended = [[0, 0], [1, 1], [0, 0], [0, 1], [0, 0], [1, 1]]
    weight = [[1, 1], [1, 1], [1, 1], [1, 1], [1, 0], [1, 1]]
    assert kept(steps(first, ended, weight), tmp_path, resume_at) == [[0.0, 1.0], [2.0, 3.0], [2.0, 3.0, 4.0, 5.0]]


def test_episode_that_the_loop_begins_anew_is_no_path(tmp_path: Path) -> None:
    first = [[1, 1], [0, 1], [0, 0]]
    ended = [[0, 0], [0, 0], [1, 1]]
    assert kept(steps(first, ended, [[1, 1]] * 3), tmp_path) == [[0.0, 1.0, 2.0], [1.0, 2.0]]


def test_rows_that_no_running_episode_needs_are_dropped(tmp_path: Path) -> None:
    paths: Any = Paths()
    paths.run = SimpleNamespace(
        path=tmp_path, loop=SimpleNamespace(steps=0, env=SimpleNamespace(spec=Spec(None, None, 2)))
    )
    paths.on_start()
    for step in steps([[1, 1], [0, 0], [1, 0]], [[0, 0], [1, 0], [0, 1]], [[1, 1]] * 3):
        paths.on_step(step)
    assert len(paths.rows) == 1 and paths.begun.tolist() == [0, -1]
