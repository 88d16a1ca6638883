"""Parts around an agent: normalisers, representations, goals, intrinsic rewards. Agents and loops know none of them."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlrun.types import Batch, Context, Metrics, Spec, Step


class Addon(nn.Module):
    """Sees what passes between environment, buffer and agent. Every method defaults to doing nothing."""

    stores: Mapping[str, Space] = MappingProxyType({})  # of what it remembers, what replay keeps
    pays: ClassVar[bool] = False  # whether it rewards every step, in a column of the reward of its own
    ahead: int = 0  # steps in a row from each sampled one on that it learns from

    def spec(self, spec: Spec) -> Spec:
        """What the agent sees instead of the environment's spec."""
        return spec

    def see(self, obs: Any, carry: Batch, explore: bool) -> tuple[Any, Batch]:
        """The observation that the agent acts on, and extras to be stored with the step, each [num_envs, ...].

        carry: `first` marks episode starts, `carry.*` are extras of these names that were returned a step ago.
        explore=False draws no random numbers. It runs in evaluation too, and so changes no state."""
        return obs, {}

    def acting(self) -> Iterable[nn.Module]:
        """The modules whose parameters and buffers `see` reads."""
        return ()

    def collect(self, obs: Any, step: Step, extras: Batch) -> None:
        """Called once for every training step, where running statistics grow. obs: as the environment gave it."""

    def reward(self, batch: Batch) -> Tensor:
        """What it pays for a step, [num_envs]: once, as it happens, of what the add-ons before this one make of it."""
        raise NotImplementedError

    def share(self, paid: Tensor) -> Tensor:
        """What counts of that whenever it is learned from, of any shape."""
        return paid

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

    def __iter__(self) -> Iterator[Addon]:  # type: ignore[override]
        return super().__iter__()  # type: ignore[return-value]

    @property
    def stores(self) -> dict[str, Space]:
        return {name: space for addon in self for name, space in addon.stores.items()}

    @property
    def ahead(self) -> int:
        return max((addon.ahead for addon in self), default=0)

    @property
    def payers(self) -> list[Addon]:
        return [addon for addon in self if addon.pays]

    def spec(self, spec: Spec) -> Spec:
        for addon in self:
            spec = addon.spec(spec)
        return spec

    def act(self, policy: Any, obs: Any, carry: Batch, explore: bool, *params: Tensor) -> tuple[Tensor, Batch]:
        """The action of a policy that sees through the add-ons, and the extras of both."""
        seen, own = self.see(obs, carry, explore)
        action, extras = policy.act(seen, carry, explore, *params)
        return action, own | extras

    def acting(self) -> list[nn.Module]:
        return [module for addon in self for module in addon.acting()]

    def see(self, obs: Any, carry: Batch, explore: bool) -> tuple[Any, Batch]:
        extras: Batch = {}
        for addon in self:
            obs, more = addon.see(obs, carry, explore)
            extras |= more
        return obs, extras

    def collect(self, obs: Any, step: Step, extras: Batch) -> Step:
        """The step as it is learned from: with what is paid for it as further columns of its reward."""
        for addon in self:
            addon.collect(obs, step, extras)
        if not (unpaid := len(self.payers)):
            return step
        batch: Batch = extras | step._asdict() | {"obs": obs, "next_obs": step.final_obs}
        columns = [step.reward]
        for addon in self:
            if addon.pays:
                columns.append(addon.reward(batch))
                unpaid -= 1
            if not unpaid:
                break
            batch = addon.relabel(batch)
        return step._replace(reward=torch.stack(columns, -1))

    def relabel(self, batch: Batch) -> Batch:
        """What is learned from. What was paid stands as `paid` [..., payers] beside the environment's reward. `ahead`,
        steps in a row from those sampled on, is relabelled too, until an add-on takes it."""
        batch = apart(batch) if self.payers else batch
        for addon in self:
            if "ahead" in batch and not addon.ahead:
                batch = batch | {"ahead": addon.relabel(batch["ahead"])}
            batch = addon.relabel(batch)
        return batch

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        metrics: Metrics = {}
        for addon in self:
            metrics |= addon.update(batch, ctx)
        return metrics

    def evaluated(self, values: dict[str, float]) -> None:
        for addon in self:
            addon.evaluated(values)


def apart(batch: Batch) -> Batch:
    """The environment's reward, and beside it what was paid."""
    own = {"reward": batch["reward"][..., 0], "paid": batch["reward"][..., 1:]}
    return batch | own | ({"ahead": apart(batch["ahead"])} if "ahead" in batch else {})
