"""The policy that fills the replay buffer: at the start of a run, and after the buffer was emptied."""

from typing import Any, Literal

import torch
from torch import Tensor

from rlrun.core.agent import Agent
from rlrun.core.random import Stream
from rlrun.envs.stepping.actions import sampled, zeros
from rlrun.types import Batch, Obs, Spec

Warmup = Literal["random", "zero", "agent"]


class Filling:
    """Acts by `warmup_policy`, or by `refill_policy` in a buffer that was emptied, and says for how long.

    Transitions are counted by `collected`, their number so far; `steps` of them fill the empty buffer.
    """

    def __init__(self, cfg: Any, agent: Agent, spec: Spec, random: Stream, device: torch.device):
        self.cfg, self.agent, self.spec, self.random, self.device = cfg, agent, spec, random, device
        self.emptied_at = 0  # `collected` when the buffer was emptied; 0: never
        self.paused_steps = 0  # transitions that fill the buffer again, for which no updates become due

    def goes_on(self, collected: int, steps: int) -> bool:
        """Returns whether the buffer is still being filled."""
        return collected - self.emptied_at < steps

    def begin_again(self, collected: int, steps: int) -> None:
        """Fills the buffer, which was emptied, from now on."""
        # If it was still being filled, this time replaces the rest of that filling, so only the transitions since its
        # start are added.
        self.paused_steps += min(steps, collected - self.emptied_at)
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
