"""Random categorical goals: an integer for each episode.

Skills that differ in nothing but the reward for their difference are such goals (DIAYN, arXiv 1802.06070). The goal
that the agent acted with is stored with the step, and the agent learns from that goal.
"""

from dataclasses import replace
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.addons.memory import with_entries
from rlrun.config.schema import Units, config
from rlrun.core.addon import Addon
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.registry import register
from rlrun.types import GOAL, Batch, Spec

GOAL_EXTRA = f"carry.{GOAL}"


@register("goals", "categorical")
class CategoricalGoals(Addon):
    """Draws a goal uniformly at the start of an episode and keeps it to the end.

    In evaluation every environment goes through the goals in order instead.
    """

    @config
    class Config:
        num_goals: Units

    def __init__(self, cfg: Any, spec: Spec, parts: Parts):
        super().__init__()
        if isinstance(spec.obs, spaces.Dict) and GOAL in spec.obs.spaces:
            raise ConfigError(f"algo.goals: observations have an entry {GOAL!r} already")
        self.num_goals = cfg.num_goals
        self.space = spaces.Discrete(cfg.num_goals)
        self.stores = {GOAL_EXTRA: self.space}
        self.draw = parts.stream("draw")

    def spec(self, spec: Spec) -> Spec:
        entries = {"obs": spec.obs}
        if isinstance(spec.obs, spaces.Dict):
            entries = spec.obs.spaces
        obs = spaces.Dict({**entries, GOAL: self.space})
        return replace(spec, obs=obs)

    def see(self, obs: Any, carry: Batch, explore: bool) -> tuple[Any, Batch]:
        first = carry["first"]
        num_envs = len(first)
        before_first = torch.arange(num_envs, device=first.device) - num_envs
        previous = carry.get(GOAL_EXTRA, before_first)
        if explore:
            new = self.draw.integers(self.num_goals, num_envs)
        else:
            new = (previous + num_envs) % self.num_goals
        goal = torch.where(first, new, previous)
        return with_goal(obs, goal), {GOAL_EXTRA: goal}

    def relabel(self, batch: Batch) -> Batch:
        goal = batch[GOAL_EXTRA]
        return batch | {
            "obs": with_goal(batch["obs"], goal),
            "next_obs": with_goal(batch["next_obs"], goal),
        }


def with_goal(obs: Any, goal: Tensor) -> Batch:
    """Returns an observation with the goal as one of its entries."""
    return with_entries(obs, **{GOAL: goal})
