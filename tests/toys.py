"""Runs small enough that every promise can be tried on every algorithm: tiny networks, batches and environments."""

import atexit
import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from rlrun.buffers.demo_lines import episode
from rlrun.buffers.rollout import Rollout
from rlrun.config.check import leaves
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.config.sources import CONF
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.datasets.demonstrations import write
from rlrun.errors import ConfigError
from rlrun.nested import index
from rlrun.run.assemble import build_loop

Values = dict[str, Any]

ALGOS = sorted(path.stem for path in (CONF / "algo").glob("*.yaml") if not path.stem.startswith("_"))
ENVS = ("CartPole", "Pendulum", "FrozenLake")  # the first that an algorithm is defined for
NEVER_LEARN = ("fixed_policy",)
MULTI_ARMED = ("epsilon_greedy", "ucb", "thompson", "gaussian_thompson", "bayesian_ucb", "gradient_bandit")
CONTEXTUAL = ("linear_posterior", "neural_greedy", "neural_linear", "bootstrap_bandit", "variational_bandit",
              "parameter_noise_bandit")  # fmt: skip
LAGRANGIAN = ("sac_lagrangian", "ppo_lagrangian")
OWN_ENVS = dict.fromkeys(MULTI_ARMED, "BernoulliBandit") | dict.fromkeys(CONTEXTUAL, "LinearBandit")
OWN_ENVS |= dict.fromkeys(LAGRANGIAN, "PointRun")
OWN_ENVS |= {"bc": "Pendulum"}

# Taken where an algorithm has the key. Learning is fast so that what differs shows after few updates.
SMALL: Values = {
    "env.num_envs": 2,
    "env.max_episode_steps": 20,
    "trainer.total_steps": 64,
    "network.hidden": [8],
    "network.features": 4,
    "network.sequence_length": 4,
    "algo.loop.warmup_steps": 8,
    "algo.loop.updates_per_step": 0.5,
    "algo.loop.batch_size": 8,
    "algo.loop.rollout_steps": 8,
    "algo.loop.min_steps": 16,
    "algo.loop.data_steps": 8,
    "algo.loop.online_after": 2,
    "algo.buffer.capacity": 8,
    "algo.learning_rate": 0.01,
    "algo.actor_learning_rate": 0.01,
    "algo.critic_learning_rate": 0.01,
    "algo.temperature_learning_rate": 0.01,
    "algo.epochs": 2,
    "algo.minibatch_size": 8,
    "algo.value_epochs": 2,
    "algo.value_minibatch_size": 8,
    "algo.target_every": 4,
    "algo.returns.num_atoms": 11,
    "algo.returns.num_quantiles": 5,
    "algo.policy_delay": 2,
    "algo.population": 4,
    "algo.exploration_episodes": 2,
    "algo.loop.episodes": 2,
    "algo.elite_fraction": 0.5,
    "algo.initial_value": 0.5,
    "algo.init_pulls": 1,
    "algo.refit_every": 2,
    "algo.members": 2,
    "algo.unroll_steps": 2,
    "algo.td_steps": 2,
    "algo.search.num_simulations": 4,
    "algo.search.c_visit": 1.0,
    "algo.search.c_scale": 0.1,
    "algo.latent_size": 8,
    "algo.num_particles": 2,
    "algo.particle.learning_rate": 0.01,
    "algo.particle.minibatch_size": 8,
    "algo.particle.value_epochs": 2,
    "algo.representation.latent": 4,
    "algo.representation.unroll_steps": 2,
    "algo.representation.hidden": [8],
    "algo.representation.learning_rate": 0.01,
    "algo.representation.minibatch_size": 8,
    "algo.intrinsic.hidden": [8],
    "algo.intrinsic.embedding": 4,
    "algo.intrinsic.learning_rate": 0.01,
    "algo.intrinsic.epochs": 2,
    "algo.intrinsic.minibatch_size": 8,
    "algo.reward_weights.thresholds": [None, -0.1],
    "algo.reward_weights.learning_rate": 0.01,
}

# Where sequences come out of replay.
SEQUENCES: Values = {"network.sequence_length": 2, "network.burn_in": 1, "algo.buffer.capacity": 16}


@cache
def _toy(algo: str) -> Values:
    faults = []
    for env in (OWN_ENVS[algo],) if algo in OWN_ENVS else ENVS:
        try:
            values = jobs([f"algo={algo}", f"env={env}", "preset=none"])[0].values
            known = dict(leaves(values))
            small = SMALL | (SEQUENCES if known.keys() >= SEQUENCES.keys() else {})
            values = put(values, {key: value for key, value in small.items() if key in known})
            build_loop(run_config(values)).env.close()
            return values
        except ConfigError as error:
            faults.append(f"{env}: {error}")
    raise AssertionError(f"algo={algo} is defined for none of the toy environments: {faults}")


def toy(algo: str, **changes: Any) -> Values:
    """Composed values of a small run; dotted keys given as `**{"algo.gamma": 0.5}`."""
    values = put(_toy(algo), changes)
    if values["algo"]["loop"].get("data", "no such key") is None:
        values["algo"]["loop"]["data"] = recorded(json.dumps(values))
    return values


@cache
def recorded(text: str, steps: int = 24) -> str | None:
    """A data set of random episodes in the environments of these values; None where they are refused anyway."""
    values = json.loads(text)
    values["algo"].pop("intrinsic", None)  # data sets hold what the environment pays
    try:
        loop: Any = build_loop(run_config(values))
    except ConfigError:
        return None
    Loop.begin(loop)
    rollout = Rollout()
    for _ in range(steps):
        obs, first = loop.obs, loop.carry["first"]
        step = loop.advance(loop.uniform_action(), {})
        rollout.add(obs, step.action, step, {}, first)
    rows = index(rollout.batch(), (slice(None), 0))
    ends = {*((rows["terminated"] | rows["truncated"]).nonzero().flatten() + 1).tolist(), steps}
    begins = sorted({0, *ends} - {steps})
    demos = [episode(index(rows, slice(begin, end))) for begin, end in zip(begins, sorted(ends), strict=True)]
    home = TemporaryDirectory()
    atexit.register(home.cleanup)
    write(Path(home.name) / "random-v0", demos, loop.env)
    loop.env.close()
    return f"{home.name}/random-v0"


def put(values: Values, changes: Values) -> Values:
    values = copy.deepcopy(values)
    for key, value in changes.items():
        *path, name = key.split(".")
        section = values
        for part in path:
            section = section[part]
        section[name] = value
    return values


def train(loop: Loop, updates: int) -> Loop:
    """Tick until that many updates were made."""
    for _ in range(5000):
        if loop.updates >= updates:
            return loop
        loop.tick()
    raise AssertionError(f"only {loop.updates} updates in 5000 ticks")


def optims(loop: Loop) -> Iterator[tuple[str, Optim]]:
    return ((name, module) for name, module in loop.named_modules() if isinstance(module, Optim))


def weights(loop: Loop) -> list[Tensor]:
    """What the agent has learned: its parameters, or the buffers of one that has none."""
    return [tensor.detach().clone() for tensor in [*loop.agent.parameters()] or [*loop.agent.buffers()]]


def streams(loop: Loop) -> list[Tensor]:
    return [module.generator.get_state() for module in loop.modules() if isinstance(module, Stream)]


def equal(some: Any, other: Any) -> bool:
    """Bit equality of nested tensors; NaN equals NaN."""
    if isinstance(some, dict):
        return some.keys() == other.keys() and all(equal(some[key], other[key]) for key in some)
    if isinstance(some, (list, tuple)):
        return len(some) == len(other) and all(map(equal, some, other))
    if isinstance(some, Tensor):
        same = some.dtype == other.dtype and some.shape == other.shape
        return same and bool(torch.equal(some.nan_to_num(123.0), other.nan_to_num(123.0)))
    return bool(some == other)
