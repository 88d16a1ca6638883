"""The part `algo.critic_update`: when the critic of an on-policy agent is updated, and with which optimiser."""

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rlrun.buffers.consecutive import continues
from rlrun.core.accumulator import epoch_metrics, mean_metrics
from rlrun.core.agent import kernel
from rlrun.core.parts import Parts
from rlrun.core.state import OPTIMIZERS, Optim, RunningMoments
from rlrun.functional.losses import clipped_value_error, explained_variance, masked_mean
from rlrun.indexed import dense
from rlrun.nested import mapped
from rlrun.networks.heads import PolicyHead, Value
from rlrun.settings import NonNegativeFloat, PositiveFloat, PositiveInt, Scheduled, Size, config, register
from rlrun.tensors import flat, selected
from rlrun.types import Batch, Metrics, Obs

EPSILON = 1e-8  # added to the variance of returns
BLOCK = 16  # rows that a matrix product computes together; it rounds the rows of an incomplete block differently
# data, number of epochs, minibatch size (None: that of the agent) -> minibatches of every epoch
Epochs = Callable[[Batch, int, int | None], Iterable[list[Batch]]]


@config
class LossSettings:
    """Settings of the value loss, for critics that learn."""

    value_coef: Scheduled[NonNegativeFloat]
    clip_value: PositiveFloat | None
    huber_delta: PositiveFloat | None
    normalize_target: bool


class CriticUpdate(nn.Module):
    """A critic V(s) with one output per reward column. `agent` is the Config of the agent."""

    in_policy_loss: ClassVar[bool] = False  # whether the policy's optimiser also trains the critic, in one loss
    advantage_after_fit: bool = False  # whether the advantages are computed again after `fit_first`
    num_kept: int = 0  # number of rollouts that it keeps, to learn from them again
    policy_role: ClassVar[str | None] = "actor"  # role of the policy's torso; None: policy and critic share the torso
    network: Value

    def __init__(self, cfg: Any, agent: Any, parts: Parts):
        super().__init__()
        self.cfg = cfg
        self.agent = agent
        self.own_rewards = parts.spec.own_rewards
        self.moments: RunningMoments | None = None  # of returns, by whose standard deviation the loss divides
        if isinstance(cfg, LossSettings) and cfg.normalize_target:
            columns = parts.spec.reward_dim
            shape: tuple[int, ...] = ()
            if columns > 1:
                shape = (columns,)
            self.moments = RunningMoments(shape)

    @property
    def delta(self) -> float:
        """The threshold of the Huber loss; infinite for squared errors."""
        return self.cfg.huber_delta or math.inf

    def values(self, rollout: Batch) -> tuple[Tensor, Tensor]:
        """Returns the values of `obs` and of `next_obs`, both in the shape of the rewards: [time, env, ...].

        Where an episode goes on, the successor is the next row, so its value is not computed again. Values of
        successors of masked steps are arbitrary. Padding makes the rows complete blocks, so that values do not depend
        on how many episodes ended.
        """
        reward = rollout["reward"]
        num_envs = reward.shape[1]
        is_end = ~continues(rollout) & (rollout["weight"] > 0)
        (ends,) = torch.where(is_end.flatten())
        num_rows = is_end.numel()
        padding = ends.new_zeros(-(num_rows + len(ends)) % BLOCK)
        final_obs = dense(selected(flat(rollout["next_obs"]), torch.cat([ends, padding]), 0))
        all_obs = dense(flat(rollout["obs"]))
        obs = mapped(lambda final, rows: torch.cat([rows, final]), final_obs, all_obs)
        values = self.network(obs).view(-1, *reward.shape[2:])
        value = values[:num_rows]
        next_value = value.roll(-num_envs, 0)
        next_value[ends] = values[num_rows : num_rows + len(ends)]
        return value.view_as(reward), next_value.view_as(reward)

    def value(self, obs: Obs) -> Tensor | None:
        """Returns the values of observations, [batch] or [batch, columns]; None without a critic."""
        value: Tensor = self.network(obs)
        return value

    def explained_variance(self, data: Batch) -> Metrics:
        """Returns the metric `explained_variance` of the values, for the first reward column."""
        weight = data["weight"]
        value = data["value"].view(*weight.shape, -1)[..., 0]
        target = data["return"].view(*weight.shape, -1)[..., 0]
        return {"loss/explained_variance": explained_variance(value, target, weight)}

    def observe(self, data: Batch) -> None:
        """Adds the returns of a rollout to their running moments, if there are any. Called once for every rollout."""
        if self.moments is not None:
            self.moments.add_masked(data["return"], data["weight"] > 0)

    def in_units(self, returns: Tensor) -> Tensor:
        """Returns values or returns in the unit of the loss: with `moments`, the standard deviation of returns so far.

        Their mean is not subtracted, because it is the same in a value and in its target.
        """
        if self.moments is None:
            return returns
        return returns / (self.moments.var + EPSILON).sqrt().to(returns)

    def loss(self, batch: Batch) -> Tensor:
        """Returns half the mean squared error to the returns, 0-d, or with `huber_delta` the mean Huber loss.

        With `clip_value`, the error of a row is the larger of two: the error of the value, and the error of the value
        clipped to within clip_value of the old value (as in PPO2 of OpenAI Baselines).
        """
        limit = self.cfg.clip_value or math.inf
        value = self.network(batch["obs"])
        value, old_value, target = map(self.in_units, (value, batch["value"], batch["return"]))
        return self.mean_error(clipped_value_error(value, old_value, target, limit, self.delta), batch)

    def mean_error(self, error: Tensor, batch: Batch) -> Tensor:
        """Returns the mean of the rows' errors, averaged over columns of own rewards; those of bonuses are added."""
        weight = batch["weight"]
        if error.dim() > weight.dim():
            own, bonuses = error[..., : self.own_rewards], error[..., self.own_rewards :]
            error = own.mean(-1) + bonuses.sum(-1)
        return masked_mean(error, weight)

    def fit_first(self, data: Batch, epochs: Epochs) -> Metrics:
        """Trains the critic before the policy, if this part does so, and returns metrics."""
        return {}

    def fit_after(self, batch: Batch) -> Metrics:
        """Trains the critic after the policy has learned from a minibatch, if this part does so."""
        return {}

    def losses(self, batch: Batch) -> Metrics:
        """Returns the metrics of `fit_after` without a gradient step."""
        return {}

    def check_policy(self, policy: PolicyHead, parts: Parts) -> None:
        """Raises ConfigError unless this part supports the distribution of the policy."""

    def around(self, policy: PolicyHead) -> Optim | None:
        """Returns an optimiser of this part that also holds the weights that the policy's optimiser trains, or None."""
        return None

    def finish(self, rollout: Batch, targets: Tensor) -> Metrics:
        """Trains after an update, if this part does so, and returns metrics. targets: of the values, [time, env]."""
        return {}


@register("critic_update", "joint")
class JointUpdate(CriticUpdate):
    """A separate critic network, trained with the policy in one loss by the policy's optimiser."""

    in_policy_loss = True
    Config = LossSettings

    def __init__(self, cfg: LossSettings, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent, parts)
        self.network = Value(parts.torso("critic"), gain=1.0, columns=columns)


@register("critic_update", "shared")
class SharedUpdate(CriticUpdate):
    """A critic head on the policy's torso, trained with the policy in one loss by the policy's optimiser."""

    in_policy_loss = True
    policy_role = None
    Config = LossSettings

    def __init__(self, cfg: LossSettings, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent, parts)
        self.network = Value(policy_torso, gain=1.0, columns=columns)


class OwnUpdate(CriticUpdate):
    """A separate critic network with a separate optimiser. Settings that are null have the agent's values."""

    @config
    class Config(LossSettings):
        optimizer: Literal["adam", "rmsprop"] | None
        learning_rate: Scheduled[PositiveFloat] | None
        max_grad_norm: PositiveFloat | None

    def __init__(self, cfg: Config, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent, parts)
        self.network = Value(parts.torso("critic"), gain=1.0, columns=columns)
        self.optim = OPTIMIZERS[self.chosen("optimizer")](
            self.network.parameters(),
            self.chosen("learning_rate"),
            eps=agent.optimizer_eps,
            max_grad_norm=self.chosen("max_grad_norm"),
        )

    def chosen(self, key: str) -> Any:
        """Returns the critic's own value of a setting, or the agent's if the own value is null."""
        own = getattr(self.cfg, key)
        if own is None:
            return getattr(self.agent, key)
        return own

    @kernel
    def fit(self, batch: Batch) -> Metrics:
        loss = self.loss(batch)
        self.optim.step(self.cfg.value_coef * loss)
        return {"loss/critic": loss.detach()}

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Metrics:
        """Returns the metrics of `fit` without a gradient step."""
        return {"loss/critic": self.loss(batch)}


@register("critic_update", "split")
class SplitUpdate(OwnUpdate):
    """A critic that learns from every minibatch, after the policy."""

    def fit_after(self, batch: Batch) -> Metrics:
        return self.fit(batch)

    def losses(self, batch: Batch) -> Metrics:
        return self.evaluate(batch)


@register("critic_update", "first")
class FirstUpdate(OwnUpdate):
    """A critic that learns from the whole rollout before the policy does, in its own epochs of minibatches.

    With `advantage_after_fit`, advantages are computed again with the trained critic.
    """

    @config
    class Config(OwnUpdate.Config):
        epochs: PositiveInt
        minibatch_size: Size | None
        advantage_after_fit: bool

    def __init__(self, cfg: Config, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent, parts, policy_torso, columns)
        self.advantage_after_fit = cfg.advantage_after_fit

    def fit_first(self, data: Batch, epochs: Epochs) -> Metrics:
        fitted: list[Metrics] = []
        for epoch in epochs(data, self.cfg.epochs, self.cfg.minibatch_size):
            fitted.append(mean_metrics(self.fit(batch) for batch in epoch))
        if len(fitted) == 1 and self.agent.loss_after:
            return epoch_metrics(fitted, mean_metrics(self.evaluate(batch) for batch in epoch))
        return epoch_metrics(fitted)


@register("critic_update", "none")
class NoCritic(CriticUpdate):
    """No critic: all values are 0, which makes the agent REINFORCE (Williams 1992, doi 10.1007/BF00992696)."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, agent: Any, parts: Parts, policy_torso: nn.Module, columns: int):
        super().__init__(cfg, agent, parts)

    def values(self, rollout: Batch) -> tuple[Tensor, Tensor]:
        zero = torch.zeros_like(rollout["reward"])
        return zero, zero

    def value(self, obs: Obs) -> None:
        return None

    def explained_variance(self, data: Batch) -> Metrics:
        return {}
