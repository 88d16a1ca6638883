"""The part `algo.entropy_reward`: targets with the entropy of the bootstrap state, of every step, or of none."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from toys import put, toy, train

from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.settings import registry
from rlrun.testing import check_resuming
from rlrun.types import Batch, Context, Spec

Build = Callable[..., Loop]
NONE = {"name": "none"}
BOOTSTRAP = {"name": "bootstrap", "normalize": False}
EVERY_STEP = {"name": "every_step", "normalize": False}
SPEC = Spec(spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,)), 1)
ONE_STEP, TWO_STEPS = SimpleNamespace(gamma=0.9, n_step=1, entropy={}), SimpleNamespace(gamma=0.5, n_step=2, entropy={})
ONE = registry.build("entropy", {"name": "fixed", "ent_coef": 1.0}, 0.0)


def loop_with(build: Build, algo: str, section: Batch, **changes: Any) -> Any:
    return build(put(toy(algo), {"algo.entropy_reward": section} | changes))


def batch_of(agent: Any, rows: int = 6) -> Batch:
    draw = torch.Generator().manual_seed(0)
    obs = torch.randn(2, rows, *agent.spec.obs.shape, generator=draw)
    action = torch.rand(rows, 1, generator=draw)
    reward = torch.randn(rows, generator=draw)
    ends = torch.tensor([0.0, 1.0]).repeat(rows // 2)
    return {
        "obs": obs[0], "next_obs": obs[1], "action": action, "reward": reward, "n_steps": torch.ones(rows),
        "terminated": ends, "weight": torch.ones(rows),
    }  # fmt: skip


def test_td_target_without_entropy_is_that_of_the_rewards(build: Build) -> None:
    agent = loop_with(build, "sac", NONE, **{"algo.gamma": 0.9}).agent
    batch, noise = batch_of(agent), torch.randn(6, 1)
    with torch.no_grad():
        action, _ = agent.actor(batch["next_obs"]).sample(noise)
        next_q = agent.target_critic(batch["next_obs"], action).amin(0)
        target = agent.target_q(batch, noise, agent.target_critic)
    torch.testing.assert_close(target, batch["reward"] + 0.9 * (1 - batch["terminated"]) * next_q)


def test_normalized_entropy_reward_has_mean_0_over_the_updates(build: Build) -> None:
    """The running mean covers all updates so far; it shifts targets by a constant where episodes go on."""
    alpha = {"algo.gamma": 0.9, "algo.entropy.initial_alpha": 0.5}
    agent = loop_with(build, "sac", BOOTSTRAP | {"normalize": True}, **alpha).agent
    batch = batch_of(agent)
    seen = []
    for _ in range(3):
        noise = torch.randn(6, 1)
        with torch.no_grad():
            action, log_prob = agent.actor(batch["next_obs"]).sample(noise)
            next_q = agent.target_critic(batch["next_obs"], action).amin(0)
            target = agent.target_q(batch, noise, agent.target_critic)
        seen.append(log_prob.mean())
        cost = log_prob - torch.stack(seen).mean()
        expected = batch["reward"] + 0.9 * (1 - batch["terminated"]) * (next_q - 0.5 * cost)
        torch.testing.assert_close(target, expected)


def test_running_mean_of_the_entropy_ignores_masked_rows_and_forgets() -> None:
    part: Any = registry.build("entropy_reward", BOOTSTRAP | {"normalize": True}, SPEC, ONE_STEP)
    part.cost(torch.tensor([1.0, 50.0]), torch.tensor([1.0, 0.0]), ONE)
    assert part.mean == 1
    for _ in range(5000):
        part.cost(torch.zeros(1), torch.ones(1), ONE)
    assert abs(part.mean.item()) < 1e-4, "a mean of all updates would still be 0.0002"


@pytest.mark.parametrize("algo", ["discrete_sac", "sac"])
@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_n_step_return_has_the_entropy_of_every_step(algo: str, n_step: int, build: Build) -> None:
    """Against a loop over stored rows, with terminations, time limits, the newest rows and overwritten ones."""
    sizes = {"env.max_episode_steps": 5, "algo.buffer.capacity": 64, "algo.entropy.initial_alpha": 0.3}
    section = {"algo.n_step": n_step, "algo.gamma": 0.9, "algo.loop.warmup_steps": 1000}
    loop = loop_with(build, algo, EVERY_STEP, **sizes, **section)
    for _ in range(100):
        loop.tick()
    agent, num_envs = loop.agent, loop.env.spec.num_envs
    first, last = loop.buffer.span
    assert first > 0
    flat_index = torch.arange(first, last)
    batch = loop.buffer.read(flat_index)
    same: Any = SimpleNamespace(normal=lambda *shape: torch.full(shape, 0.3))  # the same sample in every state
    with torch.no_grad():
        found = agent.entropy_reward.within(batch, agent.actor, agent.entropy.alpha, same)
        entropy = agent.actor(batch["obs"]).entropy_estimate(same).tolist()
    expected = []
    for row in range(last - first):
        reward = batch["reward"][row].item()
        for k in range(1, int(batch["n_steps"][row])):
            reward += 0.9**k * 0.3 * entropy[row + k * num_envs]
        expected.append(reward)
    assert found["reward"].tolist() == pytest.approx(expected, rel=1e-4)
    assert "next_steps" not in found
    assert len(set(batch["n_steps"].tolist())) == n_step, "some returns end early"


def test_entropy_of_every_step_is_normalized_with_the_same_mean() -> None:
    part: Any = registry.build("entropy_reward", EVERY_STEP | {"normalize": True}, SPEC, TWO_STEPS)
    part.cost(torch.full((3,), -2.0), torch.ones(3), ONE)
    steps = {"obs": torch.zeros(2, 3, 1), "mask": torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])}
    batch = {"reward": torch.zeros(3), "next_steps": steps}
    dist = SimpleNamespace(entropy_estimate=lambda source: torch.tensor([2.0, 3.0, 9.0]))
    found = part.within(batch, lambda obs: dist, torch.tensor(0.1), None)
    assert found["reward"].tolist() == pytest.approx([0.0, 0.5 * 0.1 * 1.0, 0.0])


@pytest.mark.parametrize("algo", ["sac", "discrete_sac"])
@pytest.mark.parametrize("section", [NONE, EVERY_STEP | {"normalize": True}])
def test_entropy_rewards_change_what_is_learned_and_resume(algo: str, section: Batch, build: Build) -> None:
    changes = {"algo.n_step": 3, "trainer.engine": "auto"}
    loop = train(loop_with(build, algo, section, **changes), 4)
    plain = train(loop_with(build, algo, BOOTSTRAP, **changes), 4)
    assert not torch.equal(loop.agent.critic_optim.flat, plain.agent.critic_optim.flat)  # type: ignore[union-attr]
    check_resuming(loop, build(put(toy(algo), {"algo.entropy_reward": section} | changes), begin=False))


@pytest.mark.parametrize(
    ("algo", "line"),
    [
        ("sac_lagrangian", "algo.entropy_reward=every_step: needs one reward a step; choose bootstrap"),
        ("recurrent_sac", "algo.entropy_reward=every_step does not support a recurrent network"),
        ("sac_from_data", "algo.loop=hybrid is not supported by algo=sac_cloning, which learns from sequences"),
    ],
)
def test_entropy_of_every_step_is_refused_in_one_line(algo: str, line: str, build: Build) -> None:
    with pytest.raises(ConfigError, match=line) as error:
        loop_with(build, algo, EVERY_STEP, **{"algo.n_step": 2})
    assert len(error.value.faults) == 1


def test_reward_vectors_learn_without_an_entropy_reward(build: Build) -> None:
    """The column of the entropy then predicts 0."""
    loop = loop_with(build, "sac_lagrangian", NONE)
    train(loop, 3)
    agent, batch = loop.agent, loop.batch
    noise = torch.randn(len(batch["reward"]), 2)
    with torch.no_grad():
        for param in agent.target_critic.module.parameters():
            param.zero_()
        target = agent.target_q(batch, noise, agent.target_critic)
    assert (target[:, -1] == 0).all()


def test_soft_values_of_two_states_with_quadratic_rewards_are_exact(build: Build) -> None:
    """Each state leads to the other; the reward of state i is b_i - (a - c_i)^2.

    The soft value of state i is V_i = alpha log int exp(r_i(a) / alpha) da + gamma V_j, by quadrature.
    """
    alpha, gamma = 0.1, 0.8
    best, height = torch.tensor([0.3, -0.2]), torch.tensor([1.0, -0.5])
    grid = torch.linspace(-1, 1, 2001).double()
    reward = height - (grid.unsqueeze(-1) - best) ** 2  # [grid, states]
    own = alpha * torch.logsumexp(reward / alpha, 0) + alpha * math.log(2 / 2000)
    exact = (own + gamma * own.flip(0)) / (1 - gamma**2)
    rates = {f"algo.{name}_learning_rate": 3e-3 for name in ("actor", "critic")}
    fixed = {"algo.entropy.initial_alpha": alpha, "algo.entropy.learning_rate": 0.0, "algo.gamma": gamma}
    small = {"network.hidden": [32], "algo.tau": 0.1, "algo.target_every": 1, "algo.policy_delay": 1}
    falling = {"linear": {"end": 0.0}}
    small |= {"algo.schedule": {"actor_learning_rate": falling, "critic_learning_rate": falling}}
    loop: Any = build(toy("sac", **rates, **fixed, **small))
    agent = loop.agent
    draw = torch.Generator().manual_seed(0)
    state = torch.arange(128) % 2
    obs = torch.nn.functional.one_hot(state, 3).float()
    ones = {"n_steps": torch.ones(128), "terminated": torch.zeros(128), "weight": torch.ones(128)}
    for i in range(800):
        action = 2 * torch.rand(128, 1, generator=draw) - 1
        reward = height[state] - (action[:, 0] - best[state]) ** 2
        batch = {"obs": obs, "next_obs": obs.flip(0), "action": action, "reward": reward}
        loop.begin_update(Context(i, i, i / 800))
        agent.update(batch | ones, Context(i, i, i / 800))
    with torch.no_grad():
        obs = obs.repeat(50, 1)
        q, log_prob = agent.evaluate(obs, lambda *inputs: agent.critic(*inputs).mean(0), torch.randn(len(obs), 1))
        soft = (q - alpha * log_prob).view(-1, 2).mean(0)
    assert (exact - torch.tensor([1.0 - 0.4, -0.5 + 0.8]) / (1 - gamma**2)).abs().min() > 0.2, "not those of rewards"
    assert soft.tolist() == pytest.approx(exact.tolist(), abs=0.02)
