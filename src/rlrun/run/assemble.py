"""Builds the parts of a run from its typed config: environments, agent, add-ons, buffer, loop."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from gymnasium import Space
from gymnasium.spaces import flatdim
from torch import nn

from rlrun import engine, memory
from rlrun.addons.memory import RecurrentState
from rlrun.addons.normalise import normalisers
from rlrun.addons.previous import PreviousStep
from rlrun.addons.rewards import reward_weight_addons
from rlrun.addons.rewards.total import intrinsic_addons
from rlrun.addons.transforms import transforms_of
from rlrun.addons.transforms.untransformed import Untransformed
from rlrun.buffers.replay import Reading
from rlrun.config.schema import RunConfig
from rlrun.core import ownership
from rlrun.core.addon import Addon, Addons
from rlrun.core.agent import Agent
from rlrun.core.callback import Callback, Callbacks
from rlrun.core.learner import Learner
from rlrun.core.loop import Loop
from rlrun.core.parts import ROLES, Parts, agent_class, alternatives, for_role, previous_inputs
from rlrun.core.random import reseed_for_shard, seed_for, sequence
from rlrun.envs.config import SINGLE, EnvConfig
from rlrun.envs.making.make import Recipe
from rlrun.envs.same_spaces import described, difference
from rlrun.envs.saving.verdicts import Verdict
from rlrun.envs.stepping.accelerated import Accelerated
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.envs.wrappers.wrapper import in_evaluation
from rlrun.errors import ConfigError, RunError
from rlrun.imports import typed_again
from rlrun.loops.around import around_algorithm, buffer_settings
from rlrun.networks.recurrent import is_recurrent
from rlrun.run.data import evaluation_digests
from rlrun.run.exactness import Machine
from rlrun.schedules.curriculum import Curriculum
from rlrun.schedules.numbers import OTHER_PARTS, Schedules
from rlrun.settings import Discounted, NStepReturns, Requires, registry
from rlrun.shards.collector import ShardedCollector
from rlrun.shards.env import ShardedEnv
from rlrun.shards.placement import OwnProcess, Placement
from rlrun.shards.shard import Shard
from rlrun.types import MASK, Discount, Spec

AROUND = ("schedule", *OTHER_PARTS)  # sections of `algo` that are no settings of the agent
UNITS = 64  # `check_sizes` requires memory for a layer of so many units, and for a minibatch of so many rows
FLOAT_BYTES = 4
EVAL_ENVS = 16  # maximum number of environments in an evaluation, unless `trainer.eval_envs` is set


def build_loop(config: RunConfig) -> Loop:
    """Returns the loop of a run with its environments, agent, add-ons and buffer. Weights are drawn from the seed.

    Raises ConfigError if a setting is invalid.
    """
    check_ranges(config)
    check_requirements(config)
    curriculum = build_curriculum(config.env.schedule)
    device = prepare_device(config)
    engine.check(config.trainer.engine, device)
    tables = evaluation_digests(config.env)
    env = build_env(config, device)
    env.digests = env.digests | tables
    try:
        config, schedules = scheduled(config, device)
        agent, addons = build_agent(config, env.spec, device)
        check_beside(config, addons)
        env.read_reports = reported(config, agent, addons, env.spec)
        buffer = build_buffer(config, agent, addons, env.spec, device)
        parts = (agent, addons, env, buffer, config.seed, config.trainer.total_steps)
        loop: Loop = registry.build("loop", config.algo["loop"], *parts, path="algo.loop")
        loop.curriculum = curriculum
        loop.schedules = schedules
        loop.update_horizon = config.trainer.total_updates or 0
        loop.measure_after = config.trainer.measure_after
        if isinstance(env, ShardedEnv):
            loop.collector = ShardedCollector(agent, addons, schedules, env, loop.clock)
        set_first_parameters(loop)
    except BaseException:
        env.close()
        raise
    return loop


def scheduled(config: RunConfig, device: torch.device) -> tuple[RunConfig, Schedules]:
    """Returns a config in which hyperparameters with a schedule are tensors, and the schedules, which change them."""
    with device:
        schedules = Schedules(config.algo)
    return dataclasses.replace(config, algo=schedules.applied(config.algo)), schedules


def build_env(config: RunConfig, device: torch.device) -> VectorEnv | ShardedEnv:
    """Returns the environments of a run, in shards if `algo.loop.shards` is set. Raises ConfigError."""
    count = config.algo["loop"].get("shards")
    place: Placement = registry.build("cluster", config.cluster, path="cluster")
    if count is None:
        if not isinstance(place, OwnProcess):
            raise ConfigError(f"cluster={place.registered}: runs shards, of which there are none; set algo.loop.shards")
        return VectorEnv.make(config.env, sequence(config.seed, "env"), device)
    setting, num_envs = f"algo.loop.shards={count}", config.env.num_envs
    if config.env.backend == "ray":
        raise ConfigError(f"env.backend=ray: {setting} steps the environments in its shards; set cluster=ray instead")
    if num_envs % count:
        raise ConfigError(f"{setting}: must divide env.num_envs={num_envs}")
    one = VectorEnv.make(dataclasses.replace(config.env, num_envs=1), sequence(config.seed, "env"), device)
    try:
        if one.pool is None or one.recipe is None or one.verdict is None:
            raise ConfigError(f"{setting}: is not supported by {one.name}, which steps all its environments at once")
        if not isinstance(place, OwnProcess):  # a worker imports the user's parts, and steps its environments itself
            plugins = [typed_again(plugin) or plugin for plugin in config.plugins]
            config = dataclasses.replace(config, plugins=plugins, env=dataclasses.replace(config.env, backend="sync"))
        build = partial(build_shards, config, one.recipe, one.verdict, Machine.here())
        groups = place.start(count, build, one.recipe, config.env.timeout_s)
        return ShardedEnv(one, groups, num_envs)
    except EnvError as error:
        one.close()
        raise ConfigError(f"{setting}: a worker cannot be started ({error.reason})") from error
    except BaseException:
        one.close()
        raise


def build_shards(
    config: RunConfig, one: Recipe, verdict: Verdict, machine: Machine, shards: Sequence[int]
) -> dict[int, Shard]:
    """Returns some of the shards of a run, by their numbers. May be called in a worker.

    They act on the CPU, also if the agent learns on a GPU: a worker need not have one, and the results are the same.
    one, verdict: how an environment is made, and the result of its self-test. machine: that of the run.
    Raises ConfigError if this one is another.
    """
    registry.load([plugin for plugin in config.plugins if typed_again(plugin) is None])
    engine.prepare(config.trainer.threads, config.trainer.precision)
    device = torch.device("cpu")
    machine.check()
    config, schedules = scheduled(config, device)
    num_envs = config.env.num_envs
    block = num_envs // config.algo["loop"]["shards"]
    env_config = dataclasses.replace(config.env, num_envs=block)
    built = {}
    for shard in shards:
        env = VectorEnv.block(env_config, one, verdict, sequence(config.seed, "env"), device, shard * block)
        spec = dataclasses.replace(env.spec, num_envs=num_envs, first_env=shard * block)
        agent, addons = build_agent(config, spec, device)
        # where the process of the run never acts, shard 0 may draw what a run without shards would draw
        if shard or registry.lookup("loop", config.algo["loop"]["name"]).replays:
            for part in (agent, addons):
                reseed_for_shard(part, shard)
        env.read_reports = reported(config, agent, addons, env.spec)
        built[shard] = Shard(agent, addons, schedules, env)
    return built


def build_agent(config: RunConfig, spec: Spec, device: torch.device) -> tuple[Agent, Addons]:
    """Returns the agent and its add-ons, with weights drawn from the seed and kernels replaced by the engine.

    Hyperparameters are constant, as in an evaluation, unless `Schedules.applied` has replaced them.
    """
    check_sizes(spec)
    seed = seed_for(config.seed, "weights")
    with torch.random.fork_rng(devices=[]), device:
        torch.default_generator.manual_seed(seed)
        if device.type != "cpu":
            torch.manual_seed(seed)  # of all devices; this formats stacks, which takes a tenth of the time of a build
        cls, cfg = agent_class(agent_values(config), spec)
        addons = build_addons(config, spec, cfg, device)
        read = previous_inputs(config.network)
        if read:
            addons.append(PreviousStep(read, addons.spec_after(spec), "network"))
        spec = addons.spec_after(spec)
        parts = Parts(config.seed, device, config.network, spec, "agent", addons.encoder_of_agent, addons.predictor)
        if any(cls.lacks(spec)):
            cls.check(spec, advice=alternatives(spec))
        agent = cls(cfg, spec, parts)
        addons.attach_to(agent)
    faults = [*parts.unsupported(agent)]
    if faults:
        raise ConfigError(*faults)
    if parts.memory.size:
        addons.append(RecurrentState(parts.memory))
    ownership.check(agent, addons)
    for part in (agent, addons):
        engine.accelerate(part, config.trainer.engine, config.trainer.precision, device)
    return agent, addons


def build_addons(config: RunConfig, spec: Spec, agent_cfg: Any, device: torch.device) -> Addons:
    """Returns the add-ons in their order: transforms, normalisation, reward weights, representation, goals and
    intrinsic rewards.

    Each add-on is built for the spec that the previous ones return. agent_cfg: the Config of the agent.
    """
    weights = config.algo.get("reward_weights")
    of_weights: list[Addon] = []
    if weights:
        of_weights = reward_weight_addons(weights, spec, config.trainer.evaluates_during)
    weighted = spec
    for part in of_weights:
        weighted = part.spec_after(weighted)
    gamma: Discount | None = None
    if isinstance(agent_cfg, Discounted):
        gamma = weighted.discount(agent_cfg.gamma)
    n_step = 1
    if isinstance(agent_cfg, NStepReturns):
        n_step = agent_cfg.n_step
    loop: type[Loop] = registry.lookup("loop", config.algo["loop"]["name"])

    addons = Addons()
    addons.add("transforms", transforms_of(config.env.transforms, spec, loop.replays, loop.relabels))
    addons.add("normalize", normalisers(config.env.normalize, addons.spec_after(spec), gamma, n_step, loop.phases))
    if weights:
        addons.add("reward_weights", of_weights)
    read = (config.algo.get("representation") or {}).get("previous")
    if read:
        addons.add("previous", [PreviousStep(read, addons.spec_after(spec), "algo.representation")])
    for name in ("representation", "goals"):
        addon = build_addon(config, name, addons.spec_after(spec), device)
        if addon is not None:
            addons.add(name, [addon])
    intrinsic = build_addon(config, "intrinsic", addons.spec_after(spec), device)
    of_rewards = intrinsic_addons(addons.reward_modules, intrinsic, spec, loop.replays, n_step)
    addons.add("intrinsic", of_rewards)
    return addons


def build_buffer(config: RunConfig, agent: Agent, addons: Addons, spec: Spec, device: torch.device) -> nn.Module | None:
    """Returns the buffer of a run, or None if its algorithm has none. spec: of the training environments."""
    values = buffer_settings(config.algo)
    if not values:
        return None
    reading = reading_of(agent, addons, reported(config, agent, addons, spec))
    reading = reading._replace(own_rewards=spec.reward_dim)
    stored = dataclasses.replace(spec, reward_dim=spec.reward_dim + len(addons.reward_modules))
    stored = registry.lookup("loop", config.algo["loop"]["name"]).replay_spec(config.algo["loop"], stored)
    buffer: nn.Module = registry.build("buffer", values, stored, reading, config.seed, device, path="algo.buffer")
    return buffer


def build_addon(config: RunConfig, name: str, spec: Spec, device: torch.device) -> Any:
    """Builds the part `algo.<name>` for the given spec, or returns None if the config has none."""
    values = config.algo.get(name)
    if not values:
        return None
    parts = Parts(config.seed, device, config.network, spec, name)
    return registry.build(name, values, spec, parts, path=f"algo.{name}")


def reading_of(agent: Agent, addons: Addons, reports: Mapping[str, Space]) -> Reading:
    """Returns what replay must sample for an agent and its add-ons. reports: those of the environment that they read.

    A recurrent network needs sequences. They are n_step - 1 steps longer than the network's `sequence_length`, because
    the n-step return of the last step of that length needs the rewards of the steps after it.
    """
    cfg = agent.cfg
    reading = Reading(
        sequence_length=agent.sequence_length,
        extras={**agent.stores, **addons.stores, **reports},
        num_next_steps=num_next_steps(agent, addons),
    )
    if addons.transforms:
        keeps_raw = any(isinstance(transform, Untransformed) for transform in addons.transforms)
        reading = reading._replace(per_step=addons.per_step, keeps_raw=keeps_raw)
    if isinstance(cfg, NStepReturns):
        reading = reading._replace(gamma=agent.spec.discount(cfg.gamma), n_step=cfg.n_step)
    if agent.memory.size:
        length = agent.memory.sequence_length + reading.n_step - 1
        reading = reading._replace(sequence_length=length, burn_in=agent.memory.burn_in)
    return reading


def reported(config: RunConfig, agent: Agent, addons: Addons, spec: Spec) -> dict[str, Space]:
    """Returns the reports that the agent and its add-ons read, with their spaces.

    Raises ConfigError for one that the environment does not report or that the loop does not hand on.
    """
    learners = [module for part in (agent, addons) for module in part.modules() if isinstance(module, Learner)]
    names = sorted({name for learner in learners for name in learner.reads})
    loop = registry.lookup("loop", config.algo["loop"]["name"])
    faults = []
    for name in names:
        reads = f"algo={agent.registered}: reads {name!r}"
        if name not in spec.reports:
            faults.append(f"{reads}, but this environment reports {', '.join(spec.reports) or 'nothing'}")
        elif name in agent.stores or name in addons.stores:
            faults.append(f"{reads}, but stores another entry of this name")
        elif not loop.has_reports or (loop.replays and agent.memory.size):
            faults.append(f"{reads}, which algo.loop={loop.registered} does not hand on to this algorithm")
    if faults:
        raise ConfigError(*faults)
    return {name: spec.reports[name] for name in names}


def num_next_steps(agent: Agent, addons: Addons) -> int:
    """Returns the length of the sequences `next_steps` that the agent or an add-on reads; 0: none.

    Raises ConfigError if the agent does and its network is recurrent.
    """
    if agent.num_next_steps and agent.memory.size:
        setting = f"algo={agent.registered} with algo.entropy_reward=every_step"
        raise ConfigError(f"{setting} does not support a recurrent network")
    return max(agent.num_next_steps, addons.num_next_steps)


def check_start(config: RunConfig, device: torch.device) -> None:
    """Raises ConfigError for a precision that the device of a new run does not support.

    A resumed run, which may use another device, is not checked.
    """
    if config.trainer.precision == "tf32" and device.type != "cuda":
        raise ConfigError(f"trainer.precision=tf32: needs a CUDA device, but device={config.device} is the CPU here")


def check_backend(backend: str, env: VectorEnv | ShardedEnv) -> None:
    """Raises ConfigError if single environments were chosen, but there is only a simulator for all of them."""
    possible = "sync"
    if isinstance(env, Accelerated):
        possible = "torch"
    if env.pool is None and backend in SINGLE and backend != possible:
        raise ConfigError(
            f"env.backend={backend}: {env.name} has no single environments, only a simulator for all; "
            f"set env.backend={possible}"
        )


def check_evaluation(config: RunConfig, spec: Spec, device: torch.device) -> None:
    """Raises ConfigError if the environment does not accept `env.eval_kwargs`, or has other spaces with them.

    spec: of the training environments.
    """
    if not config.env.eval_kwargs or not config.trainer.eval_episodes:
        return
    masked = MASK in getattr(spec.obs, "spaces", ())
    try:
        env = eval_env(config, config.seed, "eval.check", 1, device, masked)
    except ConfigError as error:
        raise ConfigError(*[f"env.eval_kwargs: {fault}" for fault in error.faults]) from error
    env.close()
    differs = difference(described(spec), described(env.spec))
    if differs:
        raise ConfigError(f"env.eval_kwargs={config.env.eval_kwargs}: {differs}")


def check_beside(config: RunConfig, addons: Addons) -> None:
    """Raises ConfigError if evaluations beside training come too late for an add-on or a callback."""
    if not config.trainer.eval_beside:
        return
    late = [f"the add-on {type(addon).__name__}" for addon in addons if addon.reads_evaluations]
    for values in config.callbacks:
        if registry.lookup("callback", values["name"]).on_evaluation is not Callback.on_evaluation:
            late.append(f"the callback {values['name']}")
    if late:
        needs = "needs each evaluation before training goes on; set trainer.eval_beside=false"
        raise ConfigError(*[f"trainer.eval_beside=true: {what} {needs}" for what in late])


def check_sizes(spec: Spec) -> None:
    """Raises ConfigError if UNITS vectors of the size of an observation or an action do not fit into the memory.

    A layer of UNITS units has so many weights, and a minibatch of UNITS one-hot vectors so many numbers.
    """
    for what, space in (("observations", spec.obs), ("actions", spec.shown_action)):
        memory.check_fits(f"env: {space} {what} in {UNITS} one-hot vectors", UNITS * FLOAT_BYTES * flatdim(space))


def agent_values(config: RunConfig) -> dict[str, Any]:
    """Returns the settings in `algo` that belong to the agent, without those of loop, buffer and add-ons."""
    return {key: value for key, value in config.algo.items() if key not in AROUND}


def build_curriculum(schedules: dict[str, dict[str, Any]]) -> Curriculum | None:
    """Returns the schedules of attributes of the environment, or None if there are none."""
    if not schedules:
        return None
    return Curriculum(schedules)


def set_first_parameters(loop: Loop) -> None:
    """Passes the first values of scheduled attributes to the environments.

    Raises ConfigError if an environment lacks an attribute, or does not accept one of the values that it will have.
    """
    if loop.curriculum is None:
        return
    try:
        for values in loop.curriculum.samples():
            loop.env.set_parameters(values)
        loop.set_parameters()
    except RunError as error:
        raise ConfigError(getattr(error.__cause__, "reason", str(error))) from error


def build_callbacks(config: RunConfig) -> Callbacks:
    """Returns the callbacks of a run."""
    callbacks = []
    for index, values in enumerate(config.callbacks):
        callbacks.append(registry.build("callback", values, path=f"callbacks.{index}"))
    return Callbacks(callbacks)


def check_requirements(config: RunConfig) -> None:
    """Asks every part what it requires of the others. Raises one ConfigError with all faults."""
    networks = {str(values["name"]): values for values in map(partial(for_role, config.network), (*ROLES, None))}
    networks[config.network["name"]] = config.network
    around = around_algorithm(config.algo)._replace(
        network=next(filter(is_recurrent, networks), config.network["name"]),
        remembers=registry.lookup("algo", config.algo["name"]).remembers,
        recurrent=any(map(is_recurrent, networks)),
        executed_action=config.env.executed_action,
        draws_tasks=bool(config.env.task_kwargs),
        instance_seed=config.env.instance_seed,
        eval_episodes=config.trainer.eval_episodes,
        snapshot_replay=config.trainer.snapshot_replay,
    )
    parts = [("loop", config.algo["loop"]), ("algo", config.algo)]
    parts += [("network", values) for values in networks.values()]
    parts += [(section, config.algo[section]) for section in around.addons]
    for name, own in config.env.wrappers.items():
        if name in registry.names("wrapper"):  # others are refused when an environment is made
            parts.append(("wrapper", {"name": name} | own))
    faults: list[str] = []
    test_tasks = config.algo["loop"].get("test_tasks")
    if config.trainer.eval_envs is not None and test_tasks is not None:
        line = f"must be null, because algo.loop.test_tasks={test_tasks} is the number of environments of an evaluation"
        faults.append(f"trainer.eval_envs={config.trainer.eval_envs}: {line}")
    for group, own in parts:
        part = registry.lookup(group, own["name"])
        if isinstance(part, type) and issubclass(part, Requires):
            faults += part.requires(own, around)
    if faults:
        raise ConfigError(*faults)


def check_ranges(config: RunConfig) -> None:
    """Checks the settings of every part against its Config. Raises one ConfigError with all faults."""
    named = {"algo": config.algo, "network": config.network, "cluster": config.cluster}
    for path, part in (*named.items(), ("algo.loop", config.algo.get("loop"))):
        if not isinstance(part, dict) or not isinstance(part.get("name"), str):
            raise ConfigError(f"{path}: must be a section with the name of a part")
    sections = [("algo", agent_values(config), "algo"), ("cluster", config.cluster, "cluster")]
    for part in AROUND:
        own = config.algo.get(part)
        if isinstance(own, dict) and "name" in own:
            sections.append((part, own, f"algo.{part}"))
    if config.env.normalize.kind != "none":
        sections.append(("statistics", config.env.normalize.statistics, "env.normalize.statistics"))
    faults: list[str] = []
    for index, values in enumerate(config.env.transforms):
        sections.append(("transform", values, f"env.transforms.{index}"))
    for index, values in enumerate(config.callbacks):
        sections.append(("callback", values, f"callbacks.{index}"))
        if values in config.callbacks[:index]:
            faults.append(f"callbacks: {values['name']} is listed twice with the same settings")
    for check in (partial(check_network, config.network), partial(Schedules, config.algo)):
        try:
            check()
        except ConfigError as error:
            faults += error.faults
    for group, values, path in sections:
        try:
            registry.configured(group, str(values["name"]), settings(values), path)
        except ConfigError as error:
            faults += error.faults
    if faults:
        raise ConfigError(*faults)


def check_network(network: dict[str, Any]) -> None:
    """Checks the settings of `network` against its Config, alone and overridden by those of each role.

    Raises ConfigError.
    """
    given = [role for role in ROLES if network.get(role)]
    for role in (None, *given):
        path = "network"
        if role is not None:
            path = f"network.{role}"
        values = for_role(network, role)
        registry.configured("network", str(values["name"]), settings(values), path)


def settings(part: dict[str, Any]) -> dict[str, Any]:
    """Returns the section of a part without its name."""
    return {key: value for key, value in part.items() if key != "name"}


def prepare_device(config: RunConfig) -> torch.device:
    """Returns the torch device of a config. Raises ConfigError if this machine does not have it."""
    engine.prepare(config.trainer.threads, config.trainer.precision)
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"device={name}: must be auto, cpu, cuda or cuda:<number>")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={name}: this machine has {torch.cuda.device_count()} CUDA devices")
    return device


def eval_env(
    config: RunConfig,
    seed: int,
    name: str,
    episodes: int,
    device: torch.device,
    masked: bool = True,
    one: Recipe | None = None,
) -> VectorEnv:
    """Returns environments for one evaluation. Each evaluation creates new ones, so it does not depend on earlier ones.

    Wrappers that are only for training are left out. Episodes have at most `trainer.eval_max_steps` steps.
    masked: whether the environments may provide action masks. one: as in `VectorEnv.make`.
    """
    num_envs = min(episodes, config.algo["loop"].get("test_tasks") or config.trainer.eval_envs or EVAL_ENVS)
    return VectorEnv.make(eval_env_config(config, num_envs, masked), sequence(seed, name), device, one)


def eval_env_config(config: RunConfig, num_envs: int, masked: bool = True) -> EnvConfig:
    """Returns the config of the environments of `eval_env`."""
    max_steps = config.trainer.eval_max_steps
    if "time_limit" in config.env.wrappers:
        max_steps = min(max_steps, config.env.wrappers["time_limit"]["max_steps"])
    wrappers = in_evaluation(config.env.wrappers) | {"time_limit": {"max_steps": max_steps}}
    kwargs = config.env.kwargs | config.env.eval_kwargs
    env = dataclasses.replace(
        config.env, num_envs=num_envs, wrappers=wrappers, kwargs=kwargs, selftest="off", log_info=[]
    )
    if not masked:
        env = dataclasses.replace(env, action_mask=False)
    if env.backend == "ray":  # the idle actors of training may have reserved all CPUs
        env = dataclasses.replace(env, ray=dataclasses.replace(env.ray, cpus=0.0))
    elif env.backend not in ("async", "jax"):  # async keeps its workers; environments in JAX have no other backend
        env = dataclasses.replace(env, backend="sync")
    return env
