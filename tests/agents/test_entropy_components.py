"""Entropy coefficients of actions with several parts: one for every component, each with its own target."""

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from toys import put, toy, train

from rlrun.agents.entropy.components import Components, default_targets, entropy_components
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.core.state import Optim
from rlrun.envs.stepping.actions import conversion
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Categorical, Independent, Joint, Normal, SquashedNormal
from rlrun.settings import registry
from rlrun.spaces import JoinedChoices, MixedSpace
from rlrun.types import Info

Build = Callable[..., Loop]
SPACE = MixedSpace({"gear": MultiDiscrete([3]), "force": Box(-1.0, 1.0, (2,))})
PROBE = {"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"action": "tuple"}}  # components: the Box "0", the choice "1"
RULES = {
    "name": "staged", "max_entropy": 9.0, "initial_alpha": 0.01, "min_alpha": 1e-4, "skip_free_stage": False,
    "very_slow_rate": 0.001, "slow_rate": 0.002, "fast_rate": 0.5, "average_window": 1,
}  # fmt: skip
SLOPE = {"name": "sgd", "initial_alpha": 0.1, "learning_rate": 0.01, "window": 1}


@pytest.mark.parametrize("values", [RULES, SLOPE], ids=["staged", "sgd"])
def test_two_components_with_different_target_entropies_both_settle(values: dict[str, Any]) -> None:
    """Rewards 1, 0, 0 for the choices, minus the squared force; exact gradients of reward + sum of alpha H."""
    targets = {"gear": 0.5, "force": -1.0}
    coefficients = {
        name: registry.build("entropy", values | {"target_entropy": target}, 0.0) for name, target in targets.items()
    }
    entropy: Any = Components(coefficients, SPACE.columns)
    logits, log_std = torch.nn.Parameter(torch.zeros(1, 1, 3)), torch.nn.Parameter(torch.zeros(1, 2))
    optim, seen = Optim([logits, log_std], 0.05), []
    for _ in range(800):
        policy = Joint(Independent(Categorical(logits)), Normal(torch.zeros(1, 2), log_std))
        entropy.adjust(entropy.entropy_of(policy).detach(), torch.ones(1))
        bonus, _ = entropy.bonus(policy, torch.ones(1))
        expected_reward = logits.softmax(-1)[0, 0, 0] - (2 * log_std).exp().sum()
        optim.step(-(expected_reward + bonus))
        seen.append(entropy.entropy_of(policy).detach()[0])
    settled = torch.stack(seen[-200:]).mean(0).tolist()
    assert settled == pytest.approx([0.5, -1.0], abs=0.1)


def test_bonus_sums_the_weighted_entropies_of_the_components() -> None:
    fixed = {name: registry.build("entropy", {"name": "fixed", "ent_coef": coef}, 0.0) for name, coef in COEFS.items()}
    entropy: Any = Components(fixed, SPACE.columns)
    discrete = Independent(Categorical(torch.randn(4, 1, 3)))
    continuous = Normal(torch.randn(4, 2), torch.randn(4, 2))
    weight = torch.tensor([1.0, 0.0, 1.0, 1.0])
    bonus, total = entropy.bonus(Joint(discrete, continuous), weight)
    by_hand = 0.3 * discrete.entropy() + 0.1 * continuous.entropy()
    torch.testing.assert_close(bonus, (by_hand * weight).sum() / 3)
    torch.testing.assert_close(total, ((discrete.entropy() + continuous.entropy()) * weight).sum() / 3)
    log_prob = torch.randn(4, 2)
    torch.testing.assert_close(entropy.cost(log_prob), 0.3 * log_prob[:, 0] + 0.1 * log_prob[:, 1])


COEFS = {"gear": 0.3, "force": 0.1}


@pytest.mark.parametrize("algo", ["ppo", "a2c", "vtrace", "sac"])
def test_agents_adjust_a_coefficient_for_every_component(algo: str, build: Build) -> None:
    values = SLOPE | {"target_entropy": {"0": 100.0, "1": -100.0}}
    loop: Any = build(put(toy(algo, **PROBE), {"algo.entropy": values}))
    before, rows = loop.agent.entropy.alpha, []
    while loop.updates < 4:
        rows.append(loop.tick())
    choice, continuous = (loop.agent.entropy.alpha - before).tolist()
    assert continuous > 0 > choice  # the vector begins with the choice
    names = ("loss/alpha_0", "loss/alpha_1", "loss/entropy_0", "loss/entropy_1", "loss/entropy")
    assert set(names) <= rows[-1].keys()


def test_fixed_coefficient_weights_the_joint_entropy_of_mixed_actions(build: Build) -> None:
    loop: Any = build(toy("ppo", **PROBE, **{"algo.entropy.ent_coef": 0.3}))
    assert loop.agent.entropy.alpha.tolist() == pytest.approx([0.3, 0.3])
    assert "loss/entropy_0" not in train(loop, 1).tick()


@pytest.mark.parametrize(
    ("given", "expected"), [(1.5, [1.5, 1.5]), ([0.9, 2.0], [0.9, 2.0]), ({"1": 0.9, "0": 2.0}, [0.9, 2.0])]
)
def test_maximum_entropies_are_one_number_or_one_for_every_component(
    given: Any, expected: list[float], build: Build
) -> None:
    values = RULES | {"target_entropy": -9.0, "max_entropy": given}
    entropy: Any = build(put(toy("ppo", **PROBE), {"algo.entropy": values})).agent.entropy
    assert [float(one.max_entropy) for one in entropy.coefficients] == pytest.approx(expected)


def test_components_have_default_targets_of_their_own() -> None:
    assert default_targets(SPACE, {}) == pytest.approx(
        {"gear": default_targets(MultiDiscrete([3]), {}), "force": 2 * -1.609438}
    )


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("[1.0]", r"target_entropy=\[1.0\]: must be one number, a list of 2, or numbers by name.*: 1, 0"),
        ("{gear: 1.0}", r"target_entropy=\{'gear': 1.0\}: must be one number, a list of 2, or numbers by name"),
    ],
)
def test_targets_that_do_not_fit_the_components_are_refused(given: str, fault: str, build: Build) -> None:
    words = ["algo=sac", "env=rlrun/ProbeSpaces-v0", "env.kwargs.action=tuple", f"algo.entropy.target_entropy={given}"]
    with pytest.raises(ConfigError, match=fault):
        build(jobs(words)[0].values)


def test_several_targets_are_refused_for_an_action_of_one_component(build: Build) -> None:
    words = ["algo=sac", "env=Pendulum", "preset=none", "algo.entropy.target_entropy=[-1,-2]"]
    with pytest.raises(ConfigError, match=r"target_entropy=\[-1, -2\]: must be one number or null"):
        build(jobs(words)[0].values)


class Pull(gym.Env):
    """One step; the reward is minus the squared action, which is a Dict of two Boxes."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Dict({"arm": Box(-1.0, 1.0, (2,), np.float32), "grip": Box(-1.0, 1.0, (1,), np.float32)})

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        return np.zeros(1, np.float32), -float(sum((part**2).sum() for part in action.values())), True, False, {}


BOXES = Pull.action_space
CHOICES = Dict({"gear": Discrete(3), "light": MultiDiscrete([2, 2])})
AUTO = {"name": "auto", "initial_alpha": 0.1, "max_alpha": None, "learning_rate": 0.01}


@pytest.mark.parametrize("values", [RULES, SLOPE, AUTO], ids=["staged", "sgd", "auto"])
def test_two_boxes_with_different_target_entropies_both_settle(values: dict[str, Any], build: Build) -> None:
    """Gradients of SAC: the reward is minus the squared action, and `cost` is alpha log pi of both parts."""
    targets = {"arm": -1.0, "grip": 0.5}
    loop: Any = build(pulling("sac", {"algo.entropy": values | {"target_entropy": targets}}))
    entropy = loop.agent.entropy
    log_std = torch.nn.Parameter(torch.zeros(1, 3))
    mean, ones = torch.zeros(256, 3), torch.ones(256)
    optim, seen = Optim([log_std], 0.05), []
    for _ in range(500):
        policy = SquashedNormal(mean, log_std.expand(256, 3))
        action, log_prob = entropy.sample(policy, torch.randn(256, 3))
        entropy.adjust(-log_prob.detach(), ones)
        optim.step((entropy.cost(log_prob) + (action**2).sum(-1)).mean())
        seen.append(-log_prob.detach().mean(0))
    assert torch.stack(seen[-200:]).mean(0).tolist() == pytest.approx([-1.0, 0.5], abs=0.1)


def test_log_probabilities_of_two_boxes_are_those_of_each_part(build: Build) -> None:
    loop: Any = build(pulling("sac", {"algo.entropy": AUTO | {"target_entropy": [-1.0, 0.5]}}))
    mean, log_std = 0.3 * torch.randn(2, 8, 3)
    action, log_prob = loop.agent.entropy.sample(SquashedNormal(mean, log_std), torch.randn(8, 3))
    for i, columns in enumerate((slice(0, 2), slice(2, 3))):
        part = SquashedNormal(mean[:, columns], log_std[:, columns])
        torch.testing.assert_close(log_prob[:, i], part.log_prob(action[:, columns]), atol=1e-3, rtol=1e-3)


def pulling(algo: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Returns a small run of an algorithm whose action is a Dict of two Boxes."""
    if "test/Pull-v0" not in gym.registry:
        gym.register("test/Pull-v0", Pull)
    return put(toy(algo, **{"env.id": "test/Pull-v0", "env.kwargs": {}}), changes)


@pytest.mark.parametrize("algo", ["ppo", "a2c_split", "sac", "tqc", "oac"])
def test_agents_adjust_a_coefficient_for_each_of_two_boxes(algo: str, build: Build) -> None:
    values = SLOPE | {"target_entropy": {"arm": 100.0, "grip": -100.0}}
    loop: Any = build(pulling(algo, {"algo.entropy": values}))
    before, rows = loop.agent.entropy.alpha, []
    while loop.updates < 4:
        rows.append(loop.tick())
    arm, grip = (loop.agent.entropy.alpha - before).tolist()
    assert arm > 0 > grip
    names = ("loss/alpha_arm", "loss/alpha_grip", "loss/entropy_arm", "loss/entropy_grip")
    assert set(names) <= rows[-1].keys()


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_one_target_for_two_boxes_is_that_of_the_whole_action(algo: str, build: Build) -> None:
    loop: Any = build(pulling(algo, {"algo.entropy": AUTO | {"target_entropy": None}}))
    assert not isinstance(loop.agent.entropy, Components)
    assert loop.agent.entropy.target == {"ppo": pytest.approx(3 * math.log(0.2)), "sac": -3.0}[algo]
    given = AUTO | {"target_entropy": {"arm": 0.25}}
    loop = build(pulling(algo, {"algo.entropy": given}))
    targets = [float(one.target) for one in loop.agent.entropy.coefficients]
    assert targets == pytest.approx([0.25, {"ppo": math.log(0.2), "sac": -1.0}[algo]])


def test_entropies_of_choices_of_one_kind_are_those_of_each_part() -> None:
    space = conversion(CHOICES).space
    assert isinstance(space, JoinedChoices) and space == MultiDiscrete([3, 2, 2])
    values = {"target_entropy": [0.1, 0.2]}
    assert entropy_components(space, {}) == {}
    assert entropy_components(space, values) == {"gear": MultiDiscrete([3]), "light": MultiDiscrete([2, 2])}
    policy = Independent(Categorical(torch.randn(4, 3, 3)))
    entropy: Any = Components(
        {name: registry.build("entropy", SLOPE | {"target_entropy": 0.0}, 0.0) for name in space.parts}, space.columns
    )
    found = entropy.entropy_of(policy)
    torch.testing.assert_close(found[:, 0], policy.decisions.entropy()[:, 0])
    torch.testing.assert_close(found.sum(-1), policy.entropy())


@pytest.mark.parametrize(
    ("algo", "changes", "fault"),
    [
        ("sac", {"target_entropy": [1.0]}, r"target_entropy=\[1.0\]: must be one number, a list of 2.*: arm, grip"),
        ("crossq", {"target_entropy": [1.0, 2.0]}, r"target_entropy=\[1.0, 2.0\]: must be one number or null"),
        ("kl_sac", {"target_entropy": [1.0, 2.0]}, r"target_entropy=\[1.0, 2.0\]: must be one number or null"),
    ],
)
def test_targets_of_two_boxes_are_refused_where_they_do_not_fit(
    algo: str, changes: dict[str, Any], fault: str, build: Build
) -> None:
    with pytest.raises(ConfigError, match=fault):
        build(pulling(algo, {"algo.entropy": AUTO | changes}))


def test_entropy_rewards_of_two_boxes_have_a_mean_for_each(build: Build) -> None:
    values = {"algo.entropy": AUTO | {"target_entropy": [-1.0, 0.5]}}
    centred = {"algo.entropy_reward": {"name": "bootstrap", "normalize": True}}
    loop: Any = train(build(pulling("sac", values | centred)), 3)
    assert loop.agent.entropy_reward.mean.shape == (2,) and loop.agent.entropy_reward.mean.all()
    every_step = {"algo.entropy_reward": {"name": "every_step", "normalize": False}}
    with pytest.raises(ConfigError, match=r"every_step: needs one entropy coefficient for the whole action"):
        build(pulling("sac", values | every_step))
