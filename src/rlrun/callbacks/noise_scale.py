"""The callback `noise_scale`, which estimates how large a batch should be."""

from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from rlrun.callbacks.first_updates import FirstUpdates, MeasuredUpdates
from rlrun.callbacks.gradients import HeldSteps
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.settings import PositiveFloat, PositiveFraction, config, register
from rlrun.tensors import selected
from rlrun.types import Batch, Context


@dataclass
class Averages:
    """Moving averages of the products of two gradients, each over its own half of a batch.

    The weight of all products so far is `weight`, which tends to 1; averages are divided by it, so that the first ones
    are plain means.
    """

    inner: float = 0.0  # of <g1, g2>, which estimates |G|^2
    square: float = 0.0  # of (|g1|^2 + |g2|^2) / 2, which estimates tr(Sigma) / B + |G|^2
    weight: float = 0.0

    def add(self, first: Tensor, second: Tensor, rate: float) -> None:
        """Adds the gradients of two halves, [P]. rate: weight of the new products."""
        inner = float(first @ second)
        square = float(first @ first + second @ second) / 2
        self.inner += rate * (inner - self.inner)
        self.square += rate * (square - self.square)
        self.weight += rate * (1 - self.weight)

    def noise_scale(self, size: float) -> float | None:
        """Returns (square / inner - 1) size, or None while the estimate of |G|^2 is not positive."""
        if self.inner <= 0:
            return None
        return (self.square / self.inner - 1) * size


class MeasuredNoise(MeasuredUpdates):
    """The state of the callback."""

    averages: dict[str, tuple[float, ...]]  # by the path of the optimiser; the fields of `Averages`


@register("callback", "noise_scale")
class NoiseScale(FirstUpdates):
    """Logs the gradient noise scale tr(Sigma) / |G|^2 in transitions (arXiv 1812.06162, appendix A.1).

    G is the gradient of a loss, Sigma the covariance of the gradients of single transitions. Batches that are much
    smaller give noisy steps, and larger ones hardly better steps. The first update after every row is also computed
    for both halves of its batch, on a copy of the agent that takes no steps. The products of these gradients are
    averaged, for each optimiser: `custom/noise_scale`, `custom/noise_scale_actor` and so on.
    """

    @config
    class Config:
        rate: PositiveFraction = 0.001  # weight of each new pair of gradients in the moving averages
        max_grad_norm: PositiveFloat | None = None  # gradients are scaled down to this norm; null: as they are

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        self.averages: dict[str, Averages] = {}

    def on_start(self) -> None:
        self.copy = self.run.agent_copy()
        self.held = HeldSteps(self.copy.agent, "noise_scale")
        fault = lacks_halves(self.run.loop)
        if fault:
            raise ConfigError(f"callbacks: noise_scale: {fault}")

    def measure(self, batch: Batch, ctx: Context) -> None:
        found = []
        sizes = []
        for index, half in enumerate(halves(batch, self.run.loop.replays)):
            self.copy.follow(f"half {index} of update {ctx.updates}")
            found.append({name: self.clipped(gradient) for name, gradient in self.held.of(half, ctx).items()})
            sizes.append(float((half["weight"] > 0).sum()))
        first, second = found
        for name, gradient in first.items():
            if name in second:
                averages = self.averages.setdefault(name, Averages())
                averages.add(gradient, second[name], self.cfg.rate)
                scale = averages.noise_scale(sum(sizes) / 2)
                if scale is not None:
                    self.log(metric(name), scale)

    def clipped(self, gradient: Tensor) -> Tensor:
        limit = self.cfg.max_grad_norm
        if limit is None:
            return gradient
        return gradient * (limit / torch.linalg.vector_norm(gradient)).clamp(max=1.0)

    def get_extra_state(self) -> MeasuredNoise:
        averages = {name: astuple(found) for name, found in self.averages.items()}
        return {**super().get_extra_state(), "averages": averages}

    def set_extra_state(self, state: MeasuredNoise) -> None:  # type: ignore[override]
        super().set_extra_state(state)
        self.averages = {name: Averages(*map(float, values)) for name, values in state["averages"].items()}


def lacks_halves(loop: Loop) -> str:
    """Returns why the batches of a loop have no halves that are learned from alike, or ""."""
    agent = loop.agent
    if agent.memory.size or agent.sequence_length is not None:
        return f"algo={agent.registered} learns from sequences, whose steps are not independent"
    if not loop.replays and loop.env.spec.num_envs < 2:
        return "a rollout is halved by its environments; set env.num_envs=2 or more"
    return ""


def halves(batch: Batch, is_replay: bool) -> list[Batch]:
    """Returns two halves of a batch of transitions [B, ...], or of a rollout [T, N, ...], which is halved by its
    environments. A last row or environment without a partner is left out.

    Raises ConfigError for batches of another kind, and for those of one row or environment.
    """
    if "weight" not in batch:
        raise ConfigError("callbacks: noise_scale: needs an agent that learns from transitions or rollouts")
    dim = 0 if is_replay else 1
    half = batch["weight"].shape[dim] // 2
    if half == 0:
        raise ConfigError("callbacks: noise_scale: a batch of one row, or a rollout of one environment, has no halves")
    rows = torch.arange(2 * half, device=batch["weight"].device)
    whole = {key: value for key, value in batch.items() if key != "next_steps"}
    found = []
    for part in rows.split(half):
        own = selected(whole, part, dim)
        if "next_steps" in batch:  # sequences, [T, B]
            own["next_steps"] = selected(batch["next_steps"], part, 1)
        found.append(own)
    return found


def metric(path: str) -> str:
    """Returns the metric of an optimiser: `noise_scale_actor` for "actor_optim", `noise_scale` for "optim"."""
    roles = [part.removesuffix("optim").strip("_") for part in path.split(".")]
    return "_".join(["noise_scale", *filter(None, roles)])
