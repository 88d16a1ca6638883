"""Shards: blocks of the environments with their own copy of what acts, in the process of the run or in workers."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from toys import equal, put, toy, train, weights

import rlrun
from rlrun.config.schema import run_config
from rlrun.core.logged import take_logged
from rlrun.core.random import streams_of
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.envs.stepping.workers import LostError, TimedPipe, packed
from rlrun.errors import ConfigError, RunError
from rlrun.run.assemble import build_loop, build_shards
from rlrun.run.exactness import Machine
from rlrun.shards import local_worker
from rlrun.shards import shard as shard_module
from rlrun.shards.group import Here
from rlrun.shards.local_worker import LocalGroup, LocalWorker
from rlrun.shards.shard import STEPS_TOGETHER, grouped, together, weights_of
from rlrun.testing import load, save

Build = Callable[..., Any]
TWO = {"algo.loop.shards": 2, "env.num_envs": 4}
LOCAL = {"cluster": {"name": "local", "workers": None, "on_lost": "fail", "state_every": 100}}
ID = "test/Loud-v0"


class Loud(gym.Wrapper):
    """Logs the step of the episode, and reports a number."""

    reports: ClassVar = {"angle": gym.spaces.Box(-9.0, 9.0, (1,), np.float32)}

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        rlrun.log("position", obs[0])
        return obs, reward, terminated, truncated, info | {"angle": obs[2:3]}


@pytest.fixture
def loud() -> Iterator[dict[str, Any]]:
    gym.register(ID, lambda: Loud(gym.make("CartPole-v1")))
    yield {"env.id": ID, "env.wrappers": {"own_reward": {}}, "env.selftest": "off"}
    del gym.registry[ID]


@pytest.mark.parametrize(
    ("algo", "loop"),
    [
        ("ppo", {"lag": 1}),
        ("vtrace", {"lag": 2}),
        ("svpg", {"lag": 0}),
        ("mbrl", {"shard_steps": 3}),
        pytest.param("latent_mbrl", {"shard_steps": 3}, marks=pytest.mark.slow),
        ("sac", {"lag": 1}),
        ("sac", {"shard_steps": 3}),
        ("dqn", {"lag": 1, "shard_steps": 3}),
    ],
)
def test_shards_in_workers_equal_shards_in_the_run_and_resume_each_other(
    algo: str, loop: dict[str, int], build: Build, tmp_path: Path
) -> None:
    values = toy(algo, **TWO, **{"env.normalize.kind": "obs"})
    values["algo"]["loop"] |= loop
    here, there = build(values), build(put(values, LOCAL))
    digests = [save(train(loop, 4), tmp_path / "run").digest for loop in (here, there)]
    assert digests[0] == digests[1]
    resumed = load(build(values, begin=False), save(there, tmp_path / "run"))
    digests = [save(train(loop, 8), tmp_path / "run").digest for loop in (there, resumed)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("algo", "lag"), [("ppo", 0), ("vtrace", 2)])
def test_one_shard_equals_a_run_without_shards(algo: str, lag: int, build: Build) -> None:
    values = toy(algo, **{"algo.loop.lag": lag, "algo.loop.rollout_steps": 18, "env.normalize.kind": "obs"})
    plain, sharded = build(values), build(put(values, {"algo.loop.shards": 1}))
    for _ in range(4):
        assert equal(plain.tick(), sharded.tick())
    assert equal(weights(plain), weights(sharded)) and equal(plain.obs, sharded.obs)
    assert equal(plain.metrics.get_extra_state(), sharded.metrics.get_extra_state())


@pytest.mark.parametrize("lag", [0, 1])
def test_one_shard_that_draws_nothing_equals_a_run_without_shards_between_exchanges(lag: int, build: Build) -> None:
    greedy = {"algo.epsilon.start": 0.0, "algo.epsilon.end": 0.0, "env.normalize.kind": "obs"}
    values = toy("dqn", **greedy, **{"algo.loop.lag": lag, "algo.loop.shard_steps": 3})
    plain, sharded, other = (
        build(put(values, changes)) for changes in ({}, {"algo.loop.shards": 1}, {"algo.loop.shard_steps": 2})
    )
    for _ in range(10):
        assert equal(plain.tick(), sharded.tick())
    assert plain.updates > 8 and equal(weights(plain), weights(sharded)) and equal(plain.obs, sharded.obs)
    while other.steps < plain.steps:
        other.tick()
    assert other.steps == plain.steps and not equal(weights(plain), weights(other))


@pytest.mark.parametrize("policy", ["agent", "other"])
@pytest.mark.parametrize("place", [{}, LOCAL])
def test_an_error_while_shards_step_ends_them(
    place: dict[str, Any], policy: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = build(toy("sac", **TWO, **place))
    acts = None
    if policy == "other":
        acts = SimpleNamespace(act=lambda *_: (torch.zeros(4, 1), {}))
    closed = []
    for group in loop.env.groups:
        monkeypatch.setattr(group, "close", lambda terminate, close=group.close: closed.append(close(terminate)))

    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.collect(2, acts, fails)
    assert len(closed) == len(loop.env.groups)
    assert not any(group.worker.pipe.process.is_alive() for group in loop.env.groups if place)


def test_shards_collect_while_the_agent_learns(build: Build) -> None:
    loop = build(toy("vtrace", **TWO, **LOCAL))
    arrived: list[bool] = []
    update = loop.agent.update

    def learn(batch: Any, ctx: Any) -> Any:
        arrived.extend(group.worker.pipe.pipe.poll(10.0) for group in loop.env.groups)
        return update(batch, ctx)

    loop.agent.update = learn
    for _ in range(3):
        loop.tick()
    assert arrived == [True] * 4 and loop.updates == 2


def test_an_update_that_fails_while_shards_collect_ends_them(build: Build) -> None:
    loop = build(toy("vtrace", **TWO, **LOCAL))
    loop.agent.update = lambda batch, ctx: 1 / 0
    loop.tick()
    with pytest.raises(ZeroDivisionError):
        loop.tick()
    assert not any(group.worker.pipe.process.is_alive() for group in loop.env.groups)


def test_shards_step_the_environments_of_a_run_without_shards(build: Build, loud: dict[str, Any]) -> None:
    policy = SimpleNamespace(act=lambda obs, carry, explore: (carry["first"].long(), {"carry.x": obs[:, :1]}))
    plain, sharded = build(toy("ppo", **loud, **{"env.num_envs": 4})), build(toy("ppo", **TWO, **loud))
    for loop in (plain, sharded):
        loop.env.read_reports = {}
    assert equal(plain.obs, sharded.obs)
    expected, found = ([loop.collector.advance(policy) for _ in range(30)] for loop in (plain, sharded))
    for (step, events), (other_step, other_events) in zip(expected, found, strict=True):
        assert [*step] == [*other_step] and equal(step, other_step)
        assert (step["next_obs"] is step["following"]) == (other_step["next_obs"] is other_step["following"])
        assert equal(events._asdict(), other_events._asdict())
    assert {episode.env for _, events in found for episode in events.episodes} == {0, 1, 2, 3}
    assert {index for _, events in found for index in events.own_returns} == {0, 1, 2, 3}
    assert equal(plain.carry, sharded.carry)


def test_every_shard_draws_its_own_numbers(build: Build) -> None:
    loop = build(toy("ppo", **TWO))
    shards = loop.env.groups[0].instances
    states = [shard.streams[0].generator.get_state() for shard in shards]
    assert equal(states[0], streams_of(loop.agent)[0].generator.get_state())
    assert not equal(states[0], states[1])
    loop = build(toy("sac", **TWO))  # its agent acts in the process of the run too, with warmup_policy=agent
    streams = [streams_of(agent)[0] for agent in (loop.agent, *(x.agent for x in loop.env.groups[0].instances))]
    assert len({bytes(stream.generator.get_state()) for stream in streams}) == 3


class Flaky(gym.Env):
    """Fails in its second step, if it should."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self) -> None:
        self.steps, self.fails = 0, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 2 and self.fails:
            raise ValueError("flaky")
        return np.zeros(1, np.float32), 1.0, False, False, {}


def test_held_actions_of_a_shard_whose_environments_have_failed_are_in_the_step(build: Build) -> None:
    gym.register("test/Flaky-v0", Flaky)
    own = {"env.id": "test/Flaky-v0", "env.kwargs": {}, "env.selftest": "off", "env.on_failure": "restart"}
    policy = SimpleNamespace(act=lambda *_: (torch.tensor([[4.0, 0.1], [1.0, 0.1]]), {}))
    found = []
    for shards in (None, 2):
        loop = build(toy("sac_hold", **own, **{"env.num_envs": 2, "algo.loop.shards": shards}))
        first = loop.env.groups[0].instances[0].env if shards else loop.env
        first.pool.slots[0].env.unwrapped.fails = True
        found.append([loop.collector.advance(policy) for _ in range(3)])
    del gym.registry["test/Flaky-v0"]
    assert any(step["weight"].sum() == 1 for step, _ in found[0]), "one environment alone has failed"
    for (step, events), (sharded, other_events) in zip(*found, strict=True):
        assert equal(step, sharded)
        measured, others = (
            {name: values.tolist() for name, values in found.measures.items()} for found in (events, other_events)
        )
        assert measured == others and "frames" in measured


def test_a_restore_alone_has_no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    answer = (4, ([], None))
    pipe = SimpleNamespace(send=lambda message: None, comes=waits.append, result=lambda: answer)
    monkeypatch.setattr(local_worker, "started", lambda *_: pipe)
    group = LocalWorker(numbers, None, 60.0).group([4, 5])  # type: ignore
    group.wait()
    assert len(waits) == 1 and waits.pop() < float("inf"), "it is built within a minute"
    for method in ("advance", "load_state", "state"):
        group.call(method, [])
        group.result()
    assert waits == [float("inf")]


def test_a_parameter_of_the_agent_itself_is_sent(build: Build) -> None:
    loop = build(toy("sac", **TWO))
    loop.agent.shift = torch.nn.Parameter(torch.ones(1))
    assert "agent.shift" in weights_of(loop.agent, loop.addons, loop.schedules)


def test_initial_pulls_of_bandits_are_not_divided(build: Build) -> None:
    with pytest.raises(ConfigError, match="each shard would make all initial pulls"):
        build(toy("neural_greedy", **TWO))
    with pytest.raises(ConfigError, match="each shard would make all initial pulls"):
        build(toy("linear_posterior", **TWO))


def test_shards_act_with_the_weights_of_the_run(build: Build) -> None:
    loop = train(build(toy("sac", **TWO, **{"env.normalize.kind": "obs"})), 6)
    loop.collector.advance(loop.agent)
    for shard in loop.env.groups[0].instances:
        obs, carry = shard.collector.obs, shard.collector.carry
        found = shard.collector.addons.act(shard.agent, obs, carry, False)
        assert equal(found, loop.addons.act(loop.agent, obs, carry, False))


def test_weights_are_those_of_the_agent_itself_and_of_schedules_too(build: Build) -> None:
    loop = build(toy("dqn"))
    assert {"agent.epsilon", "schedules.epsilon"} <= weights_of(loop.agent, loop.addons, loop.schedules).keys()


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_numbers_that_a_shard_logs_are_in_its_events(backend: str, build: Build) -> None:
    loop = build(toy("ppo", **TWO, **{"env.backend": backend}))
    for shard in loop.env.groups[0].instances:
        act = shard.agent.act
        shard.agent.act = lambda *given, act=act: rlrun.log("acts", 1.0) or act(*given)
    rlrun.log("learns", 2.0)
    _, events = loop.collector.advance(loop.agent)
    assert events.logged == [("acts", 1.0)] * 2 and take_logged() == [("learns", 2.0)]


def test_shards_have_the_networks_of_the_run(build: Build) -> None:
    """That a recurrent agent divides minibatches by environments is checked for all of them, not for a block."""
    loop = build(toy("ppo_lstm", **TWO, **{"algo.num_minibatches": 4, "algo.minibatch_size": None}))
    assert loop.env.groups[0].instances[1].agent.spec.num_envs == 4


def test_shards_of_a_run_on_a_gpu_act_on_the_cpu(build: Build, make: Build) -> None:
    loop = build(toy("sac", **TWO))
    first = loop.env.groups[0].instances[0].env
    config = run_config(toy("sac", **TWO, device="cuda:9"))
    shards = build_shards(config, first.recipe, first.verdict, Machine.here(), [1])
    assert shards[1].env.device.type == "cpu" and {x.device.type for x in shards[1].agent.parameters()} == {"cpu"}
    shards[1].close()


def test_only_changed_weights_are_sent(build: Build) -> None:
    loop = train(build(toy("sac", **TWO)), 2)
    loop.collector.advance(loop.agent)
    assert not loop.collector._changed()
    (weight, *_) = loop.agent.actor.parameters()
    with torch.no_grad():
        weight += 1
    assert len(loop.collector._changed()) == 1


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_block_has_the_environments_of_the_whole(backend: str, make: Build, config: Build) -> None:
    tasks = {"task_kwargs": {"length": [3, 9]}}
    whole = make("rlrun/Counter-v0", 4, **tasks)
    cfg = config("rlrun/Counter-v0", 2, **tasks, backend=backend)
    block = VectorEnv.block(cfg, whole.recipe, whole.verdict, np.random.SeedSequence(0), "cpu", first=2)
    try:
        assert block.seeds == whole.seeds[2:] and block.tasks.current() == whole.tasks.current()[2:]
        assert equal(block.reset(), whole.reset()[2:])
        action = torch.zeros(4, dtype=torch.long)
        assert equal(block.step(action[2:])[0]["following"], whole.step(action)[0]["following"][2:])
    finally:
        block.close()


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_faults_name_the_index_in_the_run(backend: str, make: Build, config: Build) -> None:
    one = make("rlrun/Faulty-v0", kwargs={"kind": "raise", "at": 1})
    cfg = config("rlrun/Faulty-v0", 2, kwargs={"kind": "raise", "at": 1}, backend=backend)
    block = VectorEnv.block(cfg, one.recipe, one.verdict, np.random.SeedSequence(0), "cpu", first=2)
    block.reset()
    with pytest.raises(RunError, match=f"#2, seed {block.seeds[0]}, step 1"):
        block.step(torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"algo.loop.shards": 3}, "algo.loop.shards=3: must divide env.num_envs=2"),
        ({"algo.loop.shards": 2, "env.backend": "native"}, "which steps all its environments at once"),
        ({"algo.loop.shards": 2, "cluster": {"name": "moon"}}, "cluster: unknown name 'moon'"),
        ({"algo.loop.shards": 2, **put(LOCAL, {"cluster.workers": 0})}, "cluster.workers=0: must be greater"),
        ({"algo.loop.shards": 2, **put(LOCAL, {"cluster.workers": 3})}, "cluster.workers=3: there are only 2 shards"),
        (LOCAL, "cluster=local: runs shards, of which there are none; set algo.loop.shards"),
    ],
)
def test_settings_that_shards_do_not_support_are_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        build_loop(run_config(toy("ppo", **changes)))


@pytest.mark.parametrize("num_particles", [1, 2, 4])
def test_particles_act_in_the_same_environments_with_shards(num_particles: int, build: Build) -> None:
    values = {"env.num_envs": 4, "algo.num_particles": num_particles}
    plain, sharded = build(toy("svpg", **values)), build(toy("svpg", **values, **{"algo.loop.shards": 2}))
    seen: list[tuple[int, int]] = []
    everyone = [shard.agent for shard in sharded.env.groups[0].instances]
    for first, agent in zip((0, 2), everyone, strict=True):
        for particle, envs in agent.split(torch.zeros(2)):
            number = list(agent.particles).index(particle)
            seen += [(env, number) for env in range(first + envs.start, first + envs.stop)]
    own = {particle: number for number, particle in enumerate(plain.agent.particles)}
    slices = [(own[particle], envs) for particle, envs in plain.agent.split(torch.zeros(4))]
    assert seen == [(env, number) for number, envs in slices for env in range(envs.start, envs.stop)]


@pytest.mark.parametrize("at_the_call", [True, False])
def test_a_killed_worker_ends_the_run_and_all_workers(at_the_call: bool, build: Build) -> None:
    env = build(toy("ppo", **TWO, **LOCAL)).env
    processes = [group.worker.pipe.process for group in env.groups]
    if not at_the_call:
        os.kill(processes[1].pid, signal.SIGSTOP)  # so that it does not answer
        env.call("status")
    os.kill(processes[1].pid, signal.SIGKILL)
    processes[1].join()
    with pytest.raises(RunError, match=r"env CartPole-v1, shard 1: its worker \(pid \d+\) died, exit code -9"):
        if at_the_call:
            env.call("status")
        else:
            env.result()
    assert len(processes) == 2 and not any(process.is_alive() for process in processes)


def test_a_worker_that_is_killed_ends_the_run_within_a_second(build: Build) -> None:
    loop = train(build(toy("ppo", **TWO, **LOCAL)), 1)
    process = loop.env.groups[1].worker.pipe.process
    killer = threading.Timer(0.1, process.kill)
    killer.start()
    died: list[float] = []

    def wait() -> None:
        process.join()
        died.append(time.monotonic())

    watcher = threading.Thread(target=wait)
    watcher.start()
    with pytest.raises(RunError, match=r"shard 1: its worker \(pid \d+\) died, exit code -9"):
        while True:
            loop.tick()
    watcher.join()
    assert time.monotonic() - died[0] < 1


class Numbers:
    """Stands in for a shard."""

    def __init__(self, number: int):
        self.number = number
        self.path: Path | None = None  # that tells of `close`

    def advance(self, count: int, size: int = 1, done: Path | None = None) -> Iterator[Any]:
        for step in range(count):
            obs = torch.tensor([self.number, step] * size)
            yield {"following": obs, "next_obs": obs + 1 if step == 1 else obs}, None
        if done is not None:
            done.touch()
            raise ValueError("no more steps")

    def state(self) -> Any:
        raise ValueError("no state")

    def close_in(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        if self.path is not None:
            self.path.touch()


def numbers(shards: Any) -> Any:
    return {shard: Numbers(shard) for shard in shards}


@pytest.fixture
def worker(make: Build) -> Iterator[LocalGroup]:
    one = LocalWorker(numbers, make("CartPole-v1").recipe, 60.0).group([4, 5])
    one.wait()
    yield one
    one.close(terminate=True)


def test_a_worker_steps_its_shards_together(worker: LocalGroup) -> None:
    worker.call("advance", [[STEPS_TOGETHER + 2], [STEPS_TOGETHER + 2]])
    found = [worker.result(), worker.result()]
    for shard, number in enumerate((4, 5)):
        first, second = found[0][shard], found[1][shard]
        assert equal(first.step, {"following": torch.tensor([[number, step] for step in range(STEPS_TOGETHER)])})
        assert equal(first.next_obs, {1: torch.tensor([number + 1, 2])}) and first.events == [None] * STEPS_TOGETHER
        assert equal(second.step["following"][:, 1], torch.tensor([STEPS_TOGETHER, STEPS_TOGETHER + 1]))


def test_steps_of_slow_environments_are_sent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "TOGETHER_S", 0.0)
    steps = grouped((step,) for step in Numbers(1).advance(3))
    assert [len(steps.events) for (steps,) in steps] == [1, 1, 1]


def test_shards_may_send_their_steps_in_different_numbers(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slower(Here):
        def result(self) -> list[object]:
            with monkeypatch.context() as patch:
                patch.setattr(shard_module, "STEPS_TOGETHER", 2)
                return super().result()

    expected, loop = build(toy("ppo", **TWO)), build(toy("ppo", **TWO))
    first, second = loop.env.groups[0].instances
    loop.env.groups = [Here({0: first}), Slower({1: second})]
    for _ in range(20):
        for (step, events), (other, other_events) in zip(
            *(one.collector.collect(5, one.agent) for one in (expected, loop)), strict=True
        ):
            assert equal(step, other) and equal(events._asdict(), other_events._asdict())


def test_steps_with_different_keys_do_not_come_together() -> None:
    step = {"following": torch.zeros(1), "next_obs": torch.zeros(1)}
    with pytest.raises(KeyError, match="reward"):
        together([(step, None), (step | {"reward": torch.zeros(1)}, None)])


def test_a_worker_goes_on_while_the_run_does_not_read(worker: LocalGroup, tmp_path: Path) -> None:
    """A pipe does not hold its steps. What a shard raises comes after them."""
    done = tmp_path / "done"
    worker.call("advance", [[2 * STEPS_TOGETHER, 2_000, done]] * 2)
    until = time.monotonic() + 20.0
    while not done.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    found = 0
    while found < 2 * STEPS_TOGETHER:
        found += len(worker.result()[0].events)
    with pytest.raises(EnvError, match="no more steps"):
        worker.result()


def test_a_worker_ends_soon_after_its_pipe_was_closed(worker: LocalGroup) -> None:
    """And not after all its steps."""
    worker.call("advance", [[10**9], [10**9]])
    worker.result()
    worker.close()
    assert worker.worker.pipe.process.exitcode == 0


def test_groups_in_one_worker_take_turns(worker: LocalGroup) -> None:
    """The second group is built and answers while the first takes its steps."""
    other = worker.worker.group([7])
    other.wait()
    worker.call("advance", [[10**9], [10**9]])
    assert int(worker.result()[0].step["following"][0, 1]) == 0
    other.call("advance", [[2]])
    assert other.result()[0].step["following"].tolist() == [[7, 0], [7, 1]]
    assert worker.result()[1].step["following"][0].tolist() == [5, STEPS_TOGETHER]


def test_a_group_that_leaves_closes_its_environments_alone(worker: LocalGroup, tmp_path: Path) -> None:
    other = worker.worker.group([7])
    other.wait()
    other.call("close_in", [[tmp_path / "7"]])
    other.result()
    other.close()
    worker.call("advance", [[1], [1]])
    assert [steps.step["following"].tolist() for steps in worker.result()] == [[[4, 0]], [[5, 0]]]
    assert (tmp_path / "7").exists()
    worker.close()
    assert worker.worker.pipe.process.exitcode == 0


def test_what_a_shard_raises_reaches_its_own_group(worker: LocalGroup) -> None:
    other = worker.worker.group([7])
    other.wait()
    other.call("state", [[]])
    other.call("advance", [[1]])
    with pytest.raises(LostError):
        worker.result()
    with pytest.raises(EnvError, match="no state"):
        other.result()


def test_a_worker_sends_what_a_shard_raises(worker: LocalGroup) -> None:
    worker.call("state", [[], []])
    with pytest.raises(EnvError, match="no state"):
        worker.result()


def test_a_stopped_worker_is_found_and_ended(worker: LocalGroup) -> None:
    process = worker.worker.pipe.process
    worker.worker.pipe = TimedPipe(worker.worker.pipe.pipe, 0, process, 0.2)
    os.kill(process.pid, signal.SIGSTOP)
    worker.call("advance", [[1], [1]])
    with pytest.raises(EnvError, match=r"gave no answer in 0\.2 s"):
        worker.result()
    worker.close(terminate=True)
    assert not process.is_alive()


def test_tensors_are_sent_as_arrays() -> None:
    shared = torch.arange(3.0)
    message = packed({"one": shared, "other": shared, "scalar": torch.tensor(2)})
    assert b"torch.multiprocessing" not in message and b"from_numpy" in message
