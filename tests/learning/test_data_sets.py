"""Learning from data sets: cloning a controller, IQL against cloning of a mixture, and a head start for SAC."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.report.statistics import iqm
from rlrun.run.evaluation import evaluate
from rlrun.settings import config, register

SEEDS = range(1, 6)


@pytest.mark.slow
def test_a_clone_of_a_controller_balances_the_pole(build: Callable[..., Loop], tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "controller-v0"
    assert main(["train", "algo=scripted", "env=CartPole", "total_steps=128", f"run_dir={run}"]) == 0
    assert main(["eval", str(run), "episodes=50", f"record={data}"]) == 0
    loop: Any = build(jobs(["algo=bc", "env=CartPole", f"algo.loop.data={data}"])[0].values)
    while loop.steps < 3000:
        loop.tick()
    assert evaluate(loop.agent, loop.addons, loop.env, 20)["eval/return_mean"] >= 475


@register("wrapper", "test_controlled")
class Controlled(gym.Wrapper):
    """CartPole that acts by its controller, and ignores the actions that it gets."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)

    def reset(self, **options: Any) -> Any:
        self.obs, info = self.env.reset(**options)
        return self.obs, info

    def step(self, action: Any) -> Any:
        taken = int(self.obs @ [0.1, 0.3, 1.0, 0.3] > 0)
        self.obs, reward, terminated, truncated, info = self.env.step(taken)
        return self.obs, reward, terminated, truncated, info | {"taken": taken}


@pytest.mark.slow
def test_a_controller_inside_of_the_environment_is_cloned(build: Callable[..., Loop], tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "controlled-v0"
    inside = ["env=CartPole", "env.wrappers={test_controlled:{}}", "env.executed_action=taken"]
    assert main(["train", "algo=dqn", *inside, "total_steps=128", f"run_dir={run}"]) == 0
    assert main(["eval", str(run), "episodes=50", f"record={data}"]) == 0
    loop: Any = build(jobs(["algo=bc", *inside, f"algo.loop.data={data}"])[0].values)
    while loop.steps < 3000:
        loop.tick()
    uncontrolled = build(jobs(["algo=nop", "env=CartPole"])[0].values, begin=False).env
    assert evaluate(loop.agent, loop.addons, uncontrolled, 20)["eval/return_mean"] >= 475


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns data sets with 20 episodes of SAC after 10,000 steps, and 80 before its first update."""
    home = tmp_path_factory.mktemp("data")
    words = ["algo=sac", "env=Pendulum", "trainer.total_steps=10000", "trainer.snapshot_archive_every=1000"]
    assert main(["train", *words, "trainer.snapshot_every=1000", f"run_dir={home / 'run'}"]) == 0
    first, last = (home / "run" / "snapshots" / f"step_{step:09}" for step in (1_000, 10_000))
    assert main(["eval", str(last), "episodes=20", "seed=100", f"record={home / 'expert-v0'}"]) == 0
    assert main(["eval", str(first), "episodes=80", "seed=102", "explore=true", f"record={home / 'random-v0'}"]) == 0
    return home


def returns(folder: Path, *words: str) -> list[float]:
    """Returns the final return of every seed."""
    found = []
    for seed in SEEDS:
        run = folder / f"{words[0].partition('=')[2]}-{seed}"
        assert (
            main(["train", *words, "env=Pendulum", f"seed={seed}", "trainer.eval_episodes=20", f"run_dir={run}"]) == 0
        )
        found.append(json.loads((run / "summary.json").read_text())["final_return"])
    return found


@pytest.mark.slow
def test_iql_makes_more_of_a_mixture_than_cloning(data: Path, tmp_path: Path) -> None:
    mixture = f"algo.loop.data=[{data / 'expert-v0'},{data / 'random-v0'}]"
    learned = returns(tmp_path, "algo=iql", mixture)
    cloned = returns(tmp_path, "algo=bc", mixture, "network.hidden=[64,64]", "trainer.total_steps=8000")
    print(learned, cloned)
    assert min(learned) > max(cloned)


@pytest.mark.slow
def test_a_data_set_gives_sac_a_head_start(data: Path, tmp_path: Path) -> None:
    """Both collect 5,000 transitions; the run with data first has 2,000 more updates."""
    shown = returns(tmp_path, "algo=sac_from_data", f"algo.loop.data={data / 'expert-v0'}")
    alone = returns(tmp_path, "algo=sac", "trainer.total_steps=5000")
    print(shown, alone)
    assert iqm(shown) > iqm(alone)
