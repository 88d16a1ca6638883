"""Calls the reward function of a goal environment, as hindsight replay needs it.

The contract is that of Gymnasium-Robotics: `compute_reward(achieved_goal, desired_goal, info)` and, optionally,
`compute_terminated` with the same arguments. Both are found through wrappers.
"""

import contextlib
import copy
import math
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.returned import number
from rlrun.envs.stepping.slot import EnvError, EnvSlot, line
from rlrun.envs.stepping.workers import TimedPipe, end, started
from rlrun.envs.wrappers.reward_vectors import reward_shape
from rlrun.errors import ConfigError, RunError

Results = tuple[np.ndarray, np.ndarray | None]
BatchFunction = Callable[[np.ndarray, np.ndarray], object]


class GoalFunctions:
    """`compute_reward` and `compute_terminated` of one environment, for batches of goals.

    Replay stores no infos, so `info` is empty. A function that takes no batches is called once for each row.
    """

    def __init__(self, env: EnvSlot, achieved: Space, desired: Space):
        """achieved, desired: spaces of the goals. Raises ConfigError if rewards cannot be computed."""
        if reward_shape(env):
            raise ConfigError("algo.buffer: hindsight is not supported for reward vectors")
        name = type(env.unwrapped).__name__
        compute_reward = _attribute(env, "compute_reward")
        compute_terminated = _attribute(env, "compute_terminated")
        if compute_reward is None:
            raise ConfigError(
                f"algo.buffer: hindsight needs compute_reward(achieved_goal, desired_goal, info), which {name} does "
                "not have"
            )
        env.reset(seed=0)
        count = math.prod(achieved.shape or ()) + 1  # unequal to the size of a goal, so that shapes are unambiguous
        samples = _samples(achieved, count), _samples(desired, count)
        self.terminated: BatchFunction | None = None
        try:
            self.reward = _for_batches(compute_reward, *samples)
            if compute_terminated is not None:
                self.terminated = _for_batches(compute_terminated, *samples)
        except Exception as error:
            raise ConfigError(
                f"algo.buffer: {name} cannot compute rewards of goals with an empty info ({line(error)})"
            ) from error

    def __call__(self, achieved: np.ndarray, desired: np.ndarray) -> Results:
        """Returns rewards [batch] and whether steps terminate [batch], None if this is not known."""
        reward = np.asarray(self.reward(achieved, desired), np.float32)
        terminated = None
        if self.terminated is not None:
            terminated = np.asarray(self.terminated(achieved, desired), np.float32)
        return reward, terminated


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


def serve(pipe: Connection, index: int, given: tuple[Recipe, Space, Space], resources: contextlib.ExitStack) -> None:
    """Runs in a worker: receives goals and sends their rewards and terminations, until the pipe is closed."""
    recipe, achieved, desired = given
    env = recipe()
    resources.callback(env.close)
    functions = GoalFunctions(env, achieved, desired)
    pipe.send((None, None))
    while True:
        goals = pipe.recv()
        pipe.send((functions(*goals), None))


def _attribute(env: EnvSlot, name: str) -> Callable[..., object] | None:
    """Returns a method of the environment or of the outermost wrapper that has it; None if there is none."""
    try:
        method: Callable[..., object] = env.get_wrapper_attr(name)
    except AttributeError:
        return None
    return method


def _samples(space: Space, count: int) -> np.ndarray:
    """Returns different values of a space, [count, ...]."""
    source = copy.deepcopy(space)
    source.seed(0)
    return np.stack([source.sample() for _ in range(count)])


def _for_batches(function: Callable[..., object], achieved: np.ndarray, desired: np.ndarray) -> BatchFunction:
    """Returns a function of goals [batch, *goal] with the results [batch] of `function` for each row.

    The function itself is called with whole batches if this gives the same results for these goals. Raises what the
    function raises for single goals.
    """
    expected = _by_rows(function, achieved, desired)
    try:
        values = _at_once(function, achieved, desired)
    except Exception:
        return partial(_by_rows, function)
    if not np.allclose(values, expected):
        return partial(_by_rows, function)
    return partial(_at_once, function)


def _at_once(function: Callable[..., object], achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    """Returns the results [batch] of a function that takes batches; [batch, 1] is accepted too."""
    return np.asarray(function(achieved, desired, {})).reshape(len(achieved))


def _by_rows(function: Callable[..., object], achieved: np.ndarray, desired: np.ndarray) -> list[float]:
    return [number("its result", function(a, d, {})) for a, d in zip(achieved, desired, strict=True)]
