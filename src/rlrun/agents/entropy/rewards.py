"""The part `algo.entropy_reward`: what the entropy of the policy adds to the returns of soft actor-critic.

With the reward alpha H(s_t) for every state but the first, the soft n-step return is

    sum_{k<n} gamma^k r_{t+k} + sum_{0<k<n} gamma^k alpha H(s_{t+k}) + gamma^n (Q(s_{t+n}, a') - alpha log pi(a'))

and has no terms after the end of an episode. alpha H is estimated by -alpha log pi of a sampled action.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlrun.agents.entropy.coefficient import EntropyCoefficient
from rlrun.agents.entropy.components import entropy_components
from rlrun.buffers.consecutive import first_steps
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Source
from rlrun.functional.losses import masked_mean
from rlrun.nested import index
from rlrun.settings import config, register
from rlrun.tensors import flat
from rlrun.types import Batch, Obs, Spec

WINDOW = 1000  # number of recent updates that the running mean of log pi covers, roughly


class SoftReturns(Protocol):
    """Settings of an agent with an entropy coefficient, whose targets may be n-step returns."""

    gamma: float
    n_step: int
    entropy: dict[str, object]


@register("entropy_reward", "none")
class EntropyReward(nn.Module):
    """Adds nothing; base class of the others. All are built from a config, the spec and the config of the agent."""

    num_next_steps = 0  # length of the sequences `next_steps` that it reads from a batch

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, spec: Spec, agent: SoftReturns):
        super().__init__()

    def within(self, batch: Batch, policy: Callable[[Obs], object], alpha: Tensor, source: Source) -> Batch:
        """Returns the batch with the entropy of the steps within the n-step returns added to `reward`.

        policy: returns the distributions of actions for observations.
        """
        return batch

    def cost(self, log_prob: Tensor, weight: Tensor, coefficient: EntropyCoefficient) -> Tensor:
        """Returns alpha log pi(a'|s') as it counts in the target, [batch]; log_prob [batch] or [batch, components]."""
        return coefficient.cost(torch.zeros_like(log_prob))


@register("entropy_reward", "bootstrap")
class BootstrapEntropy(EntropyReward):
    """Adds the entropy in the state that the target bootstraps from (arXiv 1812.05905, eq. 3)."""

    mean: Tensor
    updates: Tensor

    @config
    class Config:
        normalize: bool

    def __init__(self, cfg: Any, spec: Spec, agent: SoftReturns):
        super().__init__(cfg, spec, agent)
        self.normalize = cfg.normalize
        components = entropy_components(spec.action, agent.entropy)
        shape = (len(components),) if components else ()
        # running mean of log pi, and the number of updates that it covers; without `normalize` they are constant
        self.register_buffer("mean", torch.zeros(shape), persistent=cfg.normalize)
        self.register_buffer("updates", torch.zeros(()), persistent=cfg.normalize)

    def cost(self, log_prob: Tensor, weight: Tensor, coefficient: EntropyCoefficient) -> Tensor:
        if not self.normalize:
            return coefficient.cost(log_prob)
        self.updates.add_(1).clamp_(max=WINDOW)
        components = log_prob.view(len(weight), -1).unbind(-1)
        current = torch.stack([masked_mean(component, weight) for component in components])
        change = current.view_as(self.mean) - self.mean
        self.mean.add_(change / self.updates)
        return coefficient.cost(log_prob - self.mean)


@register("entropy_reward", "every_step")
class EveryStepEntropy(BootstrapEntropy):
    """Also adds the entropy of the steps within n-step returns: that of the current policy in the stored states."""

    def __init__(self, cfg: BootstrapEntropy.Config, spec: Spec, agent: SoftReturns):
        super().__init__(cfg, spec, agent)
        if spec.reward_dim > 1:
            raise ConfigError("algo.entropy_reward=every_step: needs one reward a step; choose bootstrap")
        if entropy_components(spec.action, agent.entropy):
            raise ConfigError(
                "algo.entropy_reward=every_step: needs one entropy coefficient for the whole action; choose bootstrap"
            )
        if agent.n_step > 1:
            self.num_next_steps = agent.n_step
        discount = agent.gamma ** torch.arange(1, agent.n_step).view(-1, 1)
        self.register_buffer("discount", discount, persistent=False)  # [n_step - 1, 1]

    @torch.no_grad()
    def within(self, batch: Batch, policy: Callable[[Obs], Any], alpha: Tensor, source: Source) -> Batch:
        if not self.num_next_steps:
            return batch
        batch = dict(batch)
        steps: Any = batch.pop("next_steps")
        steps = first_steps(steps, self.num_next_steps)  # from t to t + n - 1
        mask = steps["mask"][1:]  # [n_step - 1, batch]
        obs = flat(index(steps["obs"], slice(1, None)))
        dist = policy(obs)
        # `cost` subtracts the running mean from log pi, so it is added to the entropy, an estimate of -log pi
        entropy = dist.entropy_estimate(source).view_as(mask) + self.mean
        bonus = alpha * (self.discount * mask * entropy).sum(0)
        return batch | {"reward": batch["reward"] + bonus}
