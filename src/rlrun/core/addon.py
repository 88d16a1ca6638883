"""Parts around an agent: normalisers, intrinsic rewards, representations. Agents and loops know none of them."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from rlrun.types import Batch, Context, Metrics, Spec, Step


class Addon(nn.Module):
    """Sees what passes between environment, buffer and agent. Every method defaults to doing nothing."""

    def spec(self, spec: Spec) -> Spec:
        """What the agent sees instead of the environment's spec."""
        return spec

    def observe(self, obs: Any, carry: Batch, explore: bool) -> Any:
        """What the agent acts on."""
        return obs

    def collect(self, step: Step) -> None:
        """Every training step once, as it happens: the place where statistics grow."""

    def relabel(self, batch: Batch) -> Batch:
        """What the agent learns from."""
        return batch

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """Learn, after the agent did."""
        return {}

    def evaluated(self, values: dict[str, float]) -> None:
        """What an evaluation in training found, as metrics.jsonl tells it."""


class Addons(nn.ModuleList):
    """Add-ons in order, as one."""

    def __init__(self, addons: Iterable[Addon] = ()):
        super().__init__(addons)

    def spec(self, spec: Spec) -> Spec:
        for addon in self:
            spec = addon.spec(spec)  # type: ignore[operator]
        return spec

    def observe(self, obs: Any, carry: Batch, explore: bool) -> Any:
        for addon in self:
            obs = addon.observe(obs, carry, explore)  # type: ignore[operator]
        return obs

    def collect(self, step: Step) -> None:
        for addon in self:
            addon.collect(step)  # type: ignore[operator]

    def relabel(self, batch: Batch) -> Batch:
        for addon in self:
            batch = addon.relabel(batch)  # type: ignore[operator]
        return batch

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        metrics: Metrics = {}
        for addon in self:
            metrics |= addon.update(batch, ctx)  # type: ignore[operator]
        return metrics

    def evaluated(self, values: dict[str, float]) -> None:
        for addon in self:
            addon.evaluated(values)  # type: ignore[operator]
