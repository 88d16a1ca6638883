"""What the callbacks of a run can access."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from rlrun.config.schema import RunConfig
from rlrun.core.callback import RunView
from rlrun.run.live_copy import LiveCopy
from rlrun.run.plain_env import make_env
from rlrun.run.policy import Policy, copied
from rlrun.run.replayed import arrays
from rlrun.types import MASK


@dataclass(frozen=True)
class LiveRun(RunView):
    """The run of a loop that trains in this process."""

    config: RunConfig

    def policy(self) -> Policy:
        return copied(self.config, self.loop)

    def make_env(self, num_envs: int | None = None, render_mode: str | None = None) -> gym.Env | gym.vector.VectorEnv:
        masked = MASK in getattr(self.loop.env.spec.obs, "spaces", ())
        return make_env(self.config, num_envs, render_mode, masked)

    def agent_copy(self) -> LiveCopy:
        return LiveCopy(self.config, self.loop)

    def replay(self) -> dict[str, np.ndarray]:
        return arrays(self.loop.buffer, self.loop.env.spec, self.config.algo["name"])
