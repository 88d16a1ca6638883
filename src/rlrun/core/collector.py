"""Steps the training environments with the agent as it is. Collectors count nothing and train nothing."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.types import Batch, Step, carried


class Timestep(NamedTuple):
    """One step of every environment: what was seen, done and stored, and what came of it."""

    obs: Any  # that the environments gave before the step
    action: Tensor
    extras: Batch  # of agent and add-ons, to be stored with the step
    first: Tensor  # [num_envs] bool: an episode begins with this observation
    step: Step


class Collector:
    """Weights in, timesteps out. It holds what acting needs next: the observations and what is carried along."""

    def __init__(self, agent: Agent, addons: Addons, env: Any, clock: Clock):
        self.agent, self.addons, self.env, self.clock = agent, addons, env, clock
        self.obs: Any = None  # to act on next
        self.carry: Batch = {}

    def begin(self) -> None:
        """Start the first episodes."""
        self.obs = self.env.reset()
        self.carry = {"first": torch.ones(self.env.spec.num_envs, dtype=torch.bool, device=self.env.device)}

    def act(self, *params: Tensor) -> tuple[Tensor, Batch]:
        """Exploring actions [num_envs, ...] and extras. params: [num_envs, P], for agents that act by given weights."""
        return self.addons.act(self.agent, self.obs, self.carry, True, *params)

    def step(self, action: Tensor, extras: Batch) -> Timestep:
        """Take one step in every environment."""
        step = self.env.step(action)
        timestep = Timestep(self.obs, action, extras, self.carry["first"], step)
        self.obs = step.obs
        self.carry = carried(extras, step.terminated | step.truncated)
        return timestep

    def advance(self) -> Timestep:
        """Act, then step."""
        action, extras = self.act()
        self.clock.lap("act")
        timestep = self.step(action, extras)
        self.clock.lap("env")
        return timestep
