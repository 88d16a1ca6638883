"""The wrapper `interval`, which steps an environment in real time."""

import time
from typing import SupportsFloat

import gymnasium as gym

from rlrun.envs.wrappers.wrapper import Wrapper
from rlrun.settings import PositiveFloat, config, register
from rlrun.types import Info


@register("wrapper", "interval")
class Interval(Wrapper):
    """Begins a step `seconds` after the one before, as a robot or a game that runs in real time needs it.

    If a step, or what the agent computes meanwhile, takes longer, the next one begins late, and those after it do not
    catch up. Evaluations run as fast as they can.
    """

    training_only = True

    @config
    class Config:
        seconds: PositiveFloat

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        self.seconds = cfg.seconds
        self.next_step = 0.0  # on a clock of this process; a snapshot may come from another one

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        remaining = self.next_step - time.monotonic()
        if 0 < remaining <= self.seconds:
            time.sleep(remaining)
        self.next_step = time.monotonic() + self.seconds
        return self.env.step(action)
