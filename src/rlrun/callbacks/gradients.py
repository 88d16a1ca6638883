"""Gradients of an agent's losses, without a step of its optimisers."""

import dataclasses
from typing import NoReturn

import torch
from torch import Tensor

from rlrun.core.agent import Agent
from rlrun.core.logged import unlogged
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.types import Batch, Context


class NoReplay:
    """Stands for the replay buffer, whose random numbers only the run itself draws. Raises ConfigError when it is
    read."""

    def __init__(self, callback: str, agent: Agent):
        self.reason = f"callbacks: {callback}: algo={agent.registered} reads the replay buffer in its updates"

    def __len__(self) -> int:
        raise ConfigError(self.reason)

    def __getattr__(self, name: str) -> NoReturn:
        raise ConfigError(self.reason)


class HeldSteps:
    """Keeps the gradients that the optimisers of an agent receive, in place of their steps.

    agent: a copy (`RunView.agent_copy`), whose optimisers take no steps from now on. callback: its name, for messages.
    Raises ConfigError for an agent whose updates are not steps of its own optimisers.
    """

    def __init__(self, agent: Agent, callback: str):
        self.agent, self.callback = agent, callback
        self.received: dict[str, list[Tensor]] = {}
        self.optims = {name: module for name, module in agent.named_modules() if isinstance(module, Optim)}
        if not self.optims or any(isinstance(part, Agent) for part in agent.modules() if part is not agent):
            why = "does not learn by gradients of its own losses"
            raise ConfigError(f"callbacks: {callback}: algo={agent.registered} {why}")
        for name, optim in self.optims.items():
            self.received[name] = []
            hold(optim, self.received[name])

    def of(self, batch: Batch, ctx: Context) -> dict[str, Tensor]:
        """Returns the gradient [P] of each optimiser for a batch, by the optimiser's path; only of those that step.

        Of several steps in one update, such as those of minibatches and epochs, it is the mean: their losses are at the
        same weights, because none of the steps is taken.
        """
        for gradients in self.received.values():
            gradients.clear()
        ctx = dataclasses.replace(ctx, data=NoReplay(self.callback, self.agent))
        with unlogged():
            self.agent.update(batch, ctx)
        return {name: torch.stack(gradients).mean(0) for name, gradients in self.received.items() if gradients}


def hold(optim: Optim, received: list[Tensor]) -> None:
    """Lets an optimiser keep gradients in a list in place of its steps."""

    def keep(grads: Tensor) -> Tensor:
        received.append(grads.detach())
        return torch.linalg.vector_norm(received[-1])

    optim.apply = keep  # type: ignore[method-assign]
