"""The reward function of a goal environment, for batches of goals, as hindsight replay needs it.

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
from gymnasium import Space

from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.returned import number
from rlrun.envs.stepping.slot import EnvSlot, line
from rlrun.envs.wrappers.reward_vectors import reward_shape
from rlrun.errors import ConfigError

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
                "not have; or set algo.buffer.reward=distance"
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
