"""Sparse rewards: agents with novelty rewards or with one demonstration find them; PPO does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import key_door
import pytest
import torch
from toys import put

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.datasets.demonstrations import write

Build = Callable[..., Loop]

SIZE, STEPS = 12, 60_000  # random play finds the treasure once in 49,000 steps
SETTINGS = {
    "algo.learning_rate": 1e-3, "algo.epochs": 4, "algo.minibatch_size": 320, "algo.loop.rollout_steps": 28,
    "trainer.total_steps": STEPS,
}  # fmt: skip


def deep_sea(build: Build, algo: str, **changes: Any) -> Any:
    words = [f"algo={algo}", "env=DeepSea", f"env.kwargs.size={SIZE}", "env.num_envs=32"]
    return build(put(jobs(words)[0].values, SETTINGS | changes))


def finds(loop: Any, steps: int = STEPS) -> float:
    """Returns the fraction of episodes in the last tenth of the steps that found the treasure."""
    while loop.steps < steps:
        if loop.steps < 0.9 * steps:
            loop.metrics.episodes = []
        loop.tick()
    share = sum(episode.success for episode in loop.metrics.episodes) / len(loop.metrics.episodes)
    print(f"{share:.3f}")
    return share


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("algo", "least", "most"), [("ppo_rnd", 0.8, 1.0), ("ppo_icm", 0.8, 1.0), ("ppo", 0.0, 0.05)])
def test_the_curious_find_the_treasure_and_ppo_does_not(
    algo: str, least: float, most: float, seed: int, build: Build
) -> None:
    assert least <= finds(deep_sea(build, algo, seed=seed)) <= most


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_demonstration_is_enough(seed: int, build: Build, tmp_path: Path) -> None:
    loop = deep_sea(build, "ppo_demos")
    right = loop.env.pool.slots[0].unwrapped.right
    depth = torch.arange(SIZE + 1)
    demo = {"obs": depth * SIZE + depth.clamp(max=SIZE - 1), "action": torch.from_numpy(right.diagonal().copy()),
            "reward": torch.full((SIZE,), -0.01 / SIZE), "terminated": True}  # fmt: skip
    demo["reward"][-1] += 1
    write(tmp_path / "shown-v0", [demo], loop.env)
    shown = {"algo.buffer.given": str(tmp_path / "shown-v0"), "algo.buffer.rho": 0.3, "algo.buffer.phi": 0.0}
    assert finds(deep_sea(build, "ppo_demos", seed=seed, **shown)) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_one_demonstration_opens_the_door_that_ppo_does_not(seed: int, build: Build, tmp_path: Path) -> None:
    values = jobs(["algo=ppo_demos", "env=KeyDoor"])[0].values
    key_door.main(str(tmp_path / "key-door-v0"))
    shown = build(put(values, {"seed": seed, "algo.buffer.given": str(tmp_path / "key-door-v0")}))
    assert finds(shown, 100_000) >= 0.9
    ppo = build(put(values, {"seed": seed, "algo.buffer.rho": 0.0, "algo.buffer.phi": 0.0}))
    assert finds(ppo, 100_000) < 0.1
