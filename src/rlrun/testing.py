"""Contract tests for your own algorithms, environments, wrappers, networks, callbacks and other parts.

They check what rlrun relies on.

The functions take the same words as `rlrun train`:

    from rlrun import testing

    def test_my_algo():
        testing.check_algorithm("algo=./my_algo.py", "env=CartPole")

A failed check raises an AssertionError of one line.
"""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.utils.env_checker import check_env
from torch import Tensor, nn

from rlrun import files
from rlrun.config.jobs import jobs
from rlrun.config.schema import RunConfig, run_config
from rlrun.core.logged import take_logged
from rlrun.core.loop import Loop
from rlrun.core.parts import for_role
from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.envs.making.make import Recipe, recipe
from rlrun.envs.saving.selftest import EPISODE_END, self_test
from rlrun.envs.stepping.obs_adapter import as_tensors, sample, tuples_as_dicts
from rlrun.imports import traced
from rlrun.nested import dotted, index, mapped
from rlrun.networks.members import sharing
from rlrun.networks.recurrent import example_inputs
from rlrun.run.assemble import build_loop
from rlrun.run.checkpointer import rings
from rlrun.run.job import Done, resume_run, train_job
from rlrun.rundir import METRICS
from rlrun.settings import registry
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.store import Store, step_name
from rlrun.telemetry.metrics import Row, read_rows
from rlrun.types import MASK, Obs

UPDATES = 3  # updates of an algorithm before its state is checked, and again after a restart
MOST_TICKS = 5000  # maximum number of ticks for these updates
EPISODE_STEPS = 50  # minimum number of steps of an environment, which is then played to the end of the episode
MOST_STEPS = 1000  # maximum number of these steps
RUN_STEPS = 64  # steps of a run with a callback before it is resumed
SMALL_RUN = ("algo=ppo", "env=CartPole", "preset=none", "env.num_envs=2", "algo.loop.rollout_steps=16",
             "network.hidden=[8]", "trainer.log_every=32", "trainer.eval_every=64", "trainer.eval_episodes=1",
             "trainer.eval_max_steps=20", "trainer.engine=eager", "logger=[]")  # fmt: skip
ROWS = 5  # batch size for networks
MEMBERS = 3  # size of ensembles
MEASURED = ("wall_s", "time/", "sys/")  # metrics that differ between two equal runs
LOG_BYTES = 1 << 20


def check_algorithm(*words: str) -> None:
    """Checks that an algorithm acts without side effects, learns, and resumes bit for bit, also with parts of your own.

    words: as for `rlrun train`, such as "algo=./my_algo.py", "env=CartPole", "algo.loop.warmup_steps=50". A part of an
    algorithm is checked with an algorithm that uses it: "algo=sac", "algo.buffer=./my_buffer.py".
    """
    with failures("algorithm"):
        config = _config("preset=none", "env.num_envs=2", *words)
        loop = build_loop(config)
        other = build_loop(config)
        try:
            loop.begin()
            check_learning(loop)
            check_acting(loop)
            check_resuming(loop, other)
        finally:
            loop.env.close()
            other.env.close()


@contextmanager
def loop_of(*words: str) -> Iterator[Loop]:
    """As a context manager, gives the loop of a run that has begun: with `agent`, `addons`, `buffer`, `env`, `tick()`.

    words: as for `check_algorithm`, which has no preset and two environments by default.
    """
    loop = build_loop(_config("preset=none", "env.num_envs=2", *words))
    try:
        loop.begin()
        yield loop
    finally:
        loop.env.close()


def check_environment(*words: str) -> None:
    """Checks that an environment passes Gymnasium's checker, and that its state can be saved and restored exactly.

    words: as for `rlrun train`, such as "env=./my_env.py:MyEnv", "env.kwargs.size=5".
    """
    with failures("environment"):
        made = _recipe(*words)
        assert made.spec.entry_point is not None, "it steps all instances at once; this needs a single environment"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice such as symmetric bounds of actions
            env = gym.make(made.spec, disable_env_checker=True, **made.kwargs)
            check_observations(env.unwrapped)
            check_env(env.unwrapped, skip_render_check=True)
            env.close()
        check_episode(made)
        check_saving(made)


def check_wrapper(*words: str) -> None:
    """Checks that a wrapped environment obeys its spaces, is reproducible by its seed, and can be saved and restored.

    words: as for `rlrun train`, such as "plugins=[./my_wrapper.py]", "env=CartPole", "env.wrappers.my_wrapper.scale=2".
    """
    with failures("wrapper"):
        made = _recipe(*words)
        assert made.wrappers, "no wrapper is chosen; add env.wrappers.<name>.<key>=<value>"
        check_episode(made)
        check_saving(made)


def check_network(*words: str, obs: gym.Space | None = None) -> None:
    """Checks the shapes of a network, alone and in an ensemble, and that a gradient reaches all of its weights.

    words: as for `rlrun train`, such as "network=./my_network.py", "network.width=8". obs: the space of observations,
    by default a vector of three numbers. Its Tuples are dicts with the keys "0", "1", ..., as in a run.
    """
    with failures("network"):
        config = _config("algo=nop", "env=CartPole", *words)
        space = as_tensors(tuples_as_dicts(obs or gym.spaces.Box(-1.0, 1.0, (3,), np.float32)))
        action = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        for spaces in ([space], [space, action]):
            for members in (None, MEMBERS):
                net = registry.build("network", for_role(config.network, None), spaces, members, path="network")
                check_torso(net, spaces, members)


def check_callback(*words: str) -> None:
    """Checks that a run with a callback resumes bit for bit, and that a callback that only reads changes no weight.

    words: as for `rlrun train`, such as "plugins=[./my_callback.py]", "callbacks=[my_callback]", and, if it needs them,
    "env=./my_env.py:MyEnv" and others in place of those of a small run of PPO on CartPole.
    """
    with failures("callback"), TemporaryDirectory() as folder:
        config = _config(*_small_run(words))
        assert config.callbacks, "no callback is chosen; add callbacks=[<name>]"
        classes = [registry.lookup("callback", values["name"]) for values in config.callbacks]
        whole = Path(folder, "whole")
        path = Path(folder, "resumed")
        _train(whole, 2 * RUN_STEPS, *words)
        _train(path, RUN_STEPS, *words)
        _check_ended(resume_run(path, {"trainer.total_steps": 2 * RUN_STEPS}, config.plugins))
        if any(cls.changes is not None and not cls.resumes_exactly for cls in classes):
            return  # a resumed run differs, and says so
        save_it = "save the state of the callback in get_extra_state, and seed what it draws"
        assert equal(_part(whole, "callbacks"), _part(path, "callbacks")), f"a resumed callback differs; {save_it}"
        assert equal(_part(whole, "agent"), _part(path, "agent")), f"a resumed run has other weights; {save_it}"
        for row, other in zip(_rows(whole), _rows(path), strict=True):
            keys = sorted(key for key in row | other if row.get(key) != other.get(key))
            assert not keys, f"a resumed run logs another {keys[0]} at step {row['step']}; {save_it}"
        if all(cls.changes is None for cls in classes):
            without = Path(folder, "without")
            _train(without, 2 * RUN_STEPS, *[word for word in words if not word.startswith("callbacks=")])
            assert equal(_part(whole, "agent"), _part(without, "agent")), (
                "it changes the agent; declare that in `changes`"
            )


def check_learning(loop: Loop) -> None:
    """Checks that updates of a loop change the agent, and that its weights and metrics are finite."""
    before = copy.deepcopy(_state(loop))
    for metrics in rows_until(loop.updates + UPDATES, loop):
        for name, value in metrics.items():
            assert torch.isfinite(torch.as_tensor(value)).all(), f"update returns {name}={float(value)}"
            assert not torch.as_tensor(value).requires_grad, f"update returns {name} with a gradient; detach it"
    after = _state(loop)
    assert not equal(before, after), f"{UPDATES} updates changed nothing in the agent"
    for name, value in after.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            assert not value.isnan().any(), f"{name} is NaN after {UPDATES} updates"
    for name, optim in loop.named_modules():
        assert not (isinstance(optim, Optim) and optim.fault), f"{name} got a gradient that is not finite"


def check_acting(loop: Loop) -> None:
    """Checks that acting changes nothing but random streams, and draws nothing if it does not explore."""
    agent, obs, carry = loop.agent, loop.obs, loop.carry
    given = copy.deepcopy((obs, carry))
    before = copy.deepcopy(agent.state_dict())
    torch_state = torch.get_rng_state()
    streams = _streams(loop)
    first = loop.addons.act(agent, obs, carry, explore=False)
    second = loop.addons.act(agent, obs, carry, explore=False)
    assert equal((obs, carry), given), "act changes its observations or its carry in place"
    assert equal(first, second), "act returns different actions for the same observation with explore=False"
    assert equal(streams, _streams(loop)), "act draws random numbers with explore=False"
    num_envs = loop.env.spec.num_envs
    assert len(first[0]) == num_envs, f"act returns {len(first[0])} actions for {num_envs} environments"
    assert not first[0].requires_grad, "act returns actions with a gradient; decorate it with @policy"
    check_estimates(loop, first[0])
    assert equal(streams, _streams(loop)), "an estimate of a value or a distribution draws random numbers"
    loop.addons.act(agent, obs, carry, explore=True)
    own = {name: value for name, value in before.items() if not _is_of_stream(agent, name)}
    now = {name: value for name, value in agent.state_dict().items() if name in own}
    changed = [name for name in own if not equal(own[name], now[name])]
    assert not changed, f"act changes {', '.join(changed)}; what acting changes belongs in the carry or a stream"
    assert torch.equal(torch_state, torch.get_rng_state()), "act draws from torch; take a stream: parts.stream('act')"


@torch.no_grad()
def check_estimates(loop: Loop, action: Tensor) -> None:
    """Checks that values have a row for each environment, and that the mode of the distribution is the agent's action.

    action: what `act` returns without exploration.
    """
    agent, num_envs = loop.agent, len(action)
    seen, _ = loop.addons.see(loop.obs, loop.carry, False)
    for name, values in (
        ("state_values", agent.state_values(seen)),
        ("action_values", agent.action_values(seen, action)),
    ):
        rows = num_envs if values is None else len(values)
        assert rows == num_envs, f"{name} returns {rows} values for {num_envs} environments"
    dist = agent.action_distribution(seen, loop.carry)
    if dist is not None:
        assert equal(dist.mode(), action), "action_distribution has another mode than the action of act"
        drawn = dist.log_prob(action)
        assert len(drawn) == num_envs, f"a log-probability has {len(drawn)} rows for {num_envs} environments"


def check_resuming(loop: Loop, other: Loop) -> None:
    """Checks that `other`, a new loop of the same config, continues from the snapshot of a loop bit for bit."""
    assert loop.env.exactness == "exact", f"this needs an environment whose runs are exact; {loop.env.exactness}"
    with TemporaryDirectory() as folder:
        snapshot = save(loop, Path(folder, "run"))
        load(other, snapshot)
        restored = save(other, Path(folder, "copy")).digest
        assert restored == snapshot.digest, "a restored run is not what was saved: state lies outside the module tree"
        target = loop.updates + UPDATES
        rows = list(rows_until(target, loop))
        others = list(rows_until(target, other))
        for name, module in other.agent.named_modules():
            check_attributes(f"agent.{name}".rstrip("."), loop.agent.get_submodule(name), module)
        assert len(rows) == len(others), "a resumed run takes another number of ticks for the same updates"
        names = set()
        for row, other_row in zip(rows, others, strict=True):
            names |= row.keys() ^ other_row.keys()
            names |= {name for name in row.keys() & other_row.keys() if not equal(row[name], other_row[name])}
        assert not names, (
            f"a resumed run differs from an uninterrupted one in {', '.join(sorted(names))}; all state must be in "
            "modules, parameters and buffers, and all random numbers must come from parts.stream"
        )
        assert equal(loop.obs, other.obs), "a resumed run differs from an uninterrupted one in its observations"
        same = save(loop, Path(folder, "run")).digest == save(other, Path(folder, "copy")).digest
        assert same, "a resumed run ends in another state than an uninterrupted one"


def check_attributes(path: str, module: nn.Module, resumed: nn.Module) -> None:
    """Checks that the int, float, bool and str attributes of a module are equal in a resumed run."""
    for name, value in vars(module).items():
        if not isinstance(value, bool | int | float | str):
            continue
        resumed_value = vars(resumed).get(name)
        advice = f"a number that changes must be a buffer: self.register_buffer({name!r}, torch.tensor(...))"
        if isinstance(value, str):
            advice = "text that changes must be in get_extra_state"
        assert equal(value, resumed_value), f"{path}.{name} is {value}, but {resumed_value} after a resume; {advice}"


def check_episode(made: Recipe) -> None:
    """Checks that observations lie in their space, rewards are finite, and equal seeds give equal episodes."""
    played = [_episode(made) for _ in range(2)]
    same = all(np.array_equal(one, other) for one, other in zip(*map(_arrays, played), strict=True))
    assert same, "two episodes with the same seed and actions differ; draw all random numbers from self.np_random"


def check_observations(env: gym.Env[object, object]) -> None:
    """Checks that observations lie in their space, and that each is written into new memory."""
    first, _ = env.reset(seed=0)
    check_space(first, env.observation_space)
    second = env.step(env.action_space.sample())[0]
    check_space(second, env.observation_space)
    shared = any(np.shares_memory(one, other) for one, other in zip(_arrays([first]), _arrays([second]), strict=True))
    assert not shared, "an observation changes in the next step, because both share memory; return a copy"


def check_space(obs: object, space: gym.Space, keys: str = "") -> None:
    """Checks that an observation, or its entry with these dotted keys, lies in its space."""
    if obs in space:
        return
    what = f"entry {keys} of an observation" if keys else "an observation"
    if isinstance(space, gym.spaces.Dict) and isinstance(obs, dict):
        assert obs.keys() == space.keys(), f"{what} has the keys {[*obs]}; expected {[*space]}"
        for key, part in space.items():
            check_space(obs[key], part, f"{keys}.{key}".lstrip("."))
    if isinstance(obs, np.ndarray):
        assert obs.shape == space.shape, f"{what} has shape {obs.shape}; expected {space.shape}"
        fits = space.dtype is None or np.can_cast(obs.dtype, space.dtype)
        assert fits, f"{what} is {obs.dtype}; expected {space.dtype}"
    raise AssertionError(f"{what} is not in {space}: {obs}")


def check_saving(made: Recipe) -> None:
    """Checks that an environment can be saved in mid-episode and restored in another instance, bit for bit."""
    method = self_test(made)
    assert method.name != EPISODE_END, f"a run cannot resume in mid-episode, because {method.reason}"


def check_torso(net: Any, spaces: list[gym.Space], members: int | None) -> None:
    """Checks a network that was built for these spaces. members: the size of an ensemble; None: a single network."""
    inputs = example_inputs(net, spaces, ROWS)
    parts = dotted("obs", inputs[0]) | dict(zip(["action"], inputs[1:], strict=False))
    numbers = {name: part.requires_grad_() for name, part in parts.items() if part.is_floating_point()}
    weights = dict(net.named_parameters())
    out = net(*inputs)
    shape = [ROWS, net.features]
    if members is not None and weights:
        shape = [members, *shape]
    assert list(out.shape) == shape, f"returns {list(out.shape)} for {ROWS} rows, members={members}; expected {shape}"
    assert out.dtype == torch.float32, f"returns {out.dtype}; expected torch.float32"
    assert torch.isfinite(out).all(), "returns numbers that are not finite"
    assert torch.equal(out, net(*inputs)), "returns other features for the same input"
    alone = net(*(index(part, slice(1)) for part in inputs))
    assert torch.allclose(alone, out[..., :1, :], atol=1e-5), "mixes the rows of a batch"
    if members is not None:
        fault = sharing(net, inputs, members)
        assert fault is None, fault
    if out.requires_grad:
        out.square().sum().backward()
    for name, part in parts.items():
        seen = name.rpartition(".")[2] == MASK
        if name in numbers:
            seen = part.grad is not None and bool(part.grad.any())
        elif not seen:
            seen = not torch.equal(net(*_reversed(inputs, part)), out)
        assert seen, f"ignores an input {list(part.shape)}, {name}"
    for name, weight in weights.items():
        assert weight.grad is not None and weight.grad.any(), f"no gradient reaches {name}"
    if members is None or not weights:
        return
    for i in range(1, members):
        assert not torch.equal(out[0], out[i]), f"members 0 and {i} of an ensemble return the same features"
    for name, weight in weights.items():
        if weight.shape[:1] == (members,):
            reached = weight.grad.flatten(1).any(1)
            assert reached.all(), f"a gradient reaches {name} in {int(reached.sum())} of {members} members only"


def rows_until(updates: int, loop: Loop) -> Iterator[dict[str, Any]]:
    """Ticks until a loop has made this number of updates, and yields the metrics of each tick."""
    for _ in range(MOST_TICKS):
        if loop.updates >= updates:
            return
        metrics = loop.tick()
        loop.metrics.log(take_logged())
        yield metrics
    raise AssertionError(f"only {loop.updates} updates in {MOST_TICKS} ticks of the loop")


def save(loop: Loop, folder: Path) -> Snapshot:
    """Returns a snapshot of a loop, written to disk and read again."""
    folder.mkdir(exist_ok=True)
    store = Store(folder, keep=1)
    name = step_name(loop.steps)
    store.save(name, loop.state_dict(), rings(loop), {"step": loop.steps}, {})
    return store.load(name)


def load(loop: Loop, snapshot: Snapshot) -> Loop:
    """Restores a snapshot in a loop that has not begun, and returns the loop."""
    loop.load_state_dict(dict(snapshot.state))
    for name, ring in rings(loop).items():
        snapshot.restore_ring(name, ring)
    return loop


def equal(some: Any, other: Any) -> bool:
    """Returns whether two nests of tensors are equal bit for bit; NaN equals NaN."""
    if isinstance(some, dict):
        return some.keys() == other.keys() and all(equal(some[key], other[key]) for key in some)
    if isinstance(some, (list, tuple)):
        return len(some) == len(other) and all(map(equal, some, other))
    if isinstance(some, Tensor):
        same = some.dtype == other.dtype and some.shape == other.shape
        return same and bool(torch.equal(some.nan_to_num(123.0), other.nan_to_num(123.0)))
    both_nan = some != some and other != other  # only NaN differs from itself
    return bool(some == other or both_nan)


@contextmanager
def failures(what: str) -> Iterator[None]:
    """As a context manager, turns any exception into an AssertionError of one line."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {' '.join(str(error).split())}") from error
    except Exception as error:
        raise AssertionError(f"{what}: {traced(error)}") from error


def _config(*words: str) -> RunConfig:
    """Imports the user's files and returns the config of one run."""
    (job,) = jobs(list(words))
    registry.load(job.values["plugins"])
    return run_config(job.values)


def _train(folder: Path, total_steps: int, *words: str) -> None:
    """Trains a small run in a new folder. Raises AssertionError if it fails."""
    (job,) = jobs([*_small_run(words), f"trainer.total_steps={total_steps}", f"run_dir={folder}"])
    _check_ended(train_job(job))


def _small_run(words: Sequence[str]) -> list[str]:
    """Returns the words of a small run with other words, which replace those of the same key.

    The settings of PPO are left out for another algorithm.
    """
    given = {word.partition("=")[0] for word in words}
    small = [word for word in SMALL_RUN if word.partition("=")[0] not in given]
    if "algo" in given:
        small = [word for word in small if not word.startswith("algo.")]
    return [*small, *words]


def _check_ended(done: Done) -> None:
    """Raises AssertionError with the last line of error.log if a run failed."""
    if done.exit_code:
        lines = files.read(done.path / "error.log", LOG_BYTES).decode(errors="replace").split("\n")
        raise AssertionError(lines[-2].removeprefix("rlrun.errors."))


def _part(folder: Path, name: str) -> dict[str, object]:
    """Returns the state of the agent or of the callbacks in the last snapshot of a run."""
    return {path: value for path, value in Store(folder).load().state.items() if path.startswith(f"{name}.")}


def _rows(folder: Path) -> list[Row]:
    """Returns the log rows of a run without the metrics that differ between two equal runs."""
    rows = read_rows(folder / METRICS)
    return [{key: value for key, value in row.items() if not key.startswith(MEASURED)} for row in rows]


def _episode(made: Recipe) -> list[object]:
    """Plays at least EPISODE_STEPS steps, to the end of an episode. Returns all observations and rewards."""
    env = made.make()
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    check_space(obs, env.observation_space)
    seen = [copy.deepcopy(obs)]
    for step in range(1, MOST_STEPS + 1):
        obs, reward, terminated, truncated, _ = env.step(sample(env.action_space, obs))
        check_space(obs, env.observation_space)
        assert np.isfinite(np.asarray(reward)).all(), f"the reward is {reward}"
        seen += [copy.deepcopy(obs), reward]
        if terminated or truncated:
            if step >= EPISODE_STEPS:
                break
            obs, _ = env.reset()
    env.close()
    return seen


def _recipe(*words: str) -> Recipe:
    """Returns the environment that the words choose. No algorithm acts in it."""
    return recipe(_config("algo=nop", "preset=none", *words).env)


def _state(loop: Loop) -> dict[str, object]:
    """Returns the state that the agent has learned: its parameters and buffers."""
    return {**dict(loop.agent.named_parameters()), **dict(loop.agent.named_buffers())}


def _streams(loop: Loop) -> list[Tensor]:
    return [module.generator.get_state() for module in loop.modules() if isinstance(module, Stream)]


def _is_of_stream(agent: nn.Module, name: str) -> bool:
    """Returns whether a name in the state dict is part of a random stream."""
    return isinstance(agent.get_submodule(name.rpartition(".")[0]), Stream)


def _arrays(seen: list[object]) -> list[object]:
    """Returns the leaves of observations and rewards, in order."""
    found = []
    for item in seen:
        if isinstance(item, dict):
            found += _arrays(list(item.values()))
        else:
            found.append(item)
    return found


def _reversed(inputs: list[Obs], part: Tensor) -> list[Obs]:
    """Returns the inputs with the rows of one part in reversed order."""
    return [mapped(lambda leaf: leaf.flip(0) if leaf is part else leaf, given) for given in inputs]
