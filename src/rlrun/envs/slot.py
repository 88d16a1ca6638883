"""One place in a vector of environments: the outermost layer, in the worker's process where there is one."""

import os
import signal
import traceback
from typing import Any

import gymnasium as gym

from rlrun.envs import state

WORKER_IGNORES = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class EnvError(Exception):
    """An environment raised. Holds text only, so that it crosses a process border whatever the cause was."""

    def __init__(self, index: int, reason: str, trace: str = ""):
        super().__init__(index, reason, trace)
        self.index, self.reason = index, reason

    def __str__(self) -> str:
        return f"environment {self.index}: {self.reason}\n{self.args[2]}".strip()


class Slot(gym.Wrapper):
    """Names the environment that raises, fixes its instance seed, and reads and writes its whole state.

    Infos stop here: they are slow to merge and to send, and no part of rlrun reads them.
    """

    def __init__(self, env: gym.Env, index: int, instance_seed: int | None = None):
        super().__init__(env)
        self.index = index
        self.options = None if instance_seed is None else {"instance_seed": instance_seed}
        self.refused = ""  # why the last snapshot given could not be put back

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            obs, reward, terminated, truncated, _ = self.env.step(action)
        except Exception as error:
            raise self._fault(error) from error
        return obs, reward, terminated, truncated, {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:  # some environments draw from their own spaces
            for layer in (self.env, self.env.unwrapped):
                layer.action_space.seed(seed)
                layer.observation_space.seed(seed)
        if self.options is not None:
            options = {**(options or {}), **self.options}
        try:
            obs, _ = self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise self._fault(error) from error
        return obs, {}

    @property
    def snapshot(self) -> state.Tree:
        """The state of everything below this layer. Assign a tree to put it back."""
        return state.save(self.env)

    @snapshot.setter
    def snapshot(self, tree: state.Tree) -> None:
        self.env.reset(seed=0)  # environments create attributes at their first reset
        try:
            state.restore(self.env, tree)
            self.refused = ""
        except Exception as error:  # the caller asks for `refused`: an exception would end a worker
            self.refused = _line(error)

    def _fault(self, error: Exception) -> EnvError:
        return EnvError(self.index, _line(error), traceback.format_exc())


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def leave_signals_to(parent: int) -> None:
    """In a worker: the run decides what a signal means, and needs its workers alive to write a last snapshot."""
    if os.getpid() != parent:
        for number in WORKER_IGNORES:
            signal.signal(number, signal.SIG_IGN)
