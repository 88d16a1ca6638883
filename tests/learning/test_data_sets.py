"""Learning from data sets: cloning a controller, IQL against cloning of a mixture, and a head start for SAC."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import put

from rlrun.buffers.demo_lines import episode
from rlrun.buffers.rollout import Rollout
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.datasets.demonstrations import write
from rlrun.nested import index
from rlrun.report.statistics import iqm
from rlrun.run.evaluation import evaluate

SEEDS = range(1, 6)


def controlled(loop: Any, episodes: int) -> Iterator[dict[str, Any]]:
    """Episodes of CartPole under a hand-written controller: push towards where the pole falls, and to the middle."""
    gains = torch.tensor([0.1, 0.3, 1.0, 0.3])
    obs = loop.env.reset()
    for _ in range(episodes):
        rollout, done = Rollout(loop.env.spec), False
        while not done:
            action = (obs @ gains > 0).long()
            step, _ = loop.env.step(action)
            done = bool(step["terminated"] | step["truncated"])
            rollout.add(step | {"obs": obs, "action": action, "first": step["terminated"]})
            obs = step["following"]
        yield episode(index(rollout.batch(), (slice(None), 0)))


@pytest.mark.slow
def test_a_clone_of_a_controller_balances_the_pole(build: Callable[..., Loop], tmp_path: Path) -> None:
    values = jobs(["algo=bc", "env=CartPole"])[0].values
    demos = [*controlled(build(values, begin=False), 50)]
    assert all(len(demo["reward"]) == 500 for demo in demos)
    loop: Any = build(values, begin=False)
    write(tmp_path / "controller-v0", demos, loop.env)
    loop = build(put(values, {"algo.loop.data": str(tmp_path / "controller-v0")}))
    while loop.steps < 3000:
        loop.tick()
    assert evaluate(loop.agent, loop.addons, loop.env, 20)["eval/return_mean"] >= 475


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
