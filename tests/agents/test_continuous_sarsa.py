"""SARSA for continuous actions: values of the policy that acts, from replay and from rollouts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toys import Values, equal, put, small, streams, train, weights

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.dotted import leaves
from rlrun.errors import ConfigError
from rlrun.run.evaluation import evaluate
from rlrun.testing import check_acting, check_resuming
from rlrun.types import Batch, Context

Build = Callable[..., Loop]
MODES = ("offpolicy", "onpolicy")
DETERMINISTIC = ("algo.actor=deterministic", "algo.noise=ou", "algo.entropy=fixed")


def composed(mode: str, *words: str, **changes: Any) -> Values:
    """Returns values of a small run with this loop, as a user types them."""
    loop = ["algo=continuous_sarsa", "env=Pendulum", "preset=none", f"algo.loop={mode}", *words]
    values = jobs(loop)[0].values
    return put(values, small(dict(leaves(values))) | {"algo.target_every": 2} | changes)


# A corridor of three cells: an action a moves to the right with probability 0.5 + 0.3 a, else the wind blows to the
# left, where a wall is. Leaving to the right ends the episode with reward 1; every other step costs 0.1.
CELLS, GAMMA, EPSILON, GREEDY = 3, 0.9, 0.4, 0.5


def right(action: Tensor) -> Tensor:
    return 0.5 + 0.3 * action


class EpsilonRandomActor(nn.Module):
    """Chooses `GREEDY`, or with probability `EPSILON` a uniform action in [-1, 1]. Its weights never change."""

    def forward(self, obs: Tensor) -> "EpsilonRandomActor":
        return self

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        uniform = torch.special.ndtr(noise)  # in [0, 1], as the noise is standard normal
        action = torch.where(uniform < EPSILON, 2 * uniform / EPSILON - 1, GREEDY)
        return action, torch.zeros_like(action[:, 0])

    def log_prob(self, action: Tensor) -> Tensor:
        return torch.zeros_like(action[:, 0])


def policy_evaluation() -> Tensor:
    """Returns the values of the cells. They depend on the mean action alone, because the moves are linear in it."""
    p = right(torch.tensor((1 - EPSILON) * GREEDY))
    moves = torch.zeros(CELLS, CELLS)
    for cell in range(CELLS):
        moves[cell, max(cell - 1, 0)] += 1 - p
        if cell + 1 < CELLS:
            moves[cell, cell + 1] += p
    reward = torch.full((CELLS,), -0.1)
    reward[-1] += 1.1 * p
    return torch.linalg.solve(torch.eye(CELLS) - GAMMA * moves, reward)


def walk(steps: int, envs: int) -> list[Batch]:
    """Returns the vector steps of the frozen actor, with time limits of 10 steps."""
    actor = EpsilonRandomActor()
    cell = torch.zeros(envs, dtype=torch.int64)
    age = torch.zeros(envs, dtype=torch.int64)
    rows = []
    one_hot = torch.eye(CELLS)
    for _ in range(steps):
        action, _ = actor.sample(torch.randn(envs, 1))
        goes_right = torch.rand(envs) < right(action[:, 0])
        after = (cell + torch.where(goes_right, 1, -1)).clamp(min=0)
        terminated = after == CELLS
        truncated = (age + 1 >= 10) & ~terminated
        reward = torch.where(terminated, 1.0, -0.1)
        done = terminated | truncated
        reached = after.clamp(max=CELLS - 1)
        rows.append(
            {"obs": one_hot[cell], "action": action, "reward": reward, "terminated": terminated,
             "truncated": truncated, "next_obs": one_hot[reached], "weight": torch.ones(envs), "first": age == 0}
        )  # fmt: skip
        cell = torch.where(done, 0, reached)
        age = torch.where(done, 0, age + 1)
    return rows


def rollout(rows: list[Batch]) -> Batch:
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize(("n_step", "updates"), [(1, 800), pytest.param(3, 2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", MODES)
def test_continuous_sarsa_values_equal_policy_evaluation_in_a_windy_corridor(
    mode: str, n_step: int, updates: int, build: Build
) -> None:
    corridor = {
        "algo.gamma": GAMMA,
        "algo.n_step": n_step,
        "algo.critic_learning_rate": 3e-3,
        "algo.critic.members": 1,
        "algo.tau": 0.1,
        "algo.buffer.capacity": 32000,
        "network.hidden": [32],
        "env.num_envs": 32,
    }
    loop: Any = build(composed(mode, **corridor))
    loop.agent.actor = EpsilonRandomActor()
    loop.agent.update_actor = lambda batch, noise: {}
    rows = walk(1000, 32)
    for row in rows if mode == "offpolicy" else ():
        loop.buffer.add(row | {"executed": row["action"]})
    for i in range(updates):
        start = 16 * i % 960
        batch = loop.buffer.sample(512) if mode == "offpolicy" else rollout(rows[start : start + 16])
        loop.agent.update(batch, Context(i, i, 0.0))
    action = torch.linspace(-1, 1, 5).repeat(CELLS).unsqueeze(1)
    cell = torch.arange(CELLS).repeat_interleave(5)
    value = policy_evaluation()
    padded = torch.cat([value[:1], value, torch.zeros(1)])
    p = right(action[:, 0])
    reward = torch.where(cell == CELLS - 1, 1.1 * p, 0.0) - 0.1
    expected = reward + GAMMA * (p * padded[cell + 2] + (1 - p) * padded[cell])
    with torch.no_grad():
        q = loop.agent.critic(torch.eye(CELLS)[cell], action).mean(0)
    torch.testing.assert_close(q, expected, rtol=0, atol=0.06)


def test_continuous_sarsa_target_has_the_action_that_was_taken_or_that_of_the_policy_at_the_end(build: Build) -> None:
    """The rows go on, end without a next action, and terminate."""
    agent: Any = build(
        composed("offpolicy", **{"algo.gamma": 0.9, "algo.entropy_reward": {"name": "bootstrap", "normalize": False}})
    ).agent
    batch = {
        "next_obs": torch.randn(3, 3), "next_action": torch.tensor([[0.3], [0.0], [0.0]]),
        "has_next_action": torch.tensor([1.0, 0.0, 0.0]), "terminated": torch.tensor([0.0, 0.0, 1.0]),
        "reward": torch.tensor([1.0, 2.0, 3.0]), "n_steps": torch.ones(3), "weight": torch.ones(3),
    }  # fmt: skip
    noise = torch.randn(3, 1)
    with torch.no_grad():
        sampled, _ = agent.actor(batch["next_obs"]).sample(noise)
        action = torch.stack([batch["next_action"][0], sampled[1], sampled[2]])
        value = agent.target_critic(batch["next_obs"], action).min(0).values
        soft = value - agent.entropy.alpha * agent.actor(batch["next_obs"]).log_prob(action)
        expected = torch.stack([1 + 0.9 * soft[0], 2 + 0.9 * soft[1], torch.tensor(3.0)])
        torch.testing.assert_close(agent.target_q(batch, noise, agent.target_critic), expected)


@pytest.mark.parametrize("mode", MODES)
def test_continuous_sarsa_resumes_bit_for_bit_and_repeats_its_eager_run(mode: str, build: Build) -> None:
    loop = train(build(composed(mode)), 14)
    eager = train(build(composed(mode, **{"trainer.engine": "eager"})), 14)
    assert equal([*weights(loop), *streams(loop)], [*weights(eager), *streams(eager)])
    check_acting(loop)
    check_resuming(loop, build(composed(mode), begin=False))


def test_continuous_sarsa_has_no_buffer_if_it_learns_from_rollouts(build: Build) -> None:
    assert build(composed("onpolicy")).buffer is None
    assert build(composed("offpolicy")).buffer is not None


def test_continuous_sarsa_with_a_deterministic_actor_explores_by_its_noise_alone(build: Build) -> None:
    loop: Any = train(build(composed("offpolicy", *DETERMINISTIC, "algo.actor_tau=0.25")), 3)
    agent = loop.agent
    obs, carry = torch.randn(2, 3), {"first": torch.ones(2, dtype=torch.bool)}
    greedy, _ = agent.act(obs, carry, explore=False)
    explored, extras = agent.act(obs, carry, explore=True)
    averaged = agent.explorer(obs).action
    torch.testing.assert_close(explored, (averaged + extras["carry.noise"]).clamp(-1, 1))
    assert torch.equal(greedy, agent.actor(obs).action) and not torch.equal(greedy, averaged)
    before = agent.actor_optim.flat.clone()
    train(loop, 6)
    assert not torch.equal(before, agent.actor_optim.flat)


@pytest.mark.parametrize("actor_tau", [1.0, 0.25])
def test_continuous_sarsa_explores_with_the_average_of_its_actors(actor_tau: float, build: Build) -> None:
    agent: Any = build(composed("offpolicy", **{"algo.actor_tau": actor_tau})).agent
    batch = {
        "obs": torch.randn(2, 8, 3), "next_obs": torch.randn(2, 8, 3), "action": torch.rand(2, 8, 1),
        "reward": torch.randn(2, 8), "n_steps": torch.ones(2, 8), "terminated": torch.zeros(2, 8),
        "mask": torch.ones(2, 8), "weight": torch.ones(8),
    }  # fmt: skip
    expected = agent.actor_optim.flat.clone()
    for i in range(3):
        agent.update(batch, Context(i, i, 0.0))
        expected = expected.lerp(agent.actor_optim.flat, actor_tau)
    averaged = torch.cat([param.flatten() for param in agent.explorer.parameters()])
    torch.testing.assert_close(averaged, expected)
    obs = torch.zeros(1, 3)
    action, _ = agent.act(obs, {}, explore=False)
    assert torch.equal(action, agent.actor(obs).mode())


def test_other_agents_with_replay_take_no_on_policy_loop() -> None:
    line = "algo.loop=onpolicy is not supported by algo=sac, which learns from replay"
    with pytest.raises(ConfigError, match=line):
        jobs(["algo=sac", "env=Pendulum", "algo.loop=onpolicy"])


FAST: Values = {"network.hidden": [64, 64], "algo.actor_learning_rate": 1e-3}
OFF_POLICY: Values = {"algo.loop.warmup_steps": 1000, "algo.loop.batch_size": 128}
ON_POLICY: Values = {
    "algo.loop.rollout_steps": 2,
    "algo.gamma": 0.9,
    "algo.critic_learning_rate": 3e-3,
    "algo.target_every": 1,
    "algo.entropy.learning_rate": 3e-3,
    "env.num_envs": 32,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "settings", "steps"), [("offpolicy", OFF_POLICY, 8000), ("onpolicy", ON_POLICY, 150_000)]
)
def test_continuous_sarsa_improves_on_pendulum_in_both_loops(
    mode: str, settings: Values, steps: int, build: Build
) -> None:
    """A random policy has a mean return of about -1200."""
    values = jobs(["algo=continuous_sarsa", "env=Pendulum", "preset=none", f"algo.loop={mode}"])[0].values
    loop = build(put(values, FAST | settings | {"trainer.total_steps": steps}))
    while loop.steps < steps:
        loop.tick()
    assert evaluate(loop.agent, loop.addons, loop.env, 16)["eval/return_mean"] > -700
