"""The pieces of a run that `rlrun bench` measures one by one, mostly in microseconds of CPU time per call."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rlrun.bench.measure import Figures, microseconds, rates

Work = Callable[[], object]

RUNS = {
    "sac": ["algo=sac", "env=HalfCheetah"],
    "td3": ["algo=td3", "env=HalfCheetah"],
    "dqn": ["algo=dqn", "env=CartPole", "preset=none"],
    "ppo": ["algo=ppo", "env=HalfCheetah", "preset=none"],
}
MANY = 4096  # number of environments that simulators step at once
READ_EVERY = 256  # vector steps after which the episodes of simulators that have ended are read
WARMUP = 600  # steps that a loop collects before measurements
LEARNING = [f"algo.loop.warmup_steps={WARMUP - 20}"]  # so that updates run in the last 20 of these steps
FILLING = ["algo.loop.warmup_steps=100000"]  # so that no updates run


def loop(words: list[str]) -> Any:
    """Builds a run's loop like `rlrun train`, and ticks it for `WARMUP` steps."""
    from rlrun.config.jobs import jobs
    from rlrun.config.schema import run_config
    from rlrun.run.assemble import build_loop

    made = build_loop(run_config(jobs(words)[0].values))
    made.begin()
    while made.steps < WARMUP:
        made.tick()
    return made


def update(*names: str) -> Iterator[tuple[str, Work]]:
    """Yields an update of each algorithm, or of the named ones."""
    for name in names or RUNS:
        how, work, _ = one_update(name)
        yield how, work


def one_update(name: str, *words: str) -> tuple[str, Work, Any]:
    """Returns label, update and agent of an algorithm in `RUNS`. words: further settings."""
    return build_update(name, [*RUNS[name], *words])


def build_update(name: str, words: list[str]) -> tuple[str, Work, object]:
    """Returns label, update and agent of a run with these settings. name: an algorithm in `RUNS`."""
    from rlrun.buffers.minibatches import minibatches

    if name == "ppo":
        run = loop(words)
        rollout = run.agent.advantages(run.batch)
        batch = next(minibatches(rollout, 1, 64, run.agent.shuffle))[0]
        return "update ppo, minibatch 64", partial(run.agent.update_minibatch, batch), run.agent
    run = loop([*words, *LEARNING])
    batch = run.buffer.sample(run.cfg.batch_size)
    ctx = run.context(run.buffer)
    return f"update {name}, batch {run.cfg.batch_size}", partial(run.agent.update, batch, ctx), run.agent


def act() -> Iterator[tuple[str, Work]]:
    """Yields calls of `act`, with and without exploration."""
    for name in RUNS:
        words = [*RUNS[name]]
        if name != "ppo":
            words += FILLING
        run = loop(words)
        how = f"act {name}, {run.env.num_envs} env"
        yield f"{how}, exploring", partial(run.agent.act, run.obs, run.carry, explore=True)
        yield f"{how}, greedy", partial(run.agent.act, run.obs, run.carry, explore=False)


def search() -> Iterator[tuple[str, Work]]:
    """Yields tree searches of MuZero."""
    for name in ("muzero", "gumbel_muzero"):
        run = loop([f"algo={name}", "env=TicTacToe", "preset=none", "env.num_envs=256"])
        how = f"search {name}, {run.env.num_envs} roots, {run.agent.search.cfg.num_simulations} simulations"
        yield how, partial(run.agent.act, run.obs, run.carry, explore=False)


def replay() -> Iterator[tuple[str, Work]]:
    """Yields sampling from full replay buffers, uniform and prioritised."""
    import torch

    uniform = loop([*RUNS["sac"], *FILLING]).buffer
    fill(uniform.ring)
    yield "replay sample 256 of 1M", partial(uniform.sample, 256)
    words = ["algo=prioritized_dqn", "env=CartPole", "preset=none", "algo.buffer.capacity=1000000"]
    prioritized = loop([*words, *FILLING]).buffer
    fill(prioritized.ring)
    prioritized.tree.set(torch.arange(prioritized.ring.capacity), 1.0)
    yield "replay prioritized sample 256 of 1M and update", partial(sample_and_update, prioritized)


def fill(ring: Any) -> None:
    """Marks a replay buffer as full, and writes every page of its memory so that it is allocated."""
    ring.total = ring.capacity
    ring.memory["rows"].fill_(1.0)


def sample_and_update(buffer: Any) -> None:
    """Samples a batch and sets its priorities."""
    batch = buffer.sample(256)
    buffer.feedback(batch, batch["reward"])


def env() -> Iterator[tuple[str, Work]]:
    """Yields steps of one and of eight environments."""
    for name, count in (("HalfCheetah", 1), ("HalfCheetah", 8), ("CartPole", 1), ("CartPole", 8)):
        run = loop(["algo=ppo", f"env={name}", "preset=none", f"env.num_envs={count}"])
        action, _ = run.agent.act(run.obs, run.carry, explore=True)
        yield f"env step {name}, {count} env", partial(run.env.step, action)


def simulators() -> Iterator[tuple[str, Work]]:
    """Yields steps of `MANY` environments: in torch, and with Gymnasium's vector envs alone, without rlrun."""
    import gymnasium
    import numpy as np

    from rlrun.config.jobs import jobs
    from rlrun.config.schema import run_config
    from rlrun.core.random import Stream
    from rlrun.envs.stepping.vector import VectorEnv

    vector_envs = {"CartPole": ("sync", "vector_entry_point"), "Pendulum": ("sync",)}
    for name, modes in vector_envs.items():
        words = ["algo=ppo", f"env={name}", "preset=none", "env.backend=torch", f"env.num_envs={MANY}"]
        config = run_config(jobs(words)[0].values).env
        env = VectorEnv.make(config, np.random.SeedSequence(0))
        env.reset()
        yield f"{MANY} {name}, torch", partial(step_and_read, env, env.sample(Stream(0, "actions")))
        for mode in modes:
            theirs = gymnasium.make_vec(config.id, MANY, vectorization_mode=mode)
            theirs.reset(seed=0)
            theirs.action_space.seed(0)
            yield (
                f"{MANY} {name}, {type(theirs.unwrapped).__name__}",
                partial(theirs.step, theirs.action_space.sample()),
            )


def step_and_read(env: Any, action: Any) -> None:
    """Steps environments in torch, and reads the episodes that have ended as often as a run would."""
    env.step(action)
    if env.steps % READ_EVERY == 0:
        env.pending_episodes()


def tick() -> Iterator[tuple[str, Work]]:
    """Yields ticks of a loop: acting, a step, and the updates that are due."""
    for name in ("sac", "td3", "dqn"):
        run = loop([*RUNS[name], *LEARNING])
        yield f"tick {name}", run.tick


def startup() -> Iterator[tuple[str, Work]]:
    """Yields whole commands that do not train."""
    for words in (["--help"], ["train", "algo=sac", "env=HalfCheetah", "--cfg", "job"]):
        command = [sys.executable, "-m", "rlrun", *words]
        yield f"rlrun {' '.join(words)}", partial(subprocess.run, command, capture_output=True, check=False)


PARTS: dict[str, Callable[..., Iterator[tuple[str, Work]]]] = {
    "update": update, "act": act, "search": search, "replay": replay, "env": env, "simulators": simulators,
    "tick": tick, "startup": startup,
}  # fmt: skip


def timers(part: str, names: list[str], seconds: float) -> dict[str, Callable[[], Figures]]:
    """Returns for each case of a part a function that measures it once.

    It measures CPU time per call, but wall-clock time for `startup`, and for `simulators` steps per second of wall time
    and of CPU time.
    """
    clock = time.process_time
    if part == "startup":
        clock = time.perf_counter

    def once(work: Work) -> Figures:
        if part == "simulators":
            return rates(work, seconds, MANY)
        return {"us": microseconds(work, seconds, clock)}

    return {case: partial(once, work) for case, work in PARTS[part](*names)}
