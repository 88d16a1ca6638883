"""The replay buffer of a run as numpy arrays."""

import dataclasses
import math
from pathlib import Path

import numpy as np

from rlrun import memory
from rlrun.buffers.mixed import Mixed
from rlrun.buffers.replay import Replay
from rlrun.buffers.ring import RingBuffer
from rlrun.envs.stepping.actions import conversion, leaves
from rlrun.errors import ConfigError
from rlrun.nested import mapped
from rlrun.run.assemble import build_buffer
from rlrun.run.checkpointer import REPLAY, WITHOUT_REPLAY
from rlrun.run.trained import Trained, built_from, restored
from rlrun.run.weights import load_part, locate
from rlrun.snapshot.store import Store
from rlrun.types import Spec

ENTRIES = ("obs.", "next_obs.")  # the columns from which the buffer composes observations that are dicts
COLLECTED = "buffer.collected."  # prefix of the state of collected transitions, beside those of data sets


def arrays(buffer: object, spec: Spec, algo: str) -> dict[str, np.ndarray]:
    """Returns the steps in a buffer, oldest first, with actions of the environment. Raises ConfigError without replay.

    spec: of the environments. algo: name of the algorithm, for the error.
    """
    if isinstance(buffer, Mixed):
        buffer = buffer.collected
    if not isinstance(buffer, Replay):
        raise ConfigError(f"algo={algo} has no replay buffer")
    sizes = [
        math.prod(leaf.shape or ()) * (leaf.dtype or np.dtype(np.float32)).itemsize for _, leaf in leaves(spec.obs)
    ]
    memory.check_fits(f"a replay of {len(buffer):,} steps", 2 * sum(sizes) * len(buffer))  # with stacks of images
    stored = {name: values for name, values in buffer.stored().items() if not name.startswith(ENTRIES)}
    steps = mapped(lambda values: values.cpu().numpy(), stored)
    actions = conversion(spec.shown_action)
    steps["action"] = actions.to_native(actions.clip(steps["action"]))
    for name in ("terminated", "truncated"):
        steps[name] = steps[name] > 0
    return steps  # type: ignore[no-any-return]


def stored_replay(path: Path) -> dict[str, np.ndarray]:
    """Returns the replay buffer in a snapshot, or in the latest of a run, which may be untrusted."""
    run_path, name = locate(path)
    name = name or Store(run_path).latest()
    if name is not None:
        path = run_path / "snapshots" / name
    with restored(path, episodes=1, seed=None, words={}, in_this_process=True) as trained, built_from(run_path):
        if trained.snapshot.header.get(WITHOUT_REPLAY):
            raise ConfigError(f"{path}: holds no replay, because of trainer.snapshot_replay=false")
        return arrays(_restored_buffer(trained), trained.env.spec, trained.config.algo["name"])


def _restored_buffer(trained: Trained) -> object:
    """Returns the buffer of collected transitions in a snapshot, or None without replay."""
    config, snapshot = trained.config, trained.snapshot
    spec = dataclasses.replace(trained.env.spec, num_envs=config.env.num_envs)
    buffer = build_buffer(config, trained.agent, trained.addons, spec, trained.env.device)
    if not isinstance(buffer, Replay):
        return None
    prefix = REPLAY
    if any(key.startswith(COLLECTED) for key in snapshot.state):
        prefix = COLLECTED
    load_part(buffer, snapshot.state, prefix.removesuffix("."))
    for name, module in buffer.named_modules():
        if isinstance(module, RingBuffer):
            snapshot.restore_ring(prefix + name, module)
    return buffer
