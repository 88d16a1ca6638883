"""Random categorical goals: one of a few numbers for each episode, which means what the agent makes of it.

Skills that nothing but their difference is rewarded for are such goals (DIAYN, arXiv 1802.06070). What is stored with a
step is the goal that it was acted with, and that goal is what is learned from.
"""

from dataclasses import replace
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.addons.memory import beside
from rlrun.config.schema import Units, config
from rlrun.core.addon import Addon
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.registry import register
from rlrun.types import GOAL, Batch, Spec

KEPT = f"carry.{GOAL}"


@register("goals", "categorical")
class CategoricalGoals(Addon):
    """Drawn uniformly where an episode begins, carried through it. In evaluation environments take turns instead."""

    @config
    class Config:
        num_goals: Units

    def __init__(self, cfg: Any, spec: Spec, parts: Parts):
        super().__init__()
        if isinstance(spec.obs, spaces.Dict) and GOAL in spec.obs.spaces:
            raise ConfigError(f"algo.goals: observations have an entry {GOAL!r} already")
        self.num_goals, self.space = cfg.num_goals, spaces.Discrete(cfg.num_goals)
        self.stores = {KEPT: self.space}
        self.draw = parts.stream("draw")

    def spec(self, spec: Spec) -> Spec:
        own = spec.obs.spaces if isinstance(spec.obs, spaces.Dict) else {"obs": spec.obs}
        return replace(spec, obs=spaces.Dict({**own, GOAL: self.space}))

    def see(self, obs: Any, carry: Batch, explore: bool) -> tuple[Any, Batch]:
        first = carry["first"]
        num_envs = len(first)
        previous = carry.get(KEPT, torch.arange(num_envs, device=first.device) - num_envs)
        if explore:
            fresh = self.draw.integers(self.num_goals, num_envs)
        else:
            fresh = (previous + num_envs) % self.num_goals
        goal = torch.where(first, fresh, previous)
        return with_goal(obs, goal), {KEPT: goal}

    def relabel(self, batch: Batch) -> Batch:
        return batch | {name: with_goal(batch[name], batch[KEPT]) for name in ("obs", "next_obs")}


def with_goal(obs: Any, goal: Tensor) -> Batch:
    return beside(obs, **{GOAL: goal})
