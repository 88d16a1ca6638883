"""The measurements of `scripts/gpu`: updates with every engine, replay, and simulators. Times are wall-clock times."""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch

from rlrun.bench import pieces
from rlrun.bench.measure import Figures, interleaved, measure, microseconds
from rlrun.bench.pieces import Work, build_update, fill, loop
from rlrun.core.random import Stream

RUNS = {  # without MuJoCo, which may be missing on GPU machines
    "sac": ["algo=sac", "env=Pendulum", "preset=none"],
    "td3": ["algo=td3", "env=Pendulum", "preset=none"],
    "dqn": ["algo=dqn", "env=CartPole", "preset=none", "algo.loop.batch_size=32"],
    "ppo": ["algo=ppo", "env=CartPole", "preset=none"],
}
ENGINES = {
    "eager": ["trainer.engine=eager"],
    "eager, bf16": ["trainer.engine=eager", "trainer.precision=bf16"],
    "cudagraph": ["trainer.engine=cudagraph"],
    "cudagraph, bf16": ["trainer.engine=cudagraph", "trainer.precision=bf16"],
}
SIMULATED = ["algo=ppo", "env=phys2d/CartPole-v1", "env.backend=jax", "env.num_envs=1024", "preset=none"]
SIMULATED += ["algo.loop.rollout_steps=16", "algo.minibatch_size=4096", "algo.epochs=1"]
IN_TORCH = [
    "algo=ppo",
    "env=CartPole",
    "env.backend=torch",
    "preset=none",
    "algo.loop.rollout_steps=16",
    "algo.epochs=1",
]
COUNTS = (4096, 65536)  # numbers of environments in torch


def updates(engines: dict[str, list[str]], device: str) -> Iterator[tuple[str, Work]]:
    """Yields an update of every algorithm with every engine. The data are on the device."""
    for name, words in RUNS.items():
        for engine, more in engines.items():
            how, work, _ = build_update(name, [*words, *more, f"device={device}"])
            yield f"{how}, {engine}", work


def replay(device: str) -> Iterator[tuple[str, Work]]:
    """Yields sampling from a full replay buffer, and a whole step with its update."""
    buffer = loop([*RUNS["sac"], f"device={device}", "algo.loop.warmup_steps=100000"]).buffer
    fill(buffer.ring)
    yield "replay sample 256 of 1M", partial(buffer.sample, 256)
    run = loop(
        [*RUNS["sac"], f"device={device}", "trainer.engine=eager", f"algo.loop.warmup_steps={pieces.WARMUP - 20}"]
    )
    yield "tick sac, 1 env on the CPU", run.tick


def simulated(engines: dict[str, list[str]], device: str) -> Iterator[tuple[str, Work]]:
    """Yields ticks of PPO (rollout and update) with environments in JAX, whose arrays are passed by DLPack."""
    for engine, more in engines.items():
        yield f"tick ppo, 1024 env in jax, 16 steps, {engine}", loop([*SIMULATED, *more, f"device={device}"]).tick


def in_torch(engines: dict[str, list[str]], device: str) -> Iterator[tuple[str, Work]]:
    """Yields steps of environments in torch, and ticks of PPO (rollout and update) with them.

    A rollout is learned from in 16 minibatches.
    """
    for count in COUNTS:
        words = [*IN_TORCH, f"env.num_envs={count}", f"algo.minibatch_size={count}", f"device={device}"]
        stepped = loop(words)
        yield (
            f"env step CartPole in torch, {count} env",
            partial(stepped.env.step, stepped.env.sample(Stream(0, "actions"))),
        )
        for engine, more in engines.items():
            yield f"tick ppo, {count} env in torch, 16 steps, {engine}", loop([*words, *more]).tick


def timers(works: Iterator[tuple[str, Work]], seconds: float, wait: Work) -> dict[str, Callable[[], Figures]]:
    """Returns for each work a function that measures it once. wait: waits until the device is idle."""

    def once(work: Work) -> Figures:
        def done() -> None:
            work()
            wait()

        return {"us": microseconds(done, seconds, time.perf_counter)}

    return {case: partial(once, work) for case, work in works}


def run(results: Path, engines: dict[str, list[str]], device: str, wait: Work, seconds: float, repeats: int) -> None:
    """Measures all groups, one after the other, and appends records to `results`."""
    in_fp32 = {name: engines[name] for name in engines if "," not in name}
    groups = [updates(engines, device), replay(device), in_torch(in_fp32, device)]
    if find_spec("jax") and find_spec("flax"):
        groups.append(simulated(in_fp32, device))
    else:
        print("jax and flax are not installed: simulators on the device are not measured")
    for group in groups:
        works = timers(group, seconds, wait)
        measure("micro", partial(interleaved, works, repeats), "", results, library=f"rlrun on {place(device)}")


def place(device: str) -> str:
    """Returns the name of the GPU, or `device` if there is none, for records."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return device


if __name__ == "__main__":
    run(Path(sys.argv[1]), ENGINES, "cuda", torch.cuda.synchronize, 0.5, 5)
