"""Rewards of other goals, in a worker if environments run in workers."""

import contextlib

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.goal_functions import GoalFunctions, serve
from rlrun.envs.stepping.slot import EnvError, EnvSlot, line
from rlrun.envs.stepping.workers import TimedPipe, end, started
from rlrun.errors import ConfigError, RunError


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
