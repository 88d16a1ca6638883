"""Categorical goals: each episode has a random integer as its goal, which the agent observes.

DIAYN (arXiv 1802.06070) uses these goals as its skills. The goal is stored with each step, and the agent learns from
the stored goal.
"""

from dataclasses import replace
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.addons.memory import with_entries
from rlrun.core.addon import Addon
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.settings import Units, config, register
from rlrun.types import GOAL, Batch, Obs, Spec

GOAL_EXTRA = f"carry.{GOAL}"


@register("goals", "categorical")
class CategoricalGoals(Addon):
    """Samples a goal uniformly at the start of each episode and keeps it until the episode ends.

    In evaluation, goals are not sampled: environment i plays the goals i, i + num_envs, i + 2 num_envs, ... modulo
    num_goals in successive episodes. Together the environments cycle through all goals.
    """

    unexportable = "every episode has another goal"

    @config
    class Config:
        num_goals: Units

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        if isinstance(spec.obs, spaces.Dict) and GOAL in spec.obs.spaces:
            raise ConfigError(f"algo.goals: the observation already has an entry {GOAL!r}")
        self.num_goals = cfg.num_goals
        self.space = spaces.Discrete(cfg.num_goals)
        self.stores = {GOAL_EXTRA: self.space}
        self.draw = parts.stream("draw")

    def spec_after(self, spec: Spec) -> Spec:
        entries = {"obs": spec.obs}
        if isinstance(spec.obs, spaces.Dict):
            entries = spec.obs.spaces
        obs = spaces.Dict({**entries, GOAL: self.space})
        return replace(spec, obs=obs)

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        first = carry["first"]
        num_envs = len(first)
        # the goal "before" the first is i - num_envs, so that evaluations of environment i begin with goal i
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


def with_goal(obs: Obs, goal: Tensor) -> Any:
    """Returns the observation as a dict with the additional entry `goal`."""
    return with_entries(obs, **{GOAL: goal})
