"""Environments that fail at a given point, and one that allows only one instance. Workers import this module."""

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

KINDS = ("raise", "hang", "exit", "crash")


def break_down(kind: str) -> None:
    if kind == "raise":
        raise RuntimeError("broken on purpose")
    if kind == "exit":
        os._exit(7)
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "memory":
        bytearray(2 << 30)
    time.sleep(3600)


class Quiet(gym.Env):
    """Counts its steps; episodes end after 30."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Discrete(2)

    def __init__(self) -> None:
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.full(1, self.count, np.float32), 1.0, self.count == 30, False, {}


class Breaking(Quiet):
    """Fails in the constructor, in `reset`, or at step `at` of all steps in its process."""

    steps: ClassVar[int] = 0

    def __init__(self, kind: str, at: str | float):
        super().__init__()
        self.kind, self.at = kind, at
        if at == "make":
            break_down(kind)

    def reset(self, **given: Any) -> Any:
        if self.at == "reset":
            break_down(self.kind)
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        Breaking.steps += 1
        if not isinstance(self.at, str) and Breaking.steps >= self.at:
            break_down(self.kind)
        return super().step(action)


class Alone(Quiet):
    """Raises if another instance exists. Writes to a file when an instance is created and when it is closed."""

    def __init__(self, path: str, most: int = 1):
        super().__init__()
        self.path = Path(path)
        self.tell("made")
        alive = self.path.read_text().count("made") - self.path.read_text().count("closed")
        if alive > most:
            raise RuntimeError(f"there are {alive}")

    def tell(self, what: str) -> None:
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{what} {os.getpid()} safe_path={os.environ.get('PYTHONSAFEPATH')}\n")

    def close(self) -> None:
        self.tell("closed")


for _env in (Quiet, Breaking, Alone):
    gym.register(f"breaking/{_env.__name__}-v0", f"{__name__}:{_env.__name__}")
