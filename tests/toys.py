"""Small runs, with which every guarantee can be tested for every algorithm: tiny networks, batches, environments."""

import atexit
import copy
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from rlrun import testing
from rlrun.buffers.demo_lines import episode
from rlrun.buffers.rollout import Rollout
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.config.sources import CONF, content
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.datasets.demonstrations import write
from rlrun.dotted import leaves
from rlrun.envs.config import NormalizeConfig, RayEnvConfig
from rlrun.errors import ConfigError
from rlrun.nested import index
from rlrun.run.assemble import build_loop

Values = dict[str, Any]
NO_RAY = RayEnvConfig(address="auto", workers=None, cpus=1.0)
NOT_NORMALIZED = NormalizeConfig(
    kind="none",
    clip_obs=None,
    clip_reward=None,
    reward_by="returns",
    epsilon=1e-8,
    gamma=None,
    statistics={"name": "all"},
    fields=[],
    zero_mean=True,
    update_on="rollout",
    max_updates=None,
)
equal = testing.equal

ALGOS = sorted(path.stem for path in (CONF / "algo").glob("*.yaml") if not path.stem.startswith("_"))
ENVS = ("CartPole", "Pendulum", "FrozenLake")  # the first environment that an algorithm supports
NO_WEIGHTS = ("fixed_policy", "mpc", "scripted")
RECORDED: dict[str, str] = {}  # data sets of random episodes, by environment
SHARED: Path | None = None  # the folder of composed toys that all workers of a test run use


@cache
def variant_of(algo: str) -> str | None:
    """Returns the algorithm whose YAML and class this one takes over; None for one that names a class of its own."""
    page = content(CONF / "algo" / f"{algo}.yaml")
    if "name" in page.get("algo", {}):
        return None
    return next((line for line in page["defaults"] if line in ALGOS), None)


# Variants with a part, or a combination of parts, that no algorithm with a class of its own has.
WITH_OWN_PARTS = (
    "a2c_split", "c51", "ddpg", "diayn", "gumbel_muzero", "ppg", "ppo_composite", "ppo_lagrangian", "ppo_lstm",
    "ppo_rnd", "prioritized_dqn", "qr_dqn", "r2d2", "recurrent_sac", "sac_composite", "taac_l", "taac_q", "tqc",
    "trac", "vtrace",
)  # fmt: skip


def by_default(algos: Iterable[str]) -> list[Any]:
    """Returns parameters of a test for all algorithms: those of `algos` by default, the others with `-m full`."""
    chosen = {*algos}
    return [pytest.param(algo, marks=[] if algo in chosen else [pytest.mark.full]) for algo in ALGOS]


# For tests of guarantees that a class gives: variants, which add only YAML, are tested with `-m full`.
WITH_OWN_CLASS = [algo for algo in ALGOS if variant_of(algo) is None]
BY_CLASS = by_default(WITH_OWN_CLASS)
# For tests of guarantees that a class gives together with its parts.
BY_PART = by_default((*WITH_OWN_CLASS, *WITH_OWN_PARTS))
# For tests of what the machinery guarantees: one algorithm of each family in each loop, and each memory.
OF_FAMILIES = (
    "a2c", "bc", "cem", "dqn", "iql", "maml", "muzero", "neural_greedy", "nop", "ppo_demos", "ppo_lstm", "ppo_rnd",
    "q_learning", "r2d2", "recurrent_sac", "sac", "sac_from_data", "svpg", "thompson", "tqc", "vpg",
)  # fmt: skip
BY_FAMILY = by_default(OF_FAMILIES)
# For tests of what a run keeps: variants whose parts hold nothing but weights are tested with `-m full`.
BY_STATE = by_default((*WITH_OWN_CLASS, *OF_FAMILIES, "diayn"))
# For tests of what the engine guarantees of any kernel: one algorithm of each loop.
OF_LOOPS = ("a2c", "cem", "iql", "maml", "muzero", "ppo_demos", "r2d2", "sac_from_data", "vpg")
BY_LOOP = by_default(OF_LOOPS)
MULTI_ARMED = ("epsilon_greedy", "ucb", "thompson", "gaussian_thompson", "bayesian_ucb", "gradient_bandit")
CONTEXTUAL = ("linear_posterior", "neural_greedy", "neural_linear", "bootstrap_bandit", "variational_bandit",
              "parameter_noise_bandit")  # fmt: skip
LAGRANGIAN = ("sac_lagrangian", "ppo_lagrangian")
OWN_ENVS = dict.fromkeys(MULTI_ARMED, "BernoulliBandit") | dict.fromkeys(CONTEXTUAL, "LinearBandit")
OWN_ENVS |= dict.fromkeys(LAGRANGIAN, "PointRun")
OWN_ENVS |= {"bc": "Pendulum", "classifier": "dataset_bandit"}
# what an environment needs besides its name
ENV_WORDS = {"dataset_bandit": (f"env.kwargs.path={Path(__file__).parent / 'three_classes.csv'}",)}

# Small sizes by the last name of a key, for all algorithms that have it, or by the full path. Learning rates are high
# so that differences are visible after few updates.
SMALL: Values = {
    "num_envs": 2,
    "max_episode_steps": 20,
    "total_steps": 64,
    "hidden": [8],
    "features": 4,
    "sequence_length": 4,
    "warmup_steps": 8,
    "updates_per_step": 0.5,
    "batch_size": 8,
    "rollout_steps": 8,
    "min_steps": 16,
    "data_steps": 8,
    "online_after": 2,
    "capacity": 8,
    "learning_rate": 0.01,
    "actor_learning_rate": 0.01,
    "critic_learning_rate": 0.01,
    "epochs": 2,
    "interval": 2,
    "minibatch_size": 8,
    "target_every": 4,
    "num_atoms": 11,
    "num_quantiles": 5,
    "policy_delay": 2,
    "population": 4,
    "exploration_episodes": 2,
    "episodes": 2,
    "elite_fraction": 0.5,
    "initial_value": 0.5,
    "init_pulls": 1,
    "members": 2,
    "unroll_steps": 2,
    "td_steps": 2,
    "num_simulations": 4,
    "candidates": 8,
    "horizon": 3,
    "elites": 4,
    "c_visit": 1.0,
    "c_scale": 0.1,
    "latent_size": 8,
    "num_particles": 2,
    "latent": 4,
    "embedding": 4,
    "algo.reward_weights.thresholds": [None, -0.1],
}

# For algorithms that draw sequences from replay.
SEQUENCES: Values = {"network.sequence_length": 2, "network.burn_in": 1, "algo.buffer.capacity": 16}


@cache
def _toy(algo: str) -> Values:
    """Returns the small values of an algorithm, which the first process that asks composes for all workers."""
    if SHARED is None:
        return _composed(algo)
    file = SHARED / f"{algo}.json"
    if not file.exists():
        with TemporaryDirectory(dir=SHARED) as folder:
            written = Path(folder) / file.name
            written.write_text(json.dumps(_composed(algo)))
            written.replace(file)  # whole, for another worker may look for it
    return json.loads(file.read_text())


def _composed(algo: str) -> Values:
    faults = []
    for env in (OWN_ENVS[algo],) if algo in OWN_ENVS else ENVS:
        try:
            words = [f"algo={algo}", f"env={env}", "preset=none", *ENV_WORDS.get(env, ())]
            values = jobs(words)[0].values
            known = dict(leaves(values))
            values = put(values, small(known) | {"trainer.engine": "eager"})  # a recording would not pay
            build_loop(run_config(values)).env.close()
            return values
        except ConfigError as error:
            faults.append(f"{env}: {error}")
    raise AssertionError(f"algo={algo} is defined for none of the toy environments: {faults}")


def small(known: Values) -> Values:
    """Returns the small sizes for those keys that have one."""
    sizes = {key: SMALL.get(key, SMALL.get(key.rpartition(".")[2])) for key in known}
    if known.keys() >= SEQUENCES.keys():
        sizes |= SEQUENCES
    return {key: size for key, size in sizes.items() if size is not None}


def toy(algo: str, **changes: Any) -> Values:
    """Returns composed values of a small run; dotted keys are given as `**{"algo.gamma": 0.5}`."""
    values = put(_toy(algo), changes)
    if values["algo"]["loop"].get("data", "no such key") is None:
        values["algo"]["loop"]["data"] = recorded(json.dumps(values))
    return values


@cache
def recorded(text: str, steps: int = 24) -> str | None:
    """Returns a data set of random episodes in the environments of these values, or None if these are refused."""
    values = json.loads(text)
    values["algo"].pop("intrinsic", None)  # data sets hold the environment's own rewards
    given = json.dumps([values["env"], values["seed"], steps])
    if given not in RECORDED:
        try:
            loop: Any = build_loop(run_config(values))
        except ConfigError:
            return None
        RECORDED[given] = _recorded(loop, steps)
        loop.env.close()
    return RECORDED[given]


def _recorded(loop: Any, steps: int) -> str:
    Loop.begin(loop)
    stream = Stream(loop.seed, "warmup")
    policy = SimpleNamespace(act=lambda obs, carry, explore: (loop.env.sample(stream), {}))
    rollout = Rollout(loop.env.spec)
    for step in loop.collect(steps, policy):
        rollout.add(step | {"action": step["executed"]})
    rows = index(rollout.batch(), (slice(None), 0))
    ends = {*((rows["terminated"] | rows["truncated"]).nonzero().flatten() + 1).tolist(), steps}
    begins = sorted({0, *ends} - {steps})
    demos = [episode(index(rows, slice(begin, end))) for begin, end in zip(begins, sorted(ends), strict=True)]
    home = TemporaryDirectory()
    atexit.register(home.cleanup)
    write(Path(home.name) / "random-v0", demos, loop.env)
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


def derived(kind: Any, value: Any) -> tuple[Any, ...]:
    """Yields values that a type allows: another name, the other bool, twice or half the number; 0.5 or 1 for 0."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(value, bool):
        return (not value,)
    if not isinstance(value, int | float):
        return ()
    numbers = [2 * value, value / 2] if value else [0.5, 1]
    return tuple(number for number in numbers if allowed(kind, number))


def allowed(kind: Any, value: Any) -> bool:
    try:
        TypeAdapter(kind, config={"strict": True}).validate_python(value)
    except ValidationError:
        return False
    return True


def train(loop: Loop, updates: int) -> Loop:
    """Calls `tick` until this number of updates is done."""
    for _ in range(5000):
        if loop.updates >= updates:
            return loop
        loop.tick()
    raise AssertionError(f"only {loop.updates} updates in 5000 ticks")


def optims(loop: Loop) -> Iterator[tuple[str, Optim]]:
    return ((name, module) for name, module in loop.named_modules() if isinstance(module, Optim))


def weights(loop: Loop) -> list[Tensor]:
    """Returns the parameters of the agent, or its buffers if it has no parameters."""
    return [tensor.detach().clone() for tensor in [*loop.agent.parameters()] or [*loop.agent.buffers()]]


def streams(loop: Loop) -> list[Tensor]:
    return [module.generator.get_state() for module in loop.modules() if isinstance(module, Stream)]
