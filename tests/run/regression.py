"""A linear regression as an algorithm, whose gradient noise scale is known."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

import rlrun
from rlrun.core.agent import Agent
from rlrun.core.state import Optim
from rlrun.settings import config, register
from rlrun.types import Batch, Context, Metrics

INPUTS, SLOPE, NOISE = 8, 0.5, 1.0


class Line(gym.Env[np.ndarray, np.ndarray]):
    """Its observations are inputs x from N(0, I), and its rewards targets y from N(0, NOISE^2)."""

    observation_space = Box(-10, 10, (INPUTS,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.drawn(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.drawn(), NOISE * self.np_random.normal(), False, False, {}

    def drawn(self) -> np.ndarray:
        return self.np_random.normal(size=INPUTS).astype(np.float32)


@register("algo", "regression")
class Regression(Agent):
    """Has the loss (x w - y)^2 / 2. Its learning rate is so small that the weights w = SLOPE do not change."""

    @config
    class Config:
        pass

    loop: ClassVar[dict[str, Any]] = {
        "name": "offpolicy",
        "warmup_steps": 2000,
        "updates_per_step": 0.125,
        "update_every": 8,
        "batch_size": 32,
    }
    buffer: ClassVar[dict[str, Any]] = {"name": "replay", "capacity": 10_000}

    def __init__(self, cfg: Any, spec: Any, parts: Any):
        super().__init__(cfg, spec, parts)
        self.w = nn.Parameter(torch.full((INPUTS,), SLOPE))
        self.optim = Optim([self.w], 1e-30)
        self.noise = parts.stream("noise")

    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        return torch.zeros(len(obs), dtype=torch.long), {}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        error = batch["obs"] @ self.w - batch["reward"]
        self.optim.step(error.square().mean() / 2)
        rlrun.log("updates", ctx.updates)
        return {}
