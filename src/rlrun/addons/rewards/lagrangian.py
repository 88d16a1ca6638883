"""Reward weights as Lagrange multipliers: they are learned so that the mean rewards reach given thresholds.

The weights are w_i = softplus(theta_i) or exp(theta_i). Gradient descent over theta on sum_i w_i (E[r_i] - c_i)
decreases the weight of a component while its mean reward is above its threshold c_i, and increases the weight while the
mean reward is below (dual ascent: arXiv 1805.11074, sec. 3; overshoot of dual ascent: Stooke et al. 2020, arXiv
2007.03964). E[r_i] is the mean reward per step of the environment, measured in training or in evaluations (`measure`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.addons.rewards.fixed import discounts_of, per_component
from rlrun.core.addon import Addon
from rlrun.core.agent import kernel
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.settings import Fraction, PositiveFloat, PositiveFraction, config, register
from rlrun.types import Batch, Context, Metrics, Objective, Spec, Step

Transform = Callable[[Tensor], Tensor]


def inverse_softplus(weight: Tensor) -> Tensor:
    """Returns x with softplus(x) = weight."""
    return weight + torch.log(-torch.expm1(-weight))


TRANSFORMS: dict[str, tuple[Transform, Transform]] = {  # from theta to weights, and back
    "softplus": (F.softplus, inverse_softplus),
    "exp": (torch.exp, torch.log),
}


@register("reward_weights", "lagrangian")
class LagrangianWeights(Addon):
    """Adds learned `reward_weights` [components] to every batch.

    An update takes one gradient step on the weights if rewards were collected since the last update. With
    measure=rollout, E[r_i] is the mean of these rewards. With measure=evaluation, it is a running mean over
    evaluations, and there is no gradient step before the first evaluation. The objective (`types.Objective`) is the sum
    of the components without a threshold, each times its initial weight, under the condition that the others reach
    their thresholds.
    """

    reads_raw_steps = True  # limits are of the environment's own rewards

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
        gamma: list[Fraction] | None

    limited: Tensor
    floors: Tensor
    max_theta: Tensor
    seen: Tensor
    rows: Tensor
    average: Tensor

    def __init__(self, cfg: Any, spec: Spec):
        super().__init__()
        floors = per_component(cfg.thresholds, "thresholds", None, spec)
        initial_weights = per_component(cfg.initial_weights, "initial_weights", 1.0, spec)
        if all(floor is None for floor in floors):
            raise ConfigError("algo.reward_weights.thresholds: none is given; algo.reward_weights=fixed needs none")
        self.cfg = cfg
        self.objective = objective_of(initial_weights, floors)
        self.discounts = discounts_of(cfg.gamma, spec)
        self.positive, inverse = TRANSFORMS[cfg.transform]
        self.theta = nn.Parameter(inverse(torch.tensor(initial_weights)))

        limited = torch.tensor([floor is not None for floor in floors])
        floor_values = torch.tensor([floor or 0.0 for floor in floors])
        max_weight = cfg.max_weight
        if max_weight is None:
            max_weight = torch.inf
        max_theta = inverse(torch.tensor(max_weight))
        self.register_buffer("limited", limited, persistent=False)
        self.register_buffer("floors", floor_values, persistent=False)
        self.register_buffer("max_theta", torch.where(limited, max_theta, torch.inf), persistent=False)
        self.register_buffer("seen", torch.zeros(spec.reward_dim))  # sum of the rewards since the last update
        self.register_buffer("rows", torch.zeros(()))  # number of steps in that sum
        self.register_buffer("average", torch.zeros(spec.reward_dim))  # running mean reward per step of evaluations
        self.fresh = False  # whether rewards were collected since the last update
        self.evaluations = 0  # number of evaluations so far
        self.optim = Optim([self.theta], cfg.learning_rate)

    def spec_after(self, spec: Spec) -> Spec:
        return replace(spec, objective=self.objective, discounts=self.discounts)

    def on_step(self, step: Step) -> None:
        self.seen += step["weight"] @ step["reward"]
        self.rows += step["weight"].sum()
        self.fresh = True

    def relabel(self, batch: Batch) -> Batch:
        return batch | {"reward_weights": self.weights()}

    @torch.no_grad()
    def weights(self) -> Tensor:
        """Returns the current weight of every component, [components]."""
        raw = self.positive(self.theta)
        if self.cfg.normalize:
            return raw / raw.sum()
        return raw

    def on_evaluation(self, metrics: dict[str, float]) -> None:
        num_components = len(self.average)
        returns = [metrics[f"eval/return_mean_{i}"] for i in range(num_components)]
        mean_reward = self.average.new_tensor(returns) / metrics["eval/length_mean"]
        rate = self.cfg.evaluation_rate
        if not self.evaluations:
            rate = 1.0
        self.average.lerp_(mean_reward, rate)
        self.evaluations += 1

    @property
    def reads_evaluations(self) -> bool:
        is_measured: bool = self.cfg.measure == "evaluation"
        return is_measured

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        if self.fresh:
            if self.cfg.measure == "rollout":
                num_steps = self.rows.clamp(min=1)
                self.descend(self.seen / num_steps)
            elif self.evaluations:
                self.descend(self.average)
            self.seen.zero_()
            self.rows.zero_()
            self.fresh = False
        metrics: Metrics = {}
        for i, weight in enumerate(self.weights().unbind()):
            metrics[f"loss/reward_weight_{i}"] = weight
        return metrics

    @kernel
    def descend(self, mean: Tensor) -> Metrics:
        """Takes one gradient step on theta. mean: mean reward per step, [components]."""
        surplus = torch.where(self.limited, mean - self.floors, 0.0)
        weights = self.positive(self.theta)
        loss = (weights * surplus).sum()
        self.optim.step(loss)
        with torch.no_grad():
            torch.minimum(self.theta, self.max_theta, out=self.theta)
        return {}

    def get_extra_state(self) -> dict[str, int]:
        return {"fresh": self.fresh, "evaluations": self.evaluations}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.fresh = bool(state["fresh"])
        self.evaluations = state["evaluations"]


def objective_of(initial_weights: tuple[float, ...], floors: tuple[float | None, ...]) -> Objective:
    """Returns the objective: initial weights for components without a threshold, weight 0 for the others.

    If every component has a threshold, all components keep their initial weights.
    """
    weights = []
    for weight, floor in zip(initial_weights, floors, strict=True):
        weights.append(weight if floor is None else 0.0)
    if not any(weights):
        return Objective(initial_weights, floors)
    return Objective(tuple(weights), floors)
