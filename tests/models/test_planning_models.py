"""Dynamics, reward models and planners, as parts of an agent that plans."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor
from vector_envs import env_config

from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError
from rlrun.functional.planning import cem
from rlrun.models.dynamics import DeterministicDynamics, StochasticDynamics, known
from rlrun.models.planners import PLAN, CrossEntropy, PathIntegral, RandomShooting
from rlrun.models.rewards import LearnedReward
from rlrun.types import Spec

LINEAR = {"name": "linear"}
MLP = {"name": "mlp", "hidden": [32, 32], "activation": "silu", "init": "uniform", "norm": {"name": "none"}}
BOX = Box(-1.0, 1.0, (1,), np.float32)


def spec(size: int, action: Any = BOX) -> Spec:
    return Spec(Box(-np.inf, np.inf, (size,), np.float32), action, 1)


def dynamics(cls: Any, size: int, network: Any, members: int = 1, normalize: bool = True, action: Any = BOX) -> Any:
    torch.manual_seed(0)
    own = {"particles": 2} if cls is StochasticDynamics else {}
    cfg = cls.Config(members=members, learning_rate=1e-3, normalize=normalize, network=network, **own)
    return cls(cfg, spec(size, action))


def fit(model: Any, obs: Tensor, action: Tensor, next_obs: Tensor, steps: int, rate: float = 3e-3) -> None:
    """Trains the members on different halves of the data."""
    optim = Optim(model.parameters(), rate)
    generator = torch.Generator().manual_seed(1)
    model.observe({"obs": obs, "next_obs": next_obs, "weight": torch.ones(len(obs))})
    for step in range(steps):
        optim.learning_rate.fill_(rate * (1 - step / steps))
        index = torch.randint(len(obs), (model.members, 128), generator=generator)
        loss = model.loss(obs[index], action[index], next_obs[index])
        optim.step(loss.mean(-1).sum())


def linear_system() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns obs, actions, next obs, and the matrices of next = obs + obs A + action B."""
    generator = torch.Generator().manual_seed(0)
    a = 0.3 * torch.randn(4, 4, generator=generator) - 0.4 * torch.eye(4)
    b = torch.randn(1, 4, generator=generator)
    obs, action = torch.randn(2000, 4, generator=generator), torch.rand(2000, 1, generator=generator) * 2 - 1
    return obs, action, obs + obs @ a + action @ b, a, b


def test_deterministic_dynamics_recover_a_linear_system() -> None:
    obs, action, next_obs, a, b = linear_system()
    model = dynamics(DeterministicDynamics, 4, LINEAR)
    fit(model, obs, action, next_obs, 600, 3e-2)
    zero = torch.zeros(1, 1, 4)
    found = torch.cat([model.step(torch.eye(4)[None], torch.zeros(4, 1), None) - torch.eye(4)[None], zero], 1)[0]
    offset = model.step(zero, torch.zeros(1, 1), None)[0]
    assert torch.allclose(found[:4] - offset, a, atol=0.01 * float(a.abs().max()))
    pushed = model.step(zero, torch.ones(1, 1), None)[0] - offset
    assert torch.allclose(pushed, b, atol=0.01 * float(b.abs().max()))
    state, true = model.start(obs[:200], 1), obs[:200]
    for step in range(10):
        drawn = action[200 * step % 1800 :][:200]
        state = model.step(state, drawn, None)
        true = true + true @ a + drawn @ b
    assert ((state[0] - true) ** 2).mean() < 1e-3 * true.var()


def test_members_disagree_more_where_there_are_no_data() -> None:
    generator = torch.Generator().manual_seed(0)
    obs, action = torch.rand(1000, 2, generator=generator) * 2 - 1, torch.rand(1000, 1, generator=generator) * 2 - 1
    next_obs = obs + 0.3 * torch.sin(3 * obs) + 0.2 * action
    model = dynamics(DeterministicDynamics, 2, MLP, members=5)
    fit(model, obs, action, next_obs, 600)
    inside = model.step(model.start(obs[:200], 1), action[:200], None).var(0).mean()
    outside = model.step(model.start(3 * obs[:200], 1), action[:200], None).var(0).mean()
    assert outside > 10 * inside


def test_the_loss_is_half_the_squared_error_of_each_row_and_member() -> None:
    model = dynamics(DeterministicDynamics, 2, MLP, members=3, normalize=False)
    obs, action, next_obs = torch.randn(3, 5, 2), torch.randn(3, 5, 1), torch.randn(3, 5, 2)
    expected = 0.5 * ((obs + model.outputs(obs, action) - next_obs) ** 2).mean(-1)
    assert torch.allclose(model.loss(obs, action, next_obs), expected, atol=1e-6)
    assert model.loss(obs, action, next_obs).shape == (3, 5)


def test_normalized_dynamics_scale_observations_and_changes() -> None:
    model = dynamics(DeterministicDynamics, 2, MLP)
    scale = torch.tensor([1.0, 100.0])
    obs, change = torch.randn(500, 2) * scale, torch.randn(500, 2) * torch.tensor([0.01, 5.0])
    model.observe({"obs": obs, "next_obs": obs + change, "weight": torch.ones(500)})
    flat = torch.cat([(obs - obs.mean(0)) / obs.std(0, correction=0), torch.zeros(500, 1)], -1)
    predicted = change.std(0, correction=0) * model.network(flat[None])
    found = model.step(obs[None], torch.zeros(500, 1), None) - obs
    assert torch.allclose(found, predicted, rtol=1e-3, atol=1e-4)
    before = model.of_obs.mean.clone()
    masked = {"obs": obs + 1e6, "next_obs": obs, "weight": torch.zeros(500)}
    model.observe(masked)
    assert torch.equal(model.of_obs.mean, before), "masked rows do not count"


def test_discrete_actions_are_one_hot() -> None:
    model = dynamics(DeterministicDynamics, 2, LINEAR, members=2, action=Discrete(3))
    state = model.start(torch.randn(4, 2), 1)
    steps = [model.step(state, torch.full((4,), choice), None) - state for choice in range(3)]
    assert model.flat_action.size == 3
    assert torch.allclose(steps[1] - steps[0], (steps[1] - steps[0])[:, :1].expand(-1, 4, -1), atol=1e-5)
    assert not torch.allclose(steps[2] - steps[0], 2 * (steps[1] - steps[0]), atol=1e-3), "choices are no numbers"


def test_start_copies_every_observation_for_every_member() -> None:
    model = dynamics(DeterministicDynamics, 2, LINEAR, members=3)
    state = model.start(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 2)
    assert state.shape == (3, 4, 2) and state[2, :, 0].tolist() == [1.0, 1.0, 3.0, 3.0] and model.members == 3


@pytest.mark.slow
def test_stochastic_dynamics_learn_the_scale_of_the_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([0.1, 0.5])

    def transitions(count: int) -> tuple[Tensor, Tensor, Tensor]:
        obs = torch.randn(count, 2, generator=generator)
        return obs, torch.zeros(count, 1), 0.9 * obs + scale * torch.randn(count, 2, generator=generator)

    model = dynamics(StochasticDynamics, 2, MLP, members=3)
    fit(model, *transitions(20_000), 2000)
    obs, action, next_obs = transitions(2000)
    mean, std = model.predict(model.start(obs, 1), action)
    assert torch.allclose(std.mean((0, 1)), scale, rtol=0.1)
    covered = ((next_obs - mean).abs() < 1.645 * std).float().mean((1, 2))
    assert ((covered > 0.85) & (covered < 0.95)).all()
    noise = torch.randn(3, 2000, 2, generator=generator)
    assert torch.allclose(model.step(model.start(obs, 1), action, noise), mean + std * noise)


def test_stochastic_dynamics_minimise_the_negative_log_likelihood() -> None:
    model = dynamics(StochasticDynamics, 2, MLP, members=2, normalize=False)
    obs, action, next_obs = torch.randn(2, 5, 2), torch.randn(2, 5, 1), torch.randn(2, 5, 2)
    mean, std = model.predict(obs, action)
    expected = -torch.distributions.Normal(mean, std).log_prob(next_obs).sum(-1)
    noise = torch.randn(2, 5, 2)
    assert torch.allclose(model.step(obs, action, noise), mean + std * noise)
    penalty = 0.01 * (model.max_log_var.sum() - model.min_log_var.sum())
    assert torch.allclose(model.loss(obs, action, next_obs), expected + penalty, atol=1e-4)
    with torch.no_grad():
        model.network.output.bias[:] = 100.0
    _, std = model.predict(obs, action)
    assert torch.allclose(std, (0.5 * model.max_log_var).exp(), rtol=0.1), "log-variances have a soft upper bound"
    with torch.no_grad():
        model.network.output.bias[:] = -100.0
    _, std = model.predict(obs, action)
    assert torch.allclose(std, (0.5 * model.min_log_var).exp(), rtol=0.1)


def test_a_learned_reward_reaches_the_reward() -> None:
    torch.manual_seed(0)
    model = LearnedReward(LearnedReward.Config(learning_rate=1e-3, network=MLP), spec(2))
    obs, action, next_obs = torch.randn(2000, 2), torch.rand(2000, 1) * 2 - 1, torch.randn(2000, 2)
    reward = -(obs[:, 0] ** 2) - 0.5 * next_obs[:, 1].abs() + action[:, 0]
    optim = Optim(model.parameters(), 3e-3)
    for step in range(500):
        optim.learning_rate.fill_(3e-3 * (1 - step / 500))
        index = torch.randint(2000, (128,), generator=torch.Generator().manual_seed(step))
        optim.step(model.loss(obs[index], action[index], next_obs[index], reward[index]).mean())
    error = (model(obs, action, next_obs) - reward) ** 2
    assert torch.allclose(model.loss(obs, action, next_obs, reward), 0.5 * error)
    assert error.mean() < 0.01 * reward.var()
    members = model(obs.expand(3, -1, -1), action.expand(3, -1, -1), next_obs.expand(3, -1, -1))
    assert members.shape == (3, 2000) and torch.allclose(members[1], model(obs, action, next_obs), atol=1e-5)


def test_equations_of_other_observations_are_not_known() -> None:
    equations: Any = SimpleNamespace(obs=spec(2).obs)
    assert known(replace(spec(2), equations=equations)) is equations
    assert known(replace(spec(3), equations=equations)) is None and known(spec(2)) is None


@pytest.fixture
def made() -> Iterator[Callable[..., VectorEnv]]:
    envs = []

    def build(id: str, num_envs: int, **values: Any) -> VectorEnv:
        envs.append(
            VectorEnv.make(env_config(id, num_envs, **{"selftest": "off", **values}), np.random.SeedSequence(0))
        )
        return envs[-1]

    yield build
    for env in envs:
        env.close()


@pytest.mark.parametrize(
    ("id", "values"),
    [("Pendulum-v1", {}), ("Pendulum-v1", {"kwargs": {"g": 5.0}}), ("rlrun/PointMass-v0", {"backend": "torch"})],
)
def test_equations_are_those_of_the_environment(id: str, values: Any, made: Callable[..., VectorEnv]) -> None:
    env = made(id, 20, **values)
    equations = env.spec.equations
    obs, generator = env.reset(), torch.Generator().manual_seed(0)
    for _ in range(50):
        action = 3 * torch.rand(20, env.spec.action.shape[0], generator=generator) - 1.5
        step, _ = env.step(action)
        rewards = equations.reward(obs[None], action[None], step["next_obs"][None])[0]
        assert torch.allclose(rewards, step["reward"], atol=1e-5)
        assert torch.allclose(equations.step(obs[None], action[None])[0], step["next_obs"], atol=1e-4)
        obs = step["following"]


@pytest.mark.parametrize(
    "values",
    [
        {"id": "CartPole-v1"},
        {"id": "Pendulum-v1", "wrappers": {"own_reward": {}}},
        {"id": "Pendulum-v1", "kwargs": {"render_mode": "rgb_array"}},
    ],
)
def test_changed_environments_have_no_equations(values: dict[str, Any], made: Callable[..., VectorEnv]) -> None:
    assert made(values.pop("id"), 1, **values).spec.equations is None


PLANNERS = {
    RandomShooting: {"candidates": 30, "horizon": 5},
    CrossEntropy: {
        "candidates": 30, "horizon": 5, "iterations": 3, "elites": 5, "correlation": 0.5, "init_std": None, "tau": 0.9,
        "epsilon": 0.01, "keep": 2,
    },
    PathIntegral: {
        "candidates": 30, "horizon": 5, "iterations": 3, "elites": 5, "correlation": 0.0, "init_std": 0.3,
        "temperature": 0.5, "min_std": 0.05, "max_std": 2.0,
    },
}  # fmt: skip


def planner(cls: Any, **changes: Any) -> Any:
    cfg = cls.Config(**(PLANNERS[cls] | changes))
    return cls(cfg, Box(-2.0, 4.0, (2,), np.float32), Stream(0, "fixed"), Stream(0, "plan"))


def cost(actions: Tensor) -> Tensor:
    return ((actions - 3.0) ** 2).sum((-1, -2))


@pytest.mark.parametrize("cls", PLANNERS)
def test_planners_act_alike_without_exploring_and_draw_while_they_explore(cls: Any) -> None:
    plans = planner(cls)
    carry = {"first": torch.tensor([True, False, False])}
    _, extras = plans.plan(cost, carry, True)
    carry |= extras
    state = plans.draws.get_extra_state()
    first, other = plans.plan(cost, carry, False), plans.plan(cost, carry, False)
    assert torch.equal(first[0], other[0]) and first[0].shape == (3, 2)
    assert torch.equal(plans.draws.get_extra_state()["state"], state["state"])
    explored = plans.plan(cost, carry, True)[0]
    assert not torch.equal(explored, first[0]) and not torch.equal(plans.plan(cost, carry, True)[0], explored)
    assert ((explored >= -2) & (explored <= 4)).all()


@pytest.mark.parametrize("cls", [CrossEntropy, PathIntegral])
def test_plans_begin_in_the_middle_and_go_on_from_the_last_one(cls: Any) -> None:
    plans = planner(cls)
    mean, std = plans.start({"first": torch.ones(2, dtype=torch.bool)})
    assert (mean == 1.0).all() and (std == (3.0 if cls is CrossEntropy else 0.3)).all()
    last = torch.arange(20.0).view(2, 5, 2)
    mean, _ = plans.start({"first": torch.tensor([True, False]), PLAN: last})
    assert (mean[0] == 1.0).all() and torch.equal(mean[1, :4], last[1, 1:])
    assert torch.equal(mean[1, 4], last[1].mean(0))


def test_the_plan_of_cem_is_that_of_the_function_with_its_settings() -> None:
    plans = planner(CrossEntropy, keep=2, init_std=0.5)
    carry = {"first": torch.tensor([True, True])}
    mean, std = plans.start(carry)
    limits = plans.low, plans.high
    found = cem(cost, mean, std**2, plans.noise, *limits, plans.cfg.elites, plans.cfg.tau, plans.cfg.epsilon, 2)
    action, extras = plans.plan(cost, carry, False)
    assert torch.equal(action, found.actions[:, 0]) and torch.equal(extras[PLAN], found.mean)
    assert not torch.equal(found.mean, found.actions)
    sizes: list[int] = []
    plans.plan(lambda actions: sizes.append(actions.shape[1]) or cost(actions), carry, False)
    assert max(sizes) == plans.most_candidates == 30 + 2 + 1


@pytest.mark.parametrize(("correlation", "least", "most"), [(0.0, -0.1, 0.1), (0.9, 0.85, 0.95)])
def test_the_noise_of_a_planner_has_its_correlation(correlation: float, least: float, most: float) -> None:
    noise = planner(CrossEntropy, correlation=correlation, candidates=2000).noise
    assert least < float((noise[..., 1:, :] * noise[..., :-1, :]).mean()) < most


def test_planners_refuse_more_elites_than_candidates() -> None:
    with pytest.raises(ConfigError, match=r"algo\.planner\.elites=31: there are only 30 candidates"):
        planner(CrossEntropy, elites=31)
    with pytest.raises(ConfigError, match=r"algo\.planner\.keep=6: there are only 5 elites"):
        planner(CrossEntropy, keep=6)
