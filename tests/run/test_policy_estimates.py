"""Values, Q-values and distributions of a policy, in the observations and actions of the environment."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Tuple

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.envs.stepping.actions import leaves
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_loop
from rlrun.run.policy import Policy

PENDULUM = ("env=Pendulum", "preset=none", "network=linear", "env.num_envs=2", "trainer.engine=eager")
CARTPOLE = ("env=CartPole", *PENDULUM[1:])
OBS = np.array([0.6, 0.8, -2.0], np.float32)


def built(*words: str) -> tuple[Policy, Loop]:
    (job,) = jobs([*words])
    loop = build_loop(run_config(job.values))
    loop.env.close()
    return Policy(loop.agent, loop.addons, loop.env.spec, loop.env.device), loop


def set_linear(layer: Any, weight: Any, bias: Any) -> None:
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(weight).view_as(layer.weight))
        layer.bias.copy_(torch.as_tensor(bias).view_as(layer.bias))


def test_value_and_density_of_ppo_are_those_of_the_raw_observation_and_action() -> None:
    policy, loop = built("algo=ppo", *PENDULUM, "env.normalize=obs")
    agent: Any = loop.agent
    statistics: Any = loop.addons[0].statistics
    for _ in range(3):
        statistics.add(torch.tensor([[1.0, 0.0, 4.0], [0.0, 1.0, -4.0]]))
    statistics.publish()
    seen = loop.addons[0].normalise(torch.as_tensor(OBS)).numpy()
    assert not np.allclose(seen, OBS)
    set_linear(agent.critic.network.output, [1.0, 2.0, 3.0], 0.5)
    set_linear(agent.policy.output, [0.1, 0.2, 0.0], 0.0)
    value = policy.value(OBS)
    assert value.shape == () and value == pytest.approx(seen @ [1, 2, 3] + 0.5, rel=1e-5)
    assert policy.value(np.stack([OBS, -OBS])).shape == (2,)

    dist = policy.distribution(OBS)
    mean, std = 2 * (seen @ [0.1, 0.2, 0.0]), 2 * math.exp(float(agent.policy.log_std.detach()))  # torques in [-2, 2]
    density = -0.5 * ((1.5 - mean) / std) ** 2 - math.log(std) - 0.5 * math.log(2 * math.pi)
    assert float(dist.log_prob(np.array([1.5]))) == pytest.approx(density, rel=1e-5)
    assert float(dist.entropy()) == pytest.approx(0.5 + 0.5 * math.log(2 * math.pi) + math.log(std), rel=1e-5)
    assert dist.mode() == policy.act(OBS)  # type: ignore[comparison-overlap]
    assert policy.action_space.contains(dist.sample())


def test_q_of_sac_is_the_mean_of_its_critics_and_its_entropy_is_estimated() -> None:
    policy, loop = built("algo=sac", *PENDULUM)
    agent: Any = loop.agent
    set_linear(agent.critic.output, [[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 4.0]], [0.5, 1.5])
    q = policy.q(np.stack([OBS, OBS]), np.array([[1.0], [-2.0]]))  # half and the whole of the largest torque
    assert q == pytest.approx([(0.6 + 1 + 0.5 + 0.8 + 2 + 1.5) / 2, (0.6 - 2 + 0.5 + 0.8 - 4 + 1.5) / 2], rel=1e-5)
    set_linear(agent.actor.output, np.zeros((3, 2)), [0.3, -1.0])
    dist = policy.distribution(OBS)
    torque = np.linspace(-1.9999, 1.9999, 20_001)
    log_prob = policy.distribution(np.tile(OBS, (len(torque), 1))).log_prob(torque[:, None])
    density = np.exp(log_prob)
    width = torque[1] - torque[0]
    assert density.sum() * width == pytest.approx(1, abs=1e-3), "a density over the torques of the environment"
    assert float(dist.entropy()) == pytest.approx(-(density * log_prob).sum() * width, abs=0.05)
    with pytest.raises(ConfigError, match=r"^algo=sac has no value; it has q\(obs, action\) and distribution\(obs\)$"):
        policy.value(OBS)
    with pytest.raises(ValueError, match=r"^q\(obs\) needs Discrete actions, not Box.*; call q\(obs, action\)$"):
        policy.q(OBS)
    with pytest.raises(ValueError, match=r"^2 actions for 3 observations$"):
        policy.q(np.stack([OBS] * 3), np.zeros((2, 1)))


def test_q_of_dqn_has_a_value_for_every_action_the_mean_of_its_distribution() -> None:
    policy, loop = built("algo=dqn", *CARTPOLE, "algo.critic=quantile", "algo.critic.num_quantiles=2")
    obs = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    agent: Any = loop.agent
    set_linear(agent.q.output, np.zeros((4, 4)), [1.0, 3.0, 5.0, 9.0])  # two quantiles of each action
    assert policy.q(obs) == pytest.approx([2.0, 7.0])
    assert policy.q(np.stack([obs, obs]), np.array([1, 0])) == pytest.approx([7.0, 2.0])
    assert policy.q(obs, 1) == pytest.approx(7.0)
    with pytest.raises(ConfigError, match=r"^algo=dqn has no distribution; it has q\(obs, action\)$"):
        policy.distribution(obs)


def test_masked_actions_have_probability_0_and_no_value() -> None:
    words = ("env=Taxi", "env.action_mask=true", "preset=none", "network.hidden=[4]", "trainer.engine=eager")
    obs = {"obs": 3, "action_mask": [1, 0, 1, 0, 1, 0]}
    values = built("algo=dqn", *words)[0].q(obs)
    assert np.isneginf(values).tolist() == [False, True, False, True, False, True]
    dist = built("algo=ppo", *words)[0].distribution(obs)
    assert float(dist.log_prob(0)) > -10 and float(dist.log_prob(1)) < -1e30
    assert {int(dist.sample()) for _ in range(30)} <= {0, 2, 4}  # type: ignore[call-overload]


def test_distribution_over_mixed_actions_takes_and_returns_them() -> None:
    policy, _ = built("algo=ppo", "env=Platform", "preset=none", "env.num_envs=1", "trainer.engine=eager")
    obs = policy.observation_space.sample()
    dist = policy.distribution(obs)
    action = dist.sample()
    assert policy.action_space.contains(action) and math.isfinite(float(dist.log_prob(action)))
    assert isinstance(policy.action_space, Dict | Tuple)
    inner: Any = dist.inner
    scale = sum(float(np.log((box.high - box.low) / 2).sum()) for box in flat_boxes(policy.action_space))
    with torch.no_grad():
        expected = float(inner.discrete.entropy() + inner.continuous.entropy()) + scale
    assert scale != 0 and float(dist.entropy()) == pytest.approx(expected)


def flat_boxes(space: Any) -> Iterator[Box]:
    for _, part in leaves(space):
        if isinstance(part, Box):
            yield part


def test_value_of_a_recurrent_agent_is_of_what_it_remembers_and_changes_nothing() -> None:
    words = [word for word in PENDULUM if word != "network=linear"]
    policy, _ = built("algo=ppo_lstm", *words, "network.features=8")
    first = policy.value(OBS)
    assert policy.value(OBS) == first
    action = policy.act(OBS)
    second = policy.value(OBS)
    assert second != first and policy.value(OBS) == second
    assert policy.value(np.stack([OBS, OBS])) == pytest.approx([first, first], rel=1e-5), "other batches start anew"
    assert policy.value(OBS) == second
    policy.reset()
    assert policy.value(OBS) == first and np.array_equal(policy.act(OBS), action)


def test_table_is_read_by_the_state_of_the_environment() -> None:
    policy, loop = built("algo=q_learning", "env=CliffWalking", "preset=none", "env.num_envs=1", "trainer.engine=eager")
    agent: Any = loop.agent
    agent.q[0, 5] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert policy.q(5).tolist() == [1, 2, 3, 4] and policy.q(np.array([5, 5]), np.array([3, 0])).tolist() == [4, 1]


@pytest.mark.parametrize(
    ("algo", "line"),
    [
        ("vpg", r"algo=a2c has no value; it has distribution\(obs\)"),
        ("cem", r"algo=cem has no value; it has only act\(obs\)"),
    ],
)
def test_missing_value_is_named_with_what_there_is(algo: str, line: str) -> None:
    policy, _ = built(f"algo={algo}", *CARTPOLE)
    with pytest.raises(ConfigError, match=f"^{line}$"):
        policy.value(np.zeros(4))


def test_missing_q_is_named_before_a_missing_action() -> None:
    policy, _ = built("algo=ppo", *PENDULUM)
    with pytest.raises(ConfigError, match=r"^algo=ppo has no q; it has value\(obs\) and distribution\(obs\)$"):
        policy.q(OBS)


@pytest.fixture(autouse=True)
def unchanged_random_numbers() -> Iterator[None]:
    """No estimate draws a global random number."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state())


def test_agent_that_has_a_distribution_with_other_actions_says_so() -> None:
    policy, _ = built("algo=sac", "env=Platform", "preset=none", "env.num_envs=1", "trainer.engine=eager")
    line = r"^algo=sac has no distribution for these actions; it has q\(obs, action\)$"
    with pytest.raises(ConfigError, match=line):
        policy.distribution(policy.observation_space.sample())
