"""SVPG: Stein's gradient by hand, one particle compared with the plain agent, and a bandit with two peaks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from toys import equal, put, toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.types import Batch, Context

Build = Callable[..., Loop]


def collect(loop: Any) -> Batch:
    """Returns a rollout without an update."""
    return loop.addons.relabel(loop.collect_rollout())


def like(learner: Any, particle: Any) -> None:
    """Gives the learner the weights, random numbers and optimiser state of the particle."""
    state = particle.state_dict()
    learner.load_state_dict({key.replace("optim.optim.", "optim.", 1) if key.startswith("optim.") else key: value
                             for key, value in state.items() if key not in ("optim.total", "optim.count")})  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "critic"), [("a2c", "first"), ("a2c", "split"), ("a2c", "none"), ("ppo", "first"), ("vtrace", "split")]
)
def test_svpg_with_one_particle_equals_its_agent(kind: str, critic: str, build: Build) -> None:
    choices = [f"algo.particle={kind}", f"algo.particle.critic_update={critic}"]
    values = jobs(["algo=svpg", *choices, "env=CartPole", "preset=none"])[0].values
    section = values["algo"]["particle"] | {"minibatch_size": None}
    own = {"algo.num_particles": 1, "algo.temperature": 1.0, "algo.particle": section}
    swarm: Any = build(toy("svpg", **own))
    particle = swarm.agent.particles[0]
    plain: Any = build(put(toy(kind), {f"algo.{key}": value for key, value in section.items()}))
    like(plain.agent, particle)
    for _ in range(3):
        rollout = collect(swarm)
        alone = plain.agent.update(rollout, Context(0, 0, 0.0))
        metrics = swarm.agent.update(rollout, Context(0, 0, 0.0))
        assert equal(alone, {key: metrics[key] for key in alone})
        assert equal([*plain.agent.parameters()], [*particle.parameters()])


def test_svpg_step_is_svgd_on_the_accumulated_gradients(build: Build) -> None:
    swarm: Any = build(toy("svpg", **{"env.num_envs": 3, "algo.num_particles": 3, "algo.temperature": 2.0}))
    agent = swarm.agent
    rollout, steps = collect(swarm), []
    x = np.stack([particle.optim.optim.flat.double().numpy() for particle in agent.particles])
    grads: list[Any] = []
    for particle in agent.particles:
        particle.optim.take = lambda take=particle.optim.take: grads.append(take()) or grads[-1]
        particle.optim.optim.apply = steps.append
    agent.update(rollout, Context(0, 0, 0.0))
    g = -np.stack([grad.double().numpy() for grad in grads])
    distances = np.array([[((a - b) ** 2).sum() for b in x] for a in x])
    h2 = 0.5 * np.median(distances) / np.log(4)
    for i in range(3):
        phi = np.zeros_like(x[0])
        for j in range(3):
            k = np.exp(-distances[i, j] / (2 * h2))
            phi += k * g[j] / 2.0 + k * (x[i] - x[j]) / h2
        torch.testing.assert_close(steps[i].double(), torch.from_numpy(-phi / 3), rtol=1e-4, atol=1e-6)


def test_svpg_gradients_average_minibatches_and_reset(build: Build) -> None:
    swarm: Any = build(toy("svpg", **{"algo.num_particles": 1, "algo.particle.epochs": 3}))
    optim = swarm.agent.particles[0].optim
    flat = optim.optim.flat.clone()
    for scale in (1.0, 2.0, 6.0):
        optim.step(sum((scale * param).sum() for param in optim.optim.params))
    assert torch.equal(optim.optim.flat, flat), "collecting moves nothing"
    assert torch.equal(optim.take(), torch.full_like(flat, 3.0))
    assert not optim.total.any() and not optim.count


def test_svpg_particles_have_separate_weights_streams_and_environments(build: Build) -> None:
    swarm: Any = build(toy("svpg", **{"env.num_envs": 4}))
    one, two = swarm.agent.particles
    assert not equal([*one.parameters()], [*two.parameters()])
    streams = [[s.generator.get_state() for s in part.modules() if isinstance(s, Stream)] for part in (one, two)]
    assert streams[0]
    for first, second in zip(*streams, strict=True):
        assert not torch.equal(first, second)
    seen: list[Batch] = []
    for particle in (one, two):
        particle.update = lambda rollout, ctx, update=particle.update: seen.append(rollout) or update(rollout, ctx)
    rollout = collect(swarm)
    swarm.agent.update(rollout, Context(0, 0, 0.0))
    assert torch.equal(torch.cat([part["obs"] for part in seen], 1), rollout["obs"])
    log_prob = one.policy(seen[0]["obs"].flatten(0, 1)).log_prob(seen[0]["action"].flatten(0, 1))
    assert log_prob.shape == (16,)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_svpg_evaluates_on_any_number_of_environments(count: int, build: Build) -> None:
    agent: Any = build(toy("svpg")).agent
    obs, carry = torch.randn(count, 4), {"first": torch.ones(count, dtype=torch.bool)}
    action, _ = agent.act(obs, carry, explore=False)
    assert action.shape == (count,)
    assert torch.equal(action[0], agent.particles[0].act(obs, carry, False)[0][0])


def test_svpg_refuses_unsuitable_configs_in_one_line(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"env.num_envs=3: must be a multiple of algo.num_particles=2"):
        build(toy("svpg", **{"env.num_envs": 3}))
    with pytest.raises(ConfigError, match=r"algo.particle.critic_update=joint: must be split, first or none"):
        joint = {"name": "joint", "value_coef": 0.5, "clip_value": None, "huber_delta": None, "normalize_target": False}
        build(toy("svpg", **{"algo.particle.critic_update": joint}))


def peaks_held(build: Build, repel: bool) -> set[int]:
    """Trains eight policies on a bandit with equal peaks at actions 0 and 3. Returns the peaks that policies found."""
    settings = {
        "env.num_envs": 128, "env.max_episode_steps": None, "algo.num_particles": 8, "network": {"name": "linear"},
        "algo.temperature": 0.3 if repel else 1e-3, "algo.particle.learning_rate": 0.05, "algo.loop.rollout_steps": 8,
        "algo.particle.minibatch_size": None, "algo.particle.advantage.normalize": "none",
        "algo.particle.critic_update": {"name": "none"},
    }  # fmt: skip
    words = ["algo=svpg", "env=BernoulliBandit", "preset=none", "env.kwargs.bandits=1", "env.kwargs.arms=4"]
    values = jobs([*words, "env.kwargs.reward_probs=[1.0,0.0,0.0,1.0]"])[0].values
    loop: Any = build(put(values, settings))
    if not repel:  # all start with the weights of the first particle
        state = loop.agent.particles[0].optim.optim.flat.clone()
        for particle in loop.agent.particles:
            particle.optim.optim.flat.copy_(state)
    train(loop, 60)
    obs = torch.zeros(1, dtype=torch.int64)
    return {int(particle.policy(obs).logits.argmax()) for particle in loop.agent.particles}


@pytest.mark.slow
def test_svpg_repulsion_keeps_both_modes(build: Build) -> None:
    assert peaks_held(build, repel=True) == {0, 3}
    assert len(peaks_held(build, repel=False)) == 1
