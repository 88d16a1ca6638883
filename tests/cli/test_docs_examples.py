"""The example files of the documentation run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

import rlrun
from rlrun.agents.actor_critic.sac import SAC
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.testing import check_algorithm, check_network

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
EXAMPLE = EXAMPLES / "neural_agent.py"
NETWORK = EXAMPLES / "image_and_vector.py"
SEEN = Dict(image=Box(0, 255, (16, 16, 3), np.uint8), vector=Box(-1.0, 1.0, (2,)))


class Seen(gym.Env):
    """Random images and vectors, and mixed actions."""

    observation_space = SEEN
    action_space = Dict(grip=Discrete(3), force=Box(-2.0, 2.0, (2,)))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        return self._observation(), 0.0, False, False, {}

    def _observation(self):
        image = self.np_random.integers(0, 256, (16, 16, 3), np.uint8)
        return {"image": image, "vector": self.np_random.uniform(-1, 1, 2).astype(np.float32)}


def test_neural_agent_of_the_documentation_fulfils_the_contract() -> None:
    check_algorithm(f"algo={EXAMPLE}", "env=LinearBandit")


def test_neural_agent_of_the_documentation_finds_the_best_arms(tmp_path: Path) -> None:
    words = [f"algo={EXAMPLE}", "env=LinearBandit", "env.num_envs=4", "trainer.eval_every=0", "trainer.log_every=400"]
    run = rlrun.train(*words, "network.hidden=[32]", "logger=[]", total_steps=2000, run_dir=str(tmp_path / "run"))
    first, *_, last = [row["train/regret"] for row in run.rows]
    assert last < 0.5 * first


def test_small_dqn_of_the_documentation_fulfils_the_contract() -> None:
    check_algorithm(f"algo={EXAMPLES / 'small_dqn.py'}", "env=CartPole")


def test_munchausen_sac_of_the_documentation_fulfils_the_contract() -> None:
    check_algorithm(f"algo={EXAMPLES / 'munchausen_sac.py'}", "env=Pendulum")


def test_munchausen_sac_of_the_documentation_adds_its_bonus_to_the_reward(build: Callable[..., Loop]) -> None:
    (job,) = jobs([f"algo={EXAMPLES / 'munchausen_sac.py'}", "env=Pendulum", "network.hidden=[8]"])
    agent: Any = build(job.values).agent
    batch = {
        "obs": torch.randn(5, 3), "next_obs": torch.randn(5, 3), "action": torch.rand(5, 1) * 2 - 1,
        "reward": torch.randn(5), "n_steps": torch.ones(5), "terminated": torch.zeros(5), "weight": torch.ones(5),
    }  # fmt: skip
    noise = torch.randn(5, 1)
    with torch.no_grad():
        bonus = (agent.entropy.alpha * agent.actor(batch["obs"]).log_prob(batch["action"])).clamp(-1.0, 0.0)
        plain = SAC.target_q(agent, batch, noise, agent.target_critic)
        target = agent.target_q(batch, noise, agent.target_critic)
    torch.testing.assert_close(target, plain + 0.9 * bonus)
    assert (bonus < 0).any()


def test_network_for_images_and_vectors_of_the_documentation_fulfils_the_contract() -> None:
    check_network(f"network={NETWORK}", "network.units=8", obs=SEEN)


@pytest.mark.parametrize(
    ("algo", "settings"),
    [
        ("ppo", ["algo.loop.rollout_steps=4", "env.num_envs=2"]),
        ("sac", ["algo.loop.warmup_steps=8", "algo.loop.batch_size=4"]),
    ],
)
def test_network_for_images_and_vectors_learns_mixed_actions(
    algo: str, settings: list[str], build: Callable[..., Loop]
) -> None:
    words = [f"algo={algo}", f"env={__file__}:Seen", f"network={NETWORK}", "trainer.engine=eager", *settings]
    (job,) = jobs([*words, "env.max_episode_steps=5", "env.selftest=off"])
    loop = build(job.values)
    loop.begin()
    while loop.updates < 2:
        loop.tick()
    critics = [name for name, _ in loop.agent.named_parameters() if "networks.1.convolutions.0.weight" in name]
    assert bool(critics) == (algo == "sac")  # its second critic has convolutions of its own
