"""Optimistic actor-critic, OAC (Ciosek et al. 2019, arXiv 1910.12807): SAC with an optimistic exploration policy."""

import torch
from gymnasium.spaces import Box
from torch import Tensor
from torch.nn import functional as F

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.reward_columns import ActingWeights
from rlrun.core.agent import policy
from rlrun.core.parts import Parts
from rlrun.functional.distributions import SquashedNormal
from rlrun.settings import NonNegativeFloat, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "oac")
class OAC(SAC):
    """SAC that explores with a policy shifted towards a higher upper bound of Q. Its updates are those of SAC."""

    actions = Box  # a choice has no gradient to shift along
    acts_with = ("actor", "critic", "ensemble", "noise", "reward_weights")

    @config
    class Config(SAC.Config):
        beta_ub: Scheduled[NonNegativeFloat]
        shift_multiplier: Scheduled[NonNegativeFloat]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.reward_weights = ActingWeights(spec)

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        dist = self.actor(obs)
        if not explore:
            return dist.mode(), {}
        dist = self.optimistic(obs, dist)
        action, _ = dist.sample(dist.noise(self.act_noise))
        return self.noise.add(action, carry, self.act_noise)

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        self.reward_weights.follow(batch)
        return super().update(batch, ctx)

    def optimistic(self, obs: Obs, dist: SquashedNormal) -> SquashedNormal:
        """Returns the policy with its Gaussian mean shifted by sqrt(2 delta) Sigma g / sqrt(g^T Sigma g) (eq. 6).

        `shift_multiplier` is sqrt(2 delta), the Mahalanobis length of the shift. The covariance Sigma does not change.
        """
        std = dist.log_std.exp()
        gradient = self.upper_bound_gradient(obs, dist.mean)
        shift = std * F.normalize(std * gradient, dim=-1)  # 0 if the gradient is 0
        return SquashedNormal(dist.mean + self.cfg.shift_multiplier * shift, dist.log_std)

    def upper_bound_gradient(self, obs: Obs, mean: Tensor) -> Tensor:
        """Returns the gradient g of the upper bound mean_i Q_i + beta_ub std_i Q_i at the mean of the Gaussian.

        mean and gradient are [num_envs, actions], both before tanh, as in the authors' code. The standard deviation
        over the critics is |Q_1 - Q_2| / 2 for two of them. For reward vectors, Q_i is the weighted sum of a critic.
        """
        with torch.enable_grad():
            mean = mean.detach().requires_grad_()
            values = self.ensemble.value(self.critic(obs, torch.tanh(mean)))
            q = self.ensemble.total(values, self.reward_weights.values)  # [members, num_envs]
            upper_bound = q.mean(0) + self.cfg.beta_ub * q.std(0, correction=0)
            (gradient,) = torch.autograd.grad(upper_bound.sum(), mean)
        return gradient
