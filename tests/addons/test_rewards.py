"""The reward of training: the sum of all reward modules, for any loop and any coefficients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy, train

from rlrun.addons.goals.categorical import CategoricalGoals
from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.addon import RewardModule
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.settings import config, register
from rlrun.types import Batch, Metrics, Step

Build = Callable[..., Loop]


@register("intrinsic", "constant")
class Constant(Intrinsic):
    """The same reward for every step."""

    @config
    class Config(Intrinsic.Config):
        value: float

    def scale(self, reward: torch.Tensor) -> torch.Tensor:
        return reward

    def raw_reward(self, rows: Batch) -> torch.Tensor:
        return self.cfg.value * torch.ones_like(rows["weight"])

    def fit(self, rows: Batch) -> Metrics:
        return {}


@register("goals", "rewarded")
class RewardedGoals(CategoricalGoals, RewardModule):
    """A reward of 0.25 for every step."""

    def reward(self, step: Step) -> torch.Tensor:
        return 0.25 * torch.ones_like(step["weight"])


GOALS = {"name": "rewarded", "num_goals": 3}
BONUS = {
    "name": "constant", "value": 2.0, "gamma": 0.9, "separate": None, "episodic": True, "coef": 0.5,
    "reward_coef": 3.0, "clip": None, "network": None, "hidden": [4], "learning_rate": 0.01, "epochs": 1,
    "minibatch_size": None, "statistics": {"name": "all"}, "obs_statistics": {"name": "none"}, "obs_clip": 5.0,
}  # fmt: skip


@pytest.mark.parametrize("parts", [(GOALS, BONUS), (None, BONUS), (GOALS, None)], ids=["both", "bonus", "goals"])
@pytest.mark.parametrize("algo", ["sac", "td3", "dqn", "ppo", "a2c", "vtrace"])
def test_reward_sum_equals_its_closed_form(algo: str, parts: Any, build: Build) -> None:
    goals, bonus = parts
    bonus = bonus and bonus | {"separate": False}
    loop: Any = train(build(put(toy(algo), {"algo.goals": goals, "algo.intrinsic": bonus})), 2)
    raw = (
        loop.buffer.read(loop.batch["index"])["reward"][..., 0] if loop.buffer else torch.ones(8, 2)
    )  # the reward of CartPole is 1
    expected = (3.0 if bonus else 1.0) * raw + (0.25 if goals else 0) + (0.5 * 2.0 if bonus else 0)
    torch.testing.assert_close(loop.batch["reward"], expected)


def test_separate_bonus_is_a_column_beside_goal_rewards(build: Build) -> None:
    loop: Any = train(build(put(toy("ppo"), {"algo.goals": GOALS, "algo.intrinsic": BONUS})), 1)
    torch.testing.assert_close(loop.batch["reward"], torch.tensor([3.25, 2.0]).expand(8, 2, 2))


def test_n_step_returns_sum_the_bonus_of_each_step(build: Build) -> None:
    """DQN on CartPole with 3 steps and gamma 0.5: 1.75 * (3 + 0.25 + 1), or less if an episode ends before."""
    values = put(toy("dqn", **{"algo.n_step": 3, "algo.gamma": 0.5}), {"algo.goals": GOALS, "algo.intrinsic": BONUS})
    loop: Any = train(build(values), 4)
    lengths = {4.25 * total for total in (1.0, 1.5, 1.75)}
    assert {round(reward, 4) for reward in loop.batch["reward"].tolist()} <= lengths
    assert 4.25 * 1.75 in loop.batch["reward"].tolist()


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_shared_bonus_follows_its_coefficient(algo: str, build: Build) -> None:
    bonus = BONUS | {"separate": False, "coef": 1.0, "reward_coef": 0.0}
    falling = {"intrinsic": {"coef": {"linear": {"end": 0.0}}}}
    loop: Any = build(put(toy(algo), {"algo.intrinsic": bonus, "algo.schedule": falling}))
    for updates in range(1, 5):
        coef = loop.addons[0].coef.clone()
        train(loop, updates)
        assert (loop.batch["reward"] == 2 * loop.addons[0].coef).all()
    assert 0 < loop.addons[0].coef < coef < 1


def test_reward_normalisation_leaves_bonuses_unscaled(build: Build) -> None:
    values = put(toy("sac", **{"env.normalize.kind": "reward"}), {"algo.intrinsic": BONUS})
    loop: Any = train(build(values), 2)
    stored = loop.buffer.all()
    own = loop.addons[0].relabel({"reward": stored["reward"][:, 0]})["reward"]
    torch.testing.assert_close(loop.addons.relabel(stored)["reward"], 3 * own + 1.0)


@pytest.mark.parametrize("part", ["icm", "rnd"])
@pytest.mark.parametrize("algo", ["sac", "td3", "dqn"])
def test_shared_bonus_stores_raw_rewards_and_scales_on_read(algo: str, part: str, build: Build) -> None:
    loop: Any = build(put(toy(algo), {"algo.intrinsic": toy(f"ppo_{part}")["algo"]["intrinsic"]}))
    bonus, raw_rewards = loop.addons[0], []
    reward = bonus.reward

    def recorded(batch: Batch) -> torch.Tensor:
        raw_rewards.append(reward(batch))
        return raw_rewards[-1]

    bonus.reward = recorded
    train(loop, 3)
    stored = loop.buffer.all()["reward"]
    torch.testing.assert_close(stored[:, 1].view(-1, 2), torch.stack(raw_rewards)[-len(stored) // 2 :])
    assert (stored[:, 1] > 0).all()
    std = bonus.model.statistics.live.var.sqrt()
    batch = loop.addons.relabel(loop.buffer.all())
    expected = stored[:, 0] + 0.5 * stored[:, 1] / std
    torch.testing.assert_close(batch["reward"].double(), expected.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("part", ["icm", "rnd"])
def test_intrinsic_reward_of_replayed_steps_falls(part: str, build: Build) -> None:
    values = toy(f"ppo_{part}")["algo"]["intrinsic"] | {"learning_rate": 0.01, "network": None, "hidden": [32]}
    loop: Any = train(build(put(toy("dqn", **{"algo.buffer.capacity": 64}), {"algo.intrinsic": values})), 1)
    bonus = loop.addons[0]

    def mean_reward() -> torch.Tensor:
        stored = loop.addons.relabel(loop.buffer.all())
        rows = bonus.model.preprocess(stored)
        return bonus.model.raw_reward(rows).mean()

    before = mean_reward()
    for _ in range(300):
        loop.addons.update(loop.addons.relabel(loop.buffer.sample(32)), loop.context())
    assert mean_reward() < 0.3 * before


@pytest.mark.parametrize(
    ("algo", "changes", "fault"),
    [
        ("sac", {"separate": True}, "algo.intrinsic.separate=true: only on-policy"),
        (
            "ppo",
            {"coef": {"name": "linear", "start": 0.5, "end": 0.0}},
            "algo.schedule.intrinsic.coef: needs algo.intrinsic.separate=false",
        ),
        ("rainbow", {}, "algo.n_step=3: must be 1 with algo.intrinsic=icm"),
    ],
)
def test_intrinsic_refuses_unsupported_settings(algo: str, changes: Any, fault: str, build: Build) -> None:
    with pytest.raises(ConfigError, match=fault):
        build(put(toy(algo), {"algo.intrinsic": toy("ppo_icm")["algo"]["intrinsic"] | changes}))


def test_demonstrations_loop_refuses_goals(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo\.loop=demonstrations"):
        build(put(toy("ppo_demos"), {"algo.goals": GOALS}))
