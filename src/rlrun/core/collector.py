"""Steps the training environments with the agent's current weights. The loop counts the steps and trains."""

from typing import Any

import torch
from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.errors import RunError
from rlrun.types import Batch, Events, Spec, Step, carried, measured

LONGEST_EPISODE = 10_000  # timesteps that may pass without the end of an episode, unless the time limit is longer


class Collector:
    """Acts in the environments and returns their steps. Holds the current observations and the carry."""

    def __init__(self, agent: Agent, addons: Addons, env: Any, clock: Clock):
        self.agent, self.addons, self.env, self.clock = agent, addons, env, clock
        self.obs: Any = None  # observations to act on next
        self.carry: Batch = {}

    def begin(self) -> None:
        """Resets all environments."""
        self.obs = self.env.reset()
        self.carry = {"first": torch.ones(self.env.spec.num_envs, dtype=torch.bool, device=self.env.device)}

    def act(self, *params: Tensor) -> tuple[Tensor, Batch]:
        """Returns exploring actions [num_envs, ...] and extras. params: weights to act with, as in `Agent.act`."""
        return self.addons.act(self.agent, self.obs, self.carry, True, *params)

    def step(self, action: Tensor, extras: Batch) -> tuple[Step, Events]:
        """Takes one step in every environment. Returns it with observation, action and extras, and its events."""
        result, events = self.env.step(action)
        step = {"obs": self.obs, "action": action, "first": self.carry["first"], **result, **extras}
        if own := measured(extras):
            events = events._replace(measures={**own, **events.measures})
        self.obs = result["following"]
        self.carry = carried(extras, result["terminated"] | result["truncated"])
        return step, events

    def advance(self) -> tuple[Step, Events]:
        """Acts and steps once."""
        action, extras = self.act()
        self.clock.lap("act")
        step, events = self.step(action, extras)
        self.clock.lap("env")
        return step, events


def check_ends(steps: int, spec: Spec) -> None:
    """Raises RunError if a loop of whole episodes has waited too long for the end of an episode.

    steps: number of timesteps that it has waited.
    """
    limit = max(LONGEST_EPISODE, spec.time_limit or 0)
    if steps > limit:
        raise RunError(
            f"no episode has ended in {limit:,} timesteps, but this algorithm learns from whole episodes; "
            "env.max_episode_steps sets a time limit"
        )
