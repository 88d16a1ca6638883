"""Calls the reward function of a goal environment, as hindsight replay needs it.

The contract is that of Gymnasium-Robotics: `compute_reward(achieved_goal, desired_goal, info)` and, optionally,
`compute_terminated` with the same arguments. Both are found through wrappers.
"""

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from rlrun.envs.make import Recipe
from rlrun.envs.rewards import reward_shape
from rlrun.envs.slot import EnvError, EnvSlot, line
from rlrun.envs.workers import TimedPipe, end, started
from rlrun.errors import ConfigError, RunError

Results = tuple[np.ndarray, np.ndarray | None]


class GoalFunctions:
    """`compute_reward` and `compute_terminated` of one environment, for batches of goals.

    Replay stores no infos, so `info` is empty. A function that takes no batches is called once for each row.
    """

    def __init__(self, env: EnvSlot, achieved: Space, desired: Space):
        """achieved, desired: spaces of the goals. Raises ConfigError if rewards cannot be computed."""
        if reward_shape(env):
            raise ConfigError("algo.buffer: hindsight is not supported for reward vectors")
        self.reward = _attribute(env, "compute_reward")
        self.terminated = _attribute(env, "compute_terminated")
        if self.reward is None:
            raise ConfigError(
                f"algo.buffer: hindsight needs compute_reward(achieved_goal, desired_goal, info), which "
                f"{type(env.unwrapped).__name__} does not have"
            )
        env.reset(seed=0)
        count = math.prod(achieved.shape or ()) + 1  # unequal to the size of a goal, so that shapes are unambiguous
        goals = _samples(achieved, count), _samples(desired, count)
        try:
            self.batched = {
                function: _takes_batches(function, *goals)
                for function in (self.reward, self.terminated)
                if function is not None
            }
        except Exception as error:
            raise ConfigError(
                f"algo.buffer: {type(env.unwrapped).__name__} cannot compute rewards of goals with an empty info "
                f"({line(error)})"
            ) from error

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> Results:
        """Returns rewards [batch] and whether steps terminate [batch], None if this is not known."""
        assert self.reward is not None
        reward = self._values(self.reward, achieved, desired)
        terminated = None
        if self.terminated is not None:
            terminated = self._values(self.terminated, achieved, desired)
        return reward, terminated

    def _values(self, function: Callable[..., Any], achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        if self.batched[function]:
            values = function(achieved, desired, {})
        else:
            values = _by_rows(function, achieved, desired)
        return np.asarray(values, np.float32)


class GoalRewards:
    """Rewards of goals, from one more environment that is never stepped: in this process, or in a worker.

    Its environment is made by `open`, so runs without hindsight make none. Scheduled attributes and tasks of the
    training environments do not change it.
    """

    def __init__(self, recipe: Recipe, in_worker: bool, timeout_s: float):
        self.recipe, self.in_worker, self.timeout_s = recipe, in_worker, timeout_s
        self.env: EnvSlot | None = None
        self.functions: GoalFunctions | None = None
        self.pipe: TimedPipe | None = None

    def open(self, achieved: Space, desired: Space) -> None:
        """Makes the environment, unless it exists. achieved, desired: spaces of the goals.

        Raises ConfigError if it cannot be made, or if it cannot compute rewards.
        """
        if self.env is not None or self.pipe is not None:
            return
        try:
            if self.in_worker:
                self.pipe = started(serve, self.recipe, self.timeout_s, (self.recipe, achieved, desired))
                self.pipe.result()
            else:
                self.env = self.recipe()
                self.functions = GoalFunctions(self.env, achieved, desired)
        except EnvError as error:
            self.close()
            raise ConfigError(f"env: {self.recipe.id} cannot be made ({error.reason})") from error
        except BaseException:
            self.close()
            raise

    def __call__(self, achieved: Tensor, desired: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns rewards [batch] and terminations [batch] (0 or 1; None if not known) of goals [batch, *goal].

        Raises RunError if the environment raises, or returns a number that is not finite.
        """
        goals = achieved.cpu().numpy(), desired.cpu().numpy()
        try:
            if self.pipe is not None:
                self.pipe.send(goals)
                reward, terminated = self.pipe.result()
            else:
                assert self.functions is not None
                reward, terminated = self.functions(*goals)
        except Exception as error:
            raise RunError(f"env {self.recipe.id}: rewards of goals cannot be computed ({line(error)})") from error
        if not np.isfinite(reward).all():
            raise RunError(f"env {self.recipe.id}: compute_reward returned a number that is not finite")
        device = achieved.device
        if terminated is None:
            return torch.from_numpy(reward).to(device), None
        return torch.from_numpy(reward).to(device), torch.from_numpy(terminated).to(device)

    def close(self) -> None:
        """Closes the environment and ends its worker. May be called twice."""
        if self.env is not None:
            with contextlib.suppress(Exception):
                self.env.close()
        if self.pipe is not None:
            self.pipe.close()
            end([self.pipe.process])
        self.env = self.functions = self.pipe = None


def serve(pipe: Any, index: int, given: tuple[Recipe, Space, Space], things: contextlib.ExitStack) -> None:
    """Runs in a worker: receives goals and sends their rewards and terminations, until the pipe is closed."""
    recipe, achieved, desired = given
    env = recipe()
    things.callback(env.close)
    functions = GoalFunctions(env, achieved, desired)
    pipe.send((None, None))
    while True:
        goals = pipe.recv()
        pipe.send((functions(*goals), None))


def _attribute(env: EnvSlot, name: str) -> Callable[..., Any] | None:
    """Returns a method of the environment or of the outermost wrapper that has it; None if there is none."""
    try:
        method: Callable[..., Any] = env.get_wrapper_attr(name)
    except AttributeError:
        return None
    return method


def _samples(space: Space, count: int) -> np.ndarray:
    """Returns different values of a space, [count, ...]."""
    source = copy.deepcopy(space)
    source.seed(0)
    return np.stack([source.sample() for _ in range(count)])


def _takes_batches(function: Callable[..., Any], achieved: np.ndarray, desired: np.ndarray) -> bool:
    """Returns whether a function gives the same values for a batch as for its rows.

    Raises what the function raises for single rows.
    """
    by_rows = _by_rows(function, achieved, desired)
    try:
        values = np.asarray(function(achieved, desired, {}))
    except Exception:
        return False
    return values.shape == (len(by_rows),) and np.allclose(values, by_rows)


def _by_rows(function: Callable[..., Any], achieved: np.ndarray, desired: np.ndarray) -> list[float]:
    return [float(function(a, d, {})) for a, d in zip(achieved, desired, strict=True)]
