"""Guarantees of every algorithm. A new file in conf/algo is tested without further changes.

A variant is a YAML file that adds no class. By default it is tested for the keys in which it differs, and by a run that
learns, equals its recording and, if its parts hold more than weights, resumes. `-m full` tests every guarantee with
every variant.
"""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from itertools import islice, tee
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from torch._dynamo.backends.debugging import aot_eager
from toys import (
    ALGOS,
    BY_CLASS,
    BY_FAMILY,
    BY_LOOP,
    BY_PART,
    BY_STATE,
    CONTEXTUAL,
    MULTI_ARMED,
    NO_WEIGHTS,
    WITH_OWN_CLASS,
    WITH_OWN_PARTS,
    Values,
    derived,
    equal,
    optims,
    streams,
    toy,
    train,
    variant_of,
    weights,
)

from rlrun.core import ownership
from rlrun.core.collector import MemberPolicy
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.dotted import ABSENT, leaves, lookup
from rlrun.engine import inductor
from rlrun.engine.accelerate import kernels
from rlrun.errors import ConfigError
from rlrun.loops.evolution import Evolution
from rlrun.run.assemble import AROUND
from rlrun.settings import parts_of, registry
from rlrun.testing import check_acting, check_resuming

LEARNERS = [algo for algo in ALGOS if algo not in NO_WEIGHTS]
Build = Callable[..., Loop]

# Another value for a key, where what follows from its type changes too little, or is no value; of two, the one that is
# new.
OTHER: Values = {
    "algo.advantage.value_lambda": 0.5,
    "algo.particle.advantage.value_lambda": 0.5,
    "algo.epsilon.start": 0.5,
    "algo.controller.gains": [-0.1, -0.3, -1.0, -0.3],
    "algo.planner.init_std": 0.3,
    "algo.dynamics.network.hidden": [4],
    "algo.reward_model.network.hidden": [4],
    "algo.epsilon.end": 0.5,
    "algo.epsilon.fraction": 1.0,
    "algo.epsilon.end_step": 5,
    "algo.covariance": ("separable", "full"),
    "algo.td_lambda": 0.5,
    "algo.tau": 0.5,
    "algo.critic_update.optimizer": "rmsprop",
    "algo.critic_update.learning_rate": 0.1,
    "algo.critic_update.max_grad_norm": 0.001,
    "algo.optimizer_eps": 0.1,
    "algo.loop.lag": (1, 2),
    "algo.loop.min_rollouts": 5,
    "algo.loop.shards": 2,
    "algo.loop.shard_steps": 3,
    "algo.loop.start_update": 20,
    "algo.advantage.rho_clip": 2.0,
    "algo.advantage.c_clip": 0.5,
    "algo.clip_range": 0.001,
    "algo.critic_update.clip_value": 0.001,
    "algo.critic_update.huber_delta": 0.001,
    "algo.particle.critic_update.huber_delta": 0.001,
    "algo.advantage.clip": 0.01,
    "algo.particle.advantage.clip": 0.01,
    "algo.log_prob_clip": 0.01,
    "algo.particle.log_prob_clip": 0.01,
    "algo.max_grad_norm": 0.001,
    "algo.target_kl": 1e-9,
    "algo.trust_region.limit_per_dim": 1e-9,
    "algo.buffer.reward_clip": 0.5,
    "algo.noisy_std": 0.1,
    "algo.noisy_layers": 1,
    "algo.critic.huber_delta": 0.1,
    "algo.critic.v_max": 5.0,
    "algo.epsilon": 0.5,
    "algo.probs": [0.9, 0.1],
    "algo.a0": 0.001,
    "algo.b0": 1000.0,
    "algo.dropout": 0.5,
    "algo.noise_std": 1.0,
    "algo.epsilon.factor": 0.1,
    "algo.alpha": 20.0,
    "algo.beta": 20.0,
    "algo.prior_mean": 5.0,
    "algo.prior_std": 0.01,
    "algo.buffer.beta.start": 0.2,
    "algo.buffer.beta.end": 0.0,
    "algo.buffer.beta.fraction": 1e-6,
    "algo.buffer.epsilon": 10.0,
    "algo.critic.target_members": (1, 2),
    "algo.n_step": (3, 2),
    "algo.noise.theta": 0.9,
    "algo.loop.warmup_policy": "zero",
    "algo.loop.update_every": 16,
    "algo.loop.data_steps": 4,
    "algo.expectile": 0.6,
    "algo.max_weight": 0.5,
    "algo.covariance_about": "previous",
    "algo.elite_weights": "log",
    "algo.weight_decay": 0.1,
    "algo.target_noise": 0.7,
    "algo.target_noise_clip": 0.01,
    "algo.unroll_steps": 1,
    "algo.td_steps": 1,
    "algo.reanalyze_ratio": 0.5,
    "algo.search.value_bounds": ([-3.0, 3.0],),
    "algo.search.c1": 10.0,
    "algo.search.c2": 1.0,
    "algo.search.unvisited": 0.0,
    "algo.search.temperature.start": 100.0,
    "algo.search.temperature.end": 100.0,
    "algo.search.temperature.fraction": 1e-6,
    "algo.search.sampled_moves": 1,
    "algo.support": 3,
    "algo.gradient_scale": 0.1,
    "algo.search.considered": 1,
    "algo.search.c_visit": 0.0,
    "algo.search.c_scale": 0.01,
    "algo.representation": {
        "name": "predictive",
        "latent": 2,
        "unroll_steps": 1,
        "decode": {"obs": 1.0},
        "network": None,
        "dynamics_network": None,
        "learning_rates": {},
        "hidden": [],
        "learning_rate": 0.01,
        "epochs": 1,
        "minibatch_size": None,
    },
    "algo.representation.hidden": [4],
    "algo.representation.network": {"name": "linear"},
    "algo.intrinsic.network": {"name": "linear"},
    "algo.representation.dynamics_network": {"name": "linear"},
    "algo.representation.learning_rates": {"encoder": 0.1},
    "algo.entropy.target_entropy": 9.0,
    "algo.switch_entropy.target_entropy": 9.0,
    "algo.advantage_clip": [9.0, 9.0],
    "algo.max_repeats": 1,
    "algo.sequence_length": 2,
    "algo.prior.same_action_prob": 0.1,
    "algo.entropy.max_entropy": 99.0,
    "algo.entropy.min_alpha": 1.0,
    "algo.entropy.max_alpha": 0.1,
    "algo.switch_entropy.max_alpha": 0.1,
    "algo.goals": {"name": "categorical", "num_goals": 2},
    "algo.goals.num_goals": 3,
    "algo.intrinsic": {
        "name": "rnd",
        "gamma": 0.9,
        "separate": None,
        "episodic": True,
        "coef": 1.0,
        "reward_coef": 1.0,
        "clip": None,
        "hidden": [8],
        "learning_rate": 0.01,
        "epochs": 1,
        "minibatch_size": None,
        "embedding": 4,
        "frames": 1,
        "network": None,
        "obs_clip": 5.0,
        "statistics": {"name": "all"},
        "obs_statistics": {"name": "all"},
    },
    "algo.intrinsic.separate": False,
    "algo.intrinsic.reward_coef": 3.0,
    "algo.intrinsic.hidden": [4],
    "algo.buffer.reward_threshold": 1e9,
    "algo.buffer.rho": 0.3,
    "algo.num_particles": 1,
    "algo.bandwidth": 0.01,
    "algo.particle.optimizer": "rmsprop",
    "algo.particle.optimizer_eps": 0.1,
    "algo.particle.minibatch_size": 4,
    "algo.num_minibatches": 2,
    "algo.particle.num_minibatches": 2,
    "algo.particle.critic_update.clip_value": 0.001,
    "algo.particle.max_grad_norm": 0.001,
    "algo.particle.target_kl": 1e-9,
    "algo.particle.critic_update.optimizer": "rmsprop",
    "algo.particle.critic_update.learning_rate": 0.1,
    "algo.particle.critic_update.max_grad_norm": 0.001,
    "algo.particle.critic_update.minibatch_size": 4,
    "algo.intrinsic.clip": 0.01,
    "algo.intrinsic.obs_clip": 0.1,
    "algo.reward_weights.thresholds": [None, -9.0],
    "algo.reward_weights.initial_weights": [1.0, 3.0],
    "algo.reward_weights.max_weight": 0.5,
}

JOINT = {"name": "joint", "value_coef": 0.5, "clip_value": None, "huber_delta": None, "normalize_target": False}
# Other keys that must be set so that a key has an effect.
GIVEN: dict[str, Values] = {
    "algo.buffer.alpha": {"algo.buffer.reward_threshold": 1e9, "algo.buffer.phi": 0.9, "algo.buffer.rho": 0.0},
    "algo.buffer.capacity": {"algo.buffer.reward_threshold": 1e9, "algo.buffer.phi": 0.9, "algo.buffer.rho": 0.0},
    "algo.entropy.target_entropy": {"algo.entropy.skip_free_stage": True},
    "algo.entropy.slow_rate": {
        "algo.entropy.skip_free_stage": True,
        "algo.entropy.fast_rate": 0.001,
    },
    "algo.entropy.fast_rate": {"algo.entropy.skip_free_stage": True},
    "algo.num_minibatches": {"algo.minibatch_size": None},
    "algo.particle.num_minibatches": {"algo.particle.minibatch_size": None},
    "algo.advantage.value_lambda": {"algo.critic_update": JOINT},
    "algo.critic_update.clip_value": {"algo.epochs": 2},
    "algo.intrinsic.obs_clip": {"algo.intrinsic.obs_statistics": {"name": "all"}},
    "algo.target_kl": {"algo.epochs": 2},
    "algo.buffer.beta.fraction": {"algo.buffer.beta.start": 0.0, "algo.buffer.beta.end": 1.0},
    "algo.clip_range": {"algo.epochs": 2},
    "algo.noisy_layers": {"algo.noisy_std": 0.5},
    "algo.double": {"algo.learning_rate": 0.1, "algo.target_every": 1000},
    "algo.epsilon.start": {"algo.epsilon.fraction": 1.0, "algo.epsilon.end_step": None, "algo.noise_change": 4.0},
    "algo.epsilon.end": {"algo.epsilon.fraction": None, "algo.epsilon.end_step": 10},
    "algo.epsilon.fraction": {"algo.epsilon.start": 1.0, "algo.epsilon.end_step": None, "algo.epsilon.fraction": 0.1},
    "algo.epsilon.end_step": {"algo.epsilon.start": 1.0, "algo.epsilon.fraction": None},
    "algo.target_noise_clip": {"algo.target_noise": 0.5},
    "algo.act_with_dropout": {"algo.dropout": 0.5},
    "algo.loop.lag": {"algo.temperature": 0.001},
    "algo.epsilon.factor": {"algo.noise_change": 4.0},
    "algo.epsilon.updates": {"algo.noise_change": 4.0, "algo.epsilon.factor": 0.1},
    "algo.confidence": {"algo.play": "bound"},
    "algo.alpha": {"algo.posterior": "beta"},
    "algo.beta": {"algo.posterior": "beta"},
    "algo.prior_mean": {"algo.posterior": "normal"},
    "algo.prior_std": {"algo.posterior": "normal"},
    "algo.reward_std": {"algo.posterior": "normal"},
}

EMPTY_UPDATE = {"nop"}

# Keys that have tests of their own: those that name files, weights of reward vectors, what evaluations do, tasks
# (CartPole has none), discounts (they do not change the ranking by length), the types of stored demonstrations,
# schedules, how replay is filled after it was emptied, and losses that are only logged.
ELSEWHERE = ("algo.loop.data", "algo.buffer.given", "algo.buffer.own", "algo.buffer.supplementary",
             "algo.buffer.save_to", "algo.buffer.save_every", "algo.buffer.num_saved", "algo.loop.data_env",
             "algo.buffer.data_env", "algo.reward_weights.weights", "algo.reward_weights.evaluation_rate",
             "algo.reward_weights.gamma",
             "algo.loop.new_tasks", "algo.loop.test_tasks", "algo.loop.gamma",
             "algo.loop.dtypes.obs", "algo.buffer.dtypes.obs", "algo.buffer.dtypes.action", "algo.buffer.dtypes.reward",
             "algo.schedule", "algo.loop.refill_policy", "algo.buffer.compression",
             "algo.loss_after", "algo.particle.loss_after")  # fmt: skip

# "<algo>: <key>" of keys that change neither weights nor the next observations, with the reason.
NOT_LIVE: dict[str, str] = {
    "ppo_rnd: algo.intrinsic.frames": "of stacked images",
    "svpg: algo.particle.target_kl": "no particle moves while its gradients are collected",
    "cma_es: algo.report": "says which parameters are evaluated",
    "oac: algo.beta_ub": "changes the direction of exploration; with one action dimension, there are only two",
    **{
        f"{algo}: algo.{key}": "replay: one return, batches seen once"
        for algo, keys in (
            ("latent_mbrl", ("representation.epochs", "representation.minibatch_size")),
            (
                "sac_composite",
                (
                    "representation.epochs",
                    "representation.minibatch_size",
                    "intrinsic.separate",
                    "intrinsic.episodic",
                    "intrinsic.epochs",
                    "intrinsic.minibatch_size",
                ),
            ),
            (
                "diayn",
                (
                    "intrinsic.separate",
                    "intrinsic.episodic",
                    "intrinsic.epochs",
                    "intrinsic.minibatch_size",
                    "intrinsic.gamma",
                ),
            ),
        )
        for key in keys
    },
}
CLONES = ("bc", "causal_bc")
NOT_LIVE |= {f"{algo}: algo.buffer.capacity": "room for the data sets" for algo in (*CLONES, "iql")}
NOT_LIVE |= {
    f"{algo}: algo.buffer.{key}": "rewards are not looked at"
    for algo in CLONES
    for key in ("reward_clip", "reward_scale", "standardize_reward")
}
ON_POLICY = ("a2c", "a2c_split", "a2c_minibatch", "trac", "vpg", "vtrace", "ppo", "ppo1", "ppo2", "ppo_critic_first",
             "ppo_lstm", "ppg", "ppo_demos", "ppo_rnd", "ppo_icm", "ppo_composite")  # fmt: skip
NOT_LIVE |= {
    f"{algo}: algo.{key}": "of Box actions, where ppo_lagrangian's toy has them"
    for algo, key in (*((algo, "init_std") for algo in ON_POLICY), ("svpg", "particle.init_std"))
}


# "<algo>: <key>" of keys that cannot be set, with the reason.
REFUSED: dict[str, str] = {
    "ppo_demos: algo.goals": "demonstrations come without goals",
    "ppo_demos: algo.target_kl": "a demonstrator is no older policy",
    "sac_from_data: algo.goals": "and so do data sets",
    "sac_from_data: algo.representation": "data sets are sampled beside what is collected, step by step",
    "sac_lagrangian: algo.intrinsic": "a bonus is added to one number",
    "sac_hold: algo.gamma": "must be the discount of the wrapper `hold`",
}
REFUSED |= {
    f"{algo}: algo.loop.shards": "their environments are stepped at once, or belong to particles"
    for algo in (*MULTI_ARMED, *CONTEXTUAL, "classifier", "svpg")
}
REFUSED |= {
    f"{algo}: algo.{part}": "parts that know no sequences"
    for algo in ("recurrent_sac", "r2d2")
    for part in ("representation", "goals", "intrinsic")
}
REFUSED |= {
    f"{algo}: algo.{key}": "of Box actions"
    for algo, key in (
        *((algo, "noise.random_action") for algo in (*ON_POLICY, "discrete_sac", "sac_hold")),
        ("svpg", "particle.noise.random_action"),
    )
}


def test_variants_with_own_parts_and_classes_have_every_part() -> None:
    having: dict[type, list[str]] = {}
    for algo in ALGOS:
        for cls, _ in parts(toy(algo)["algo"]).values():
            having.setdefault(cls, []).append(algo)
    tested = {*WITH_OWN_CLASS, *WITH_OWN_PARTS}
    assert not [cls for cls, algos in having.items() if tested.isdisjoint(algos)]


@pytest.mark.parametrize("algo", ALGOS)
def test_keys_of_the_yaml_are_the_fields_of_the_config(algo: str) -> None:
    for path, (cls, section) in parts(toy(algo)["algo"]).items():
        assert {field.name for field in fields(cls.Config)} == section.keys() - {"name"}, path


def parts(values: Values) -> dict[str, tuple[Any, Values]]:
    """Returns class and config section of the agent and of every part at any depth, by path."""
    found: dict[str, tuple[Any, Values]] = {}

    def visit(path: str, group: str, section: Values) -> None:
        cls = registry.lookup(group, section["name"])
        found[path] = cls, section
        for field, inner in parts_of(cls.Config).items():
            if section[field] is not None:  # a part that the algorithm can do without
                visit(f"{path}.{field}", inner, section[field])

    for name in AROUND:
        if values.get(name):
            visit(f"algo.{name}", name, values[name])
    visit("algo", "algo", {key: value for key, value in values.items() if key not in AROUND})
    return found


@pytest.mark.parametrize("algo", [one for one in BY_PART if one.values[0] in LEARNERS])
def test_every_weight_moves_and_has_one_optimiser(algo: str, build: Build) -> None:
    loop = build(toy(algo))
    if not list(optims(loop)):
        before = weights(loop)
        assert equal(before, weights(train(loop, 2))) == (algo in EMPTY_UPDATE)
        return
    for weight in ownership.weights(loop.agent, loop.addons):
        assert len(weight.owners) == weight.is_trained, weight
    trainable = {name: param for name, param in loop.named_parameters() if param.requires_grad}
    before = {name: param.detach().clone() for name, param in trainable.items()}
    train(loop, 6)
    still = [name for name, param in trainable.items() if torch.equal(param, before[name])]
    assert not still
    assert all(torch.isfinite(param).all() for param in trainable.values())
    assert not any(optim.fault for _, optim in optims(loop))


@pytest.mark.parametrize("algo", ALGOS)
def test_every_key_of_its_own_changes_what_is_learned(algo: str, build: Build) -> None:
    """A key of a part is tried with one of the algorithms that have the part; a variant's, if it has another value."""
    base = variant_of(algo)
    inherited = {} if base is None else keys_of(base)
    keys = {key: value for key, value in keys_of(algo).items() if inherited.get(key, ABSENT) != value}
    known = parts(toy(algo)["algo"])
    tried_elsewhere = {path for path, (cls, _) in known.items() if path != "algo" and first_with(cls) != algo}
    check_keys(algo, {key: value for key, value in keys.items() if part_of(key, known) not in tried_elsewhere}, build)


@pytest.mark.full
@pytest.mark.parametrize("algo", ALGOS)
def test_every_key_changes_what_is_learned(algo: str, build: Build) -> None:
    check_keys(algo, keys_of(algo), build)


@cache
def first_with(part: type) -> str:
    """Returns the algorithm with which the keys of a part are tried: one with a class of its own, if possible."""
    having = [algo for algo in ALGOS if part in classes_of(algo)]
    return min(having, key=lambda algo: variant_of(algo) is not None)


@cache
def classes_of(algo: str) -> set[type]:
    """Returns the classes of an algorithm and its parts."""
    return {cls for cls, _ in parts(toy(algo)["algo"]).values()}


def part_of(key: str, known: dict[str, Any]) -> str:
    """Returns the path of the part that a key belongs to."""
    return max((path for path in known if key.startswith(f"{path}.")), key=len)


def keys_of(algo: str) -> Values:
    """The keys of an algorithm and its parts that hold values, with those values."""
    known = leaves({"algo": toy(algo)["algo"]})
    return {key: value for key, value in known if key not in ELSEWHERE and not key.endswith("name")}


def check_keys(algo: str, keys: Values, build: Build) -> None:
    """Each of these keys changes weights or observations, but for those of NOT_LIVE; those of REFUSED are refused."""
    counts = (1, 2, 4, 8, 16) if "buffer" in toy(algo)["algo"] else (1, 2, 4)

    def outcomes(changes: Values) -> Iterator[Any]:
        """Yields weights and observations after one update, which most keys change, and after more."""
        loop = build(toy(algo, **changes))
        for count in counts:
            train(loop, count)
            yield [*weights(loop), copy.deepcopy(loop.obs)]

    plain, first = tee(outcomes({}))  # which trains no longer than the keys need
    assert all(map(equal, islice(first, 2), outcomes({}))), "this test needs runs that repeat"
    dead = set()
    for key, value in keys.items():
        changed = {key: another(algo, key, value)}
        if f"{algo}: {key}" in REFUSED:
            with pytest.raises(ConfigError):
                build(toy(algo, **changed))
            continue
        given = GIVEN.get(key, {})
        given = {needed: setting for needed, setting in given.items() if lookup(needed, toy(algo)) is not ABSENT}
        plain, before = tee(plain)
        if given:
            before = outcomes(given)
        if all(map(equal, before, outcomes(given | changed))):
            dead.add(f"{algo}: {key}")
    assert dead == {listed for listed in NOT_LIVE if listed in {f"{algo}: {key}" for key in keys}}


def another(algo: str, key: str, value: Any) -> Any:
    """Returns another value for a key: from OTHER, or else one that its type allows."""
    choices = OTHER[key] if key in OTHER else derived(field_type(algo, key), value)
    choices = choices if isinstance(choices, tuple) else (choices,)
    found = [choice for choice in choices if choice != value]
    assert found, f"{key}: give another value for it in OTHER"
    return found[0]


def field_type(algo: str, key: str) -> Any:
    """Returns the type of a key of `algo`, or of one of its parts, from the Config."""
    path, _, name = key.rpartition(".")
    known = parts(toy(algo)["algo"])
    if path not in known:
        return Any
    return get_type_hints(known[path][0].Config, include_extras=True).get(name, Any)


@pytest.mark.parametrize("algo", BY_STATE)
def test_a_run_continued_from_disk_is_the_run_that_never_stopped(algo: str, build: Build) -> None:
    loop = train(build(toy(algo)), 1)
    for _ in range(5):  # into the middle of an episode or a generation
        loop.tick()
    other = build(toy(algo), begin=False)
    check_resuming(loop, other)
    assert (loop.steps, loop.updates, loop.metrics.episodes) == (other.steps, other.updates, other.metrics.episodes)


@pytest.mark.parametrize("algo", [one for one in BY_FAMILY if one.values[0] in LEARNERS])
def test_equal_seeds_give_equal_runs_and_other_seeds_others(algo: str, build: Build) -> None:
    first, same, other = (weights(train(build(toy(algo, seed=seed)), 2)) for seed in (5, 5, 6))
    assert equal(first, same)
    assert not equal(first, other)


@pytest.mark.parametrize("algo", BY_CLASS)
def test_act_reads_its_acting_modules_and_changes_nothing_but_streams(algo: str, build: Build) -> None:
    """The action depends only on observation, carry, streams and the modules of `acting()`."""
    loop: Any = train(build(toy(algo)), 1)
    agent, addons = loop.agent, loop.addons
    policy = agent
    if isinstance(loop, Evolution):
        policy = MemberPolicy(agent, agent.ask()[[0] * loop.spec.num_envs])
    before = {name: tensor.clone() for name, tensor in held(agent).items()}
    drawn = [source.generator.get_state() for source in sources(loop)]

    def act(explore: bool) -> Any:
        for source, state in zip(sources(loop), drawn, strict=True):
            source.generator.set_state(state)
        return addons.act(policy, loop.obs, loop.carry, explore)

    expected = [act(True), act(False)]
    assert equal(before, held(agent))
    reads = {tensor.data_ptr() for part in (*agent.acting(), *addons.acting()) for tensor in held(part).values()}
    reads |= {tensor.data_ptr() for tensor in agent.buffers(recurse=False)}
    for tensor in [*held(agent).values(), *held(addons).values()]:
        if tensor.data_ptr() not in reads and tensor.is_floating_point():
            tensor.fill_(torch.nan)
    assert equal(expected, [act(True), act(False)]), "act reads a module that acting() does not name"


def held(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, detached but not copied."""
    found = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor.detach() for name, tensor in found.items()}


def sources(loop: Loop) -> list[Stream]:
    return [module for module in loop.modules() if isinstance(module, Stream)]


@pytest.mark.parametrize("algo", BY_CLASS)
def test_acting_without_exploring_repeats_and_draws_nothing(algo: str, build: Build) -> None:
    check_acting(train(build(toy(algo)), 1))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch hides it from users too
@pytest.mark.parametrize("algo", BY_LOOP)
def test_kernels_agree_with_compiled_ones(
    algo: str, build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inductor, "compiled_graph", aot_eager)
    changes: Values = {"trainer.engine": "compile"}
    if algo == "ppg":  # in the first step of a phase, the gradient of the divergence is nothing but rounding
        changes["algo.critic_update.clone_coef"] = 0.0
    loop = build(toy(algo, **changes))
    learners = torch.nn.ModuleDict({"agent": loop.agent, "addons": loop.addons})
    paths = {module: path for path, module in learners.named_modules()}
    compiled = {f"{paths[module]}.{name}": getattr(module, name) for module, name in kernels(learners)}
    calls: dict[str, Any] = {}
    for module, name in kernels(learners):
        watch(loop, learners, module, name, calls, f"{paths[module]}.{name}")
    train(loop, 2)
    assert calls.keys() == compiled.keys()
    for name, (args, before, result, after) in calls.items():
        learners.load_state_dict(before)
        torch.testing.assert_close(compiled[name](*args), result, msg=f"{name}: its value differs")
        allowed = rounding_of_steps(learners)
        for key, value in learners.state_dict().items():
            if isinstance(value, torch.Tensor):
                near = value.clamp(after[key] - allowed[key], after[key] + allowed[key]) if key in allowed else value
                torch.testing.assert_close(value, near, msg=f"{name}: {key} differs")
            else:
                assert equal(value, after[key]), f"{name}: {key} differs"
    assert not [record for record in caplog.records if record.name == inductor.__name__], "the compiler failed"


ROUNDING = 1e-6  # error of a gradient that two orders of summation make, relative to the largest gradient


def rounding_of_steps(learners: torch.nn.Module) -> dict[str, torch.Tensor]:
    """How far a step of an optimiser may differ for the rounding of its gradients, for every element of a parameter.

    Adam divides a gradient by its size. Of one that is nothing but rounding, as that of a bias that normalisation takes
    out again, it makes a whole step in any direction.
    """
    allowed: dict[str, torch.Tensor] = {}
    names = {id(param): name for name, param in learners.named_parameters()}
    for optim in (module for module in learners.modules() if isinstance(module, Optim)):
        gradient = optim.exp_avg_sq.sqrt()
        error = ROUNDING * gradient.max() / gradient.clamp(min=1e-30)
        moved = 2 * optim.learning_rate * error.clamp(max=1)
        parts = moved.split([param.numel() for param in optim.params])
        for param, part in zip(optim.params, parts, strict=True):
            name, near = names[id(param)], part.view_as(param)
            allowed[name] = torch.maximum(near, allowed.get(name, near))  # two optimisers may hold a parameter
    return allowed


def tensors(part: Any) -> list[torch.Tensor]:
    return list(part.values()) if isinstance(part, dict) else [part]


def watch(loop: Loop, learners: Any, module: torch.nn.Module, name: str, calls: dict[str, Any], path: str) -> None:
    """Records arguments and effects of the first call of a kernel; checks at every call that it draws nothing."""
    eager = getattr(type(module), name).__get__(module)

    def call(*args: Any) -> Any:
        given, before, drawn = copy.deepcopy(args), copy.deepcopy(learners.state_dict()), random_states(loop)
        result = eager(*args)
        assert equal(drawn, random_states(loop)), f"{name} draws random numbers"
        given_back = [value for part in (result if isinstance(result, tuple) else (result,)) for value in tensors(part)]
        assert not any(value.requires_grad for value in given_back), f"{name}: what it gives back is not detached"
        calls.setdefault(path, (given, before, copy.deepcopy(result), copy.deepcopy(learners.state_dict())))
        return result

    object.__setattr__(module, name, call)


def random_states(loop: Loop) -> list[Any]:
    _, keys, position, *_ = np.random.get_state()
    return [streams(loop), torch.get_rng_state(), torch.from_numpy(keys.copy()), position, random.getstate()]
