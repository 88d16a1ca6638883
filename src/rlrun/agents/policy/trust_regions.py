"""The part `algo.trust_region`: how far one step of the optimiser may move the policy of an on-policy agent."""

import math
from typing import NamedTuple

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlrun.agents.policy.comparable import check_comparable
from rlrun.core.parts import Parts
from rlrun.errors import RunError
from rlrun.functional.distributions import from_tensors, to_tensors
from rlrun.functional.divergences import distances
from rlrun.functional.losses import masked_mean
from rlrun.indexed import dense
from rlrun.settings import PositiveFloat, config, register
from rlrun.spaces import choices, continuous_sizes
from rlrun.types import Batch, Metrics

SHRINK = 0.9  # part of the way to the limit that a pull leaves
MOST_PULLS = 100  # shrinks a step by more than 10^4 even if the limit is hardly exceeded


class Before(NamedTuple):
    """The policy before a step."""

    weights: list[Tensor]
    dist: object  # its distribution for the observations of the batch


class TrustRegion(nn.Module):
    """Base class of the trust regions. space: of the actions."""

    def __init__(self, cfg: object, space: Space):
        super().__init__()

    def check_policy(self, policy: nn.Module, parts: Parts) -> None:
        """Raises ConfigError unless `pull` supports the distribution of this policy."""

    def before(self, policy: nn.Module, batch: Batch) -> Before:
        """Returns what `pull` needs of the policy before a step. batch: `obs` and `weight`, rows or sequences."""
        raise NotImplementedError

    def pull(self, policy: nn.Module, batch: Batch, before: Before) -> Metrics:
        """Moves the policy back into the region around the policy before the step, in place. Returns metrics."""
        raise NotImplementedError


@register("trust_region", "none")
class NoTrustRegion(TrustRegion):
    """The policy moves as far as the optimiser takes it."""

    @config
    class Config:
        pass

    def before(self, policy: nn.Module, batch: Batch) -> Before:
        return Before([], None)

    def pull(self, policy: nn.Module, batch: Batch, before: Before) -> Metrics:
        return {}


@register("trust_region", "pull_back")
class PullBack(TrustRegion):
    """Moves the weights back along the step until no leaf of the action exceeds its limit (TRAC of ALF).

    The distance of a leaf is the root of the mean of `distances` over the steps with weight; its limit is
    sqrt(limit_per_dim * dims), where a discrete leaf has as many dims as choices. While one is exceeded:

        w = w_old + 0.9 (limit / distance) (w - w_old)

    The moments of the optimiser stay those of the whole step.
    """

    limits: Tensor

    @config
    class Config:
        limit_per_dim: PositiveFloat

    def __init__(self, cfg: Config, space: Space):
        super().__init__(cfg, space)
        self.sizes = continuous_sizes(space)
        limits = [math.sqrt(cfg.limit_per_dim * dims) for dims in choices(space) + self.sizes]
        self.register_buffer("limits", torch.tensor(limits), persistent=False)

    def check_policy(self, policy: nn.Module, parts: Parts) -> None:
        def compare(old: object, new: object) -> Tensor:
            return distances(old, new, self.sizes)

        check_comparable(policy, parts, compare, "algo.trust_region=pull_back", "algo.trust_region=none")

    @torch.no_grad()
    def before(self, policy: nn.Module, batch: Batch) -> Before:
        dist = policy(dense(batch["obs"]))
        # copies, because parts of a distribution may be the weights themselves, as a constant log_std is
        copies = {name: tensor.clone() for name, tensor in to_tensors(dist).items()}
        weights = [param.clone() for param in policy.parameters()]
        return Before(weights, from_tensors(dist, copies))

    @torch.no_grad()
    def pull(self, policy: nn.Module, batch: Batch, before: Before) -> Metrics:
        distance = self.distance(policy, batch, before.dist)
        first = distance
        pulls = 0
        while not (distance <= self.limits).all():
            if pulls == MOST_PULLS:
                farthest = float(distance.max())
                raise RunError(f"algo.trust_region=pull_back: a distance of {farthest} remains after {pulls} pulls")
            scale = SHRINK * (self.limits / distance).min()
            for param, old in zip(policy.parameters(), before.weights, strict=True):
                param.copy_(torch.lerp(old, param, scale))
            pulls += 1
            distance = self.distance(policy, batch, before.dist)
        return {
            "loss/policy_distance": distance.max(),
            "loss/policy_distance_before": first.max(),
            "loss/pulls": distance.new_tensor(pulls),
        }

    def distance(self, policy: nn.Module, batch: Batch, old: object) -> Tensor:
        """Returns the distance of the policy from an old distribution in every leaf of the action, [leaves]."""
        new = policy(dense(batch["obs"]))
        squared = distances(old, new, self.sizes)
        weight = batch["weight"]
        squared = squared.masked_fill(weight.unsqueeze(-1) == 0, 0.0)  # masked steps may be infinitely far apart
        means = [masked_mean(leaf, weight) for leaf in squared.unbind(-1)]
        return torch.stack(means).clamp(min=0).sqrt()  # rounding may make a divergence of hardly any step negative
