"""The policy that fills the replay buffer: at the start of a run, and after the buffer was emptied."""

from typing import Any, Literal

import torch
from torch import Tensor

from rlrun.core.agent import Agent
from rlrun.core.random import Stream
from rlrun.envs.stepping.random_actions import sampled, zeros
from rlrun.types import Batch, Obs, Spec

Warmup = Literal["random", "zero", "agent"]


class Filling:
    """Acts by `warmup_policy`, or by `refill_policy` once the buffer was emptied; `goes_on` says for how long.

    Its methods take `collected`, the number of transitions so far, and `steps`, the number that fills an empty buffer.
    """

    def __init__(self, cfg: Any, agent: Agent, spec: Spec, random: Stream, device: torch.device):
        self.cfg, self.agent, self.spec, self.random, self.device = cfg, agent, spec, random, device
        self.emptied_at = 0  # `collected` when the buffer was emptied; 0: never
        self.paused_steps = 0  # transitions after `start_update` for which no updates become due

    def goes_on(self, collected: int, steps: int) -> bool:
        """Returns whether the buffer is still being filled."""
        return collected - self.emptied_at < steps

    def begin_again(self, collected: int, steps: int, start_update: int) -> None:
        """Notes that the buffer is emptied now. No updates become due until it is full again.

        start_update: the number of transitions before the first updates are due.
        """
        counted_until = collected
        if self.emptied_at:  # an earlier pause lasts until here, even if it is interrupted now
            counted_until = max(collected, self.emptied_at + steps)
        with_updates = max(0, counted_until - start_update - self.paused_steps)
        self.paused_steps = max(0, collected + steps - start_update - with_updates)
        self.emptied_at = collected

    def act(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        """Returns actions and extras as `Agent.act` does."""
        kind: Warmup = self.cfg.refill_policy if self.emptied_at else self.cfg.warmup_policy
        if kind == "agent":
            return self.agent.act(obs, carry, explore)
        if kind == "random":
            action = sampled(self.spec, obs, self.random, self.device)
        else:
            action = zeros(self.spec, obs, self.device)
        return self.agent.warm_up(action.to(self.device), carry)
