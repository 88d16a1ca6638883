"""Base class of goals: each episode has a random one, which the agent observes."""

from dataclasses import replace
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.addons.memory import with_entries
from rlrun.core.addon import Addon
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.types import GOAL, Batch, Obs, Spec

GOAL_EXTRA = f"carry.{GOAL}"
NUMBER = "carry.goal_number"


class EpisodeGoals(Addon):
    """Draws a goal at the start of each episode and keeps it until the episode ends.

    The goal is stored with each step, and the agent learns from the stored goal. In evaluation, goals are not drawn:
    environment i plays the goals with the numbers i, i + num_envs, i + 2 num_envs, ... in successive episodes.
    """

    unexportable = "every episode has another goal"

    def __init__(self, spec: Spec, parts: Parts, space: Space):
        super().__init__()
        if isinstance(spec.obs, spaces.Dict) and GOAL in spec.obs.spaces:
            raise ConfigError(f"algo.goals: the observation already has an entry {GOAL!r}")
        self.space = space
        self.stores = {GOAL_EXTRA: space}
        self.draw = parts.stream("draw")

    def drawn(self, rows: int) -> Tensor:
        """Returns random goals [rows, *space]."""
        raise NotImplementedError

    def numbered(self, number: Tensor) -> Tensor:
        """Returns the goals [rows, *space] of whole numbers [rows] from 0 on, which cover the space evenly."""
        raise NotImplementedError

    def spec_after(self, spec: Spec) -> Spec:
        entries = {"obs": spec.obs}
        if isinstance(spec.obs, spaces.Dict):
            entries = spec.obs.spaces
        obs = spaces.Dict({**entries, GOAL: self.space})
        return replace(spec, obs=obs)

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        first = carry["first"]
        num_envs = len(first)
        # the number "before" the first is i - num_envs, so that evaluations of environment i begin with number i
        before_first = torch.arange(num_envs, device=first.device) - num_envs
        number = carry.get(NUMBER, before_first)
        number = torch.where(first, number + num_envs, number)
        if explore:
            new = self.drawn(num_envs)
        else:
            new = self.numbered(number)
        is_new = first.view(-1, *[1] * (new.dim() - 1))
        goal = torch.where(is_new, new, carry.get(GOAL_EXTRA, new))
        return with_goal(obs, goal), {GOAL_EXTRA: goal, NUMBER: number}

    def relabel(self, batch: Batch) -> Batch:
        goal = batch[GOAL_EXTRA]
        return batch | {
            "obs": with_goal(batch["obs"], goal),
            "next_obs": with_goal(batch["next_obs"], goal),
        }


def with_goal(obs: Obs, goal: Tensor) -> Any:
    """Returns the observation as a dict with the additional entry `goal`."""
    return with_entries(obs, **{GOAL: goal})
