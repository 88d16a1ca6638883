"""The part `algo.critic_update`: the time and the optimiser of the critic updates of an on-policy agent."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rlrun.config.schema import PositiveFloat, PositiveInt, Size, config
from rlrun.core.agent import kernel
from rlrun.core.parts import Parts
from rlrun.core.state import OPTIMIZERS
from rlrun.functional.losses import average, clipped_value_error, explained_variance
from rlrun.nested import flat
from rlrun.networks.heads import Value
from rlrun.registry import register
from rlrun.types import Batch, Metrics

Epochs = Callable[[Batch, int, int | None], Iterable[list[Batch]]]  # data, number of epochs, minibatch size


class CriticUpdate(nn.Module):
    """A critic V(s) with one output for each reward. `agent` is the Config of its agent."""

    in_policy_loss: ClassVar[bool] = False  # whether the policy's optimiser trains it, with the policy
    policy_role: ClassVar[str | None] = "actor"  # the role of the policy's torso; None: the critic has the same
    network: Value

    def __init__(self, cfg: Any, agent: Any):
        super().__init__()
        self.cfg = cfg
        self.agent = agent

    def values(self, rollout: Batch) -> tuple[Tensor, Tensor]:
        """Values of the observations and of the next ones, in the shape of the rewards: [time, env, ...]."""
        value = self.network(flat(rollout["obs"])).view_as(rollout["reward"])
        next_value = self.network(flat(rollout["next_obs"])).view_as(rollout["reward"])
        return value, next_value

    def explained_variance(self, data: Batch) -> Metrics:
        """Explained variance of the returns by the values; of the first reward if there are several."""
        weight = data["weight"]
        value = data["value"].view(*weight.shape, -1)[..., 0]
        target = data["return"].view(*weight.shape, -1)[..., 0]
        return {"explained_variance": explained_variance(value, target, weight)}

    def loss(self, batch: Batch) -> Tensor:
        """Half the squared error to the returns, summed over rewards. With `clip_value` the larger error of the value
        and of the value clipped to that distance from the old one (PPO2 of OpenAI's baselines)."""
        limit = float("inf")
        if self.agent.clip_value is not None:
            limit = self.agent.clip_value
        value = self.network(batch["obs"])
        error = clipped_value_error(value, batch["value"], batch["return"], limit)
        weight = batch["weight"]
        if error.dim() > weight.dim():
            error = error.sum(-1)
        return average(error, weight)

    def fit_first(
        self, data: Batch, advantages: Callable[[], Batch], epochs: Epochs, progress: float
    ) -> tuple[Batch, Metrics]:
        """Learn before the policy. Returns the data of the policy update."""
        return data, {}

    def start_epoch(self, progress: float) -> None:
        """Called at the start of every epoch of the policy; progress of the run from 0 to 1."""

    def fit_after(self, batch: Batch) -> Metrics:
        """Learn after the policy has learned from a minibatch."""
        return {}


@register("critic_update", "joint")
class Joint(CriticUpdate):
    """A network of its own, trained by the policy's optimiser."""

    in_policy_loss = True

    @config
    class Config:
        pass

    def __init__(self, cfg: Any, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent)
        self.network = Value(parts.torso("critic"), gain=1.0, columns=columns)


@register("critic_update", "shared")
class Shared(CriticUpdate):
    """A head on the policy's torso, trained by the policy's optimiser."""

    in_policy_loss = True
    policy_role = None

    @config
    class Config:
        pass

    def __init__(self, cfg: Any, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent)
        self.network = Value(policy_torso, gain=1.0, columns=columns)


class OwnOptimizer(CriticUpdate):
    """A network with an optimiser of its own."""

    def __init__(self, cfg: Any, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent)
        self.network = Value(parts.torso("critic"), gain=1.0, columns=columns)
        rate = agent.learning_rate if cfg.learning_rate is None else cfg.learning_rate
        options: Any = {"eps": agent.optimizer_eps, "max_grad_norm": agent.max_grad_norm, "schedule": agent.lr_schedule}
        self.optim = OPTIMIZERS[agent.optimizer](self.network.parameters(), rate, **options)

    @kernel
    def fit(self, batch: Batch) -> Metrics:
        loss = self.loss(batch)
        self.optim.step(self.agent.value_coef * loss)
        return {"critic": loss.detach()}


@register("critic_update", "split")
class Split(OwnOptimizer):
    """Learns from every minibatch, after the policy."""

    @config
    class Config:
        learning_rate: PositiveFloat | None

    def start_epoch(self, progress: float) -> None:
        self.optim.tick(progress)

    def fit_after(self, batch: Batch) -> Metrics:
        return self.fit(batch)


@register("critic_update", "first")
class First(OwnOptimizer):
    """Learns from the whole rollout, before the policy."""

    @config
    class Config:
        learning_rate: PositiveFloat | None
        epochs: PositiveInt
        minibatch_size: Size | None
        advantage_after_fit: bool

    def fit_first(
        self, data: Batch, advantages: Callable[[], Batch], epochs: Epochs, progress: float
    ) -> tuple[Batch, Metrics]:
        metrics: Metrics = {}
        for epoch in epochs(data, self.cfg.epochs, self.cfg.minibatch_size or self.agent.minibatch_size):
            self.optim.tick(progress)
            for batch in epoch:
                metrics = self.fit(batch)
        if self.cfg.advantage_after_fit:
            data = advantages()
        return data, metrics


@register("critic_update", "none")
class NoCritic(CriticUpdate):
    """Values of 0: REINFORCE (Williams 1992, doi 10.1007/BF00992696)."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Any, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent)

    def values(self, rollout: Batch) -> tuple[Tensor, Tensor]:
        zero = torch.zeros_like(rollout["reward"])
        return zero, zero

    def explained_variance(self, data: Batch) -> Metrics:
        return {}
