"""The callback `imagination` shows imagined beside real trajectories."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import rlrun
from rlrun.callbacks.imagination import Imagination, drawn
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.errors import RunError
from rlrun.run.assemble import build_loop

WORDS = [
    "env=Pendulum", "preset=none", "env.selftest=off", "algo.planner.candidates=4", "algo.planner.elites=2",
    "algo.planner.horizon=2", "algo.planner.iterations=1", "logger=[]", "callbacks=[imagination]",
    "trainer.eval_max_steps=2",
]  # fmt: skip


def of_run(*words: str, steps: int = 5) -> tuple[Any, Imagination]:
    """Returns a loop of algo=mpc, whose model is the environment itself, and the callback with what it shows."""
    loop: Any = build_loop(run_config(jobs(["algo=mpc", *WORDS, *words])[0].values))
    loop.begin()
    callback = Imagination(Imagination.Config(every=1, steps=steps))
    callback.run = SimpleNamespace(loop=loop, media=lambda *shown: None)  # type: ignore[assignment]
    callback.on_start()
    return loop, callback


def taken(loop: Any, callback: Imagination, count: int) -> None:
    for _ in range(count):
        for step, _ in loop.collector.collect(1, loop.agent):
            callback.on_step(step)


@pytest.mark.parametrize("words", [(), ("env.num_envs=2",)])
def test_the_equations_of_an_environment_imagine_what_it_does(words: tuple[str, ...], monkeypatch: Any) -> None:
    loop, callback = of_run(*words)
    pictures: list[Any] = []
    monkeypatch.setattr("rlrun.callbacks.imagination.drawn", lambda *curves: pictures.append(curves) or drawn(*curves))
    callback.on_evaluation({})
    assert not pictures, "there is no trajectory yet"
    taken(loop, callback, 7)
    callback.on_evaluation({})
    ((real, imagined),) = pictures
    assert real[0].shape == (6, 3) and real[1].shape == (5,)
    assert imagined[0].shape == (6, 1, 3) and imagined[1].shape == (5, 1)
    torch.testing.assert_close(imagined[0][:, 0], real[0], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(imagined[1][:, 0], real[1], atol=1e-3, rtol=1e-3)


def test_a_trajectory_ends_with_its_episode() -> None:
    loop, callback = of_run("env.max_episode_steps=3")
    taken(loop, callback, 4)
    assert len(callback.trajectory) == 3 and len(callback.steps) == 1
    assert callback.trajectory[-1]["truncated"]


def test_pictures_are_stored_after_every_nth_evaluation(tmp_path: Path) -> None:
    own = [
        "algo=mbrl",
        "total_steps=40",
        "trainer.eval_every=10",
        "trainer.eval_episodes=1",
        "trainer.eval_max_steps=2",
    ]
    words = [
        *own,
        *WORDS[:-2],
        "trainer.eval_max_steps=2",
        "algo.loop.warmup_steps=10",
        "algo.loop.batch_size=9",
        "env.normalize=obs",
    ]
    rlrun.train(*words, "callbacks=[{name: imagination, every: 2, steps: 5}]", f"run_dir={tmp_path / 'run'}")
    assert len([*(tmp_path / "run/media").rglob("*imagination*.png")]) == 2


def test_runs_without_a_model_are_refused(tmp_path: Path) -> None:
    fault = "exit code 2: callbacks: imagination: needs algo=mbrl or algo=mpc"
    with pytest.raises(RunError, match=fault):
        rlrun.train("algo=sac", "env=Pendulum", "env.selftest=off", *WORDS[-3:], f"run_dir={tmp_path / 'run'}")
