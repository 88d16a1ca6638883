"""Weights that are Lagrange multipliers: a component with a threshold weighs as much as it takes to meet it.

Gradient descent on sum_i w_i (E[r_i] - c_i) over theta, w_i = softplus(theta_i) or exp(theta_i): a weight falls while
the mean reward is above its threshold, and rises while it is below (sec. 3 of arXiv 1805.11074 has the dual ascent;
Stooke et al. 2020, arXiv 2007.03964, what it may overshoot). What is limited is the mean over all steps, of the rewards
as the environment pays them: of the policy that explores, or of the one that is evaluated, by option.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.addons.rewards.fixed import one_each
from rlrun.config.schema import PositiveFloat, PositiveFraction, config
from rlrun.core.addon import Addon
from rlrun.core.agent import kernel
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Objective, Spec, Step

Transform = Callable[[Tensor], Tensor]
TRANSFORMS: dict[str, tuple[Transform, Transform]] = {  # to weights, and back
    "softplus": (F.softplus, lambda weight: weight + torch.log(-torch.expm1(-weight))),
    "exp": (torch.exp, torch.log),
}


@register("reward_weights", "lagrangian")
class LagrangianWeights(Addon):
    """Objective: the components without a threshold, by their initial weights. One step for every update that follows
    a step of the environments, on the mean of all rewards since the last, or on a running mean of evaluations."""

    @config
    class Config:
        thresholds: list[float | None]
        initial_weights: list[PositiveFloat] | None
        max_weight: PositiveFloat | None
        measure: Literal["rollout", "evaluation"]
        evaluation_rate: PositiveFraction
        normalize: bool
        transform: Literal["softplus", "exp"]
        learning_rate: PositiveFloat

    limited: Tensor
    floors: Tensor
    most: Tensor
    seen: Tensor
    rows: Tensor
    average: Tensor

    def __init__(self, cfg: Any, spec: Spec):
        super().__init__()
        floors = one_each(cfg.thresholds, "thresholds", None, spec)
        initial = one_each(cfg.initial_weights, "initial_weights", 1.0, spec)
        if all(floor is None for floor in floors):
            raise ConfigError("algo.reward_weights.thresholds: none is given; algo.reward_weights=fixed needs none")
        self.cfg = cfg
        free = tuple(weight * (floor is None) for weight, floor in zip(initial, floors, strict=True))
        self.objective = Objective(free if any(free) else initial, floors)
        self.positive, inverse = TRANSFORMS[cfg.transform]
        self.theta = nn.Parameter(inverse(torch.tensor(initial)))
        limited = torch.tensor([floor is not None for floor in floors])
        most = inverse(torch.tensor(torch.inf if cfg.max_weight is None else cfg.max_weight))
        self.register_buffer("limited", limited, persistent=False)
        self.register_buffer("floors", torch.tensor([floor or 0.0 for floor in floors]), persistent=False)
        self.register_buffer("most", torch.where(limited, most, torch.inf), persistent=False)
        self.register_buffer("seen", torch.zeros(spec.reward_dim))  # sum of the rewards since the last step
        self.register_buffer("rows", torch.zeros(()))
        self.register_buffer("average", torch.zeros(spec.reward_dim))  # of evaluations, a step
        self.fresh, self.evaluations = False, 0  # whether there are rewards since the last step; evaluations so far
        self.optim = Optim([self.theta], cfg.learning_rate)

    def spec(self, spec: Spec) -> Spec:
        return replace(spec, objective=self.objective)

    def collect(self, obs: Any, step: Step, extras: Batch) -> None:
        self.seen += step.weight @ step.reward
        self.rows += step.weight.sum()
        self.fresh = True

    def relabel(self, batch: Batch) -> Batch:
        return batch | {"reward_weights": self.weights()}

    @torch.no_grad()
    def weights(self) -> Tensor:
        """What every component weighs now, [components]."""
        raw = self.positive(self.theta)
        return raw / raw.sum() if self.cfg.normalize else raw

    def evaluated(self, values: dict[str, float]) -> None:
        returned = self.average.new_tensor([values[f"eval/return_mean_{i}"] for i in range(len(self.average))])
        self.average.lerp_(returned / values["eval/length_mean"], self.cfg.evaluation_rate if self.evaluations else 1.0)
        self.evaluations += 1

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        if self.fresh:
            if self.cfg.measure == "rollout":
                self.descend(self.seen / self.rows.clamp(min=1))
            elif self.evaluations:
                self.descend(self.average)
            self.seen.zero_()
            self.rows.zero_()
            self.fresh = False
        return {f"reward_weight_{i}": weight for i, weight in enumerate(self.weights().unbind())}

    @kernel
    def descend(self, mean: Tensor) -> Metrics:
        """mean: of the rewards, [components]."""
        surplus = torch.where(self.limited, mean - self.floors, 0.0)
        self.optim.step((self.positive(self.theta) * surplus).sum())
        with torch.no_grad():
            torch.minimum(self.theta, self.most, out=self.theta)
        return {}

    def get_extra_state(self) -> dict[str, int]:
        return {"fresh": self.fresh, "evaluations": self.evaluations}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.fresh, self.evaluations = bool(state["fresh"]), state["evaluations"]
