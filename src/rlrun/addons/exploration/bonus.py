"""How surprise is paid for: with returns of its own, or as a part of the one reward."""

from dataclasses import replace

import torch
from torch import Tensor

from rlrun.addons.exploration.intrinsic import Intrinsic
from rlrun.buffers.rollout import minibatches
from rlrun.core.addon import Addon
from rlrun.errors import ConfigError
from rlrun.functional.returns import reverse_recurrence
from rlrun.functional.schedules import linear
from rlrun.nested import flat
from rlrun.types import Batch, Bonus, Context, Metrics, Spec

ROWS = ("obs", "action", "next_obs", "weight")


class SeparateBonus(Addon):
    """One more reward column for on-policy agents, with returns and advantages of its own (arXiv 1810.12894, sec. 2.3).
    It is paid once for every rollout."""

    def __init__(self, model: Intrinsic):
        super().__init__()
        if model.cfg.coef_end is not None:
            raise ConfigError("algo.intrinsic.coef_end: needs algo.intrinsic.separate=false; with returns of its own "
                              "the coefficient of a bonus stays")  # fmt: skip
        self.model = model

    def spec(self, spec: Spec) -> Spec:
        cfg = self.model.cfg
        bonus = Bonus(cfg.gamma, cfg.episodic, cfg.coef)
        return replace(spec, reward_dim=spec.reward_dim + 1, bonuses=(*spec.bonuses, bonus))

    @torch.no_grad()
    def relabel(self, batch: Batch) -> Batch:
        """Once for every rollout, for the scale grows here."""
        weight, model = batch["weight"], self.model
        rows = {key: batch[key] for key in ROWS}
        model.watch(rows)
        explored = model.seen(rows)
        surprise = model.surprise(flat(explored)).view_as(weight) * weight
        sums = reverse_recurrence(surprise, torch.full_like(surprise, model.cfg.gamma))
        model.moments.add(sums[weight > 0])
        own = batch["reward"].view(*weight.shape, -1)
        columns = torch.cat([own, model.scaled(surprise).unsqueeze(-1)], -1)
        return batch | {"reward": columns, "explored": explored}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return {"bonus": batch["reward"][..., -1].mean()} | learn(self.model, batch["explored"])


class SharedBonus(Addon):
    """A part of the one reward, for any agent. The surprise of every step is stored with it; how much it counts, its
    scale and its coefficient, is said whenever it is learned from."""

    pays = True
    coef: Tensor

    def __init__(self, model: Intrinsic, num_envs: int):
        super().__init__()
        self.model = model
        self.register_buffer("coef", torch.tensor(model.cfg.coef))
        self.sums = torch.zeros(num_envs)  # discounted, of all that was paid so far

    @torch.no_grad()
    def reward(self, batch: Batch) -> Tensor:
        weight, model = batch["weight"], self.model
        rows = {key: batch[key] for key in ROWS}
        model.watch(rows)
        surprise = model.surprise(model.seen(rows)) * weight
        self.sums.mul_(model.cfg.gamma).add_(surprise)
        model.moments.add(self.sums[weight > 0])
        return surprise

    def share(self, paid: Tensor) -> Tensor:
        return self.coef * self.model.scaled(paid)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        cfg = self.model.cfg
        if cfg.coef_end is not None:
            self.coef.fill_(linear(cfg.coef, cfg.coef_end, ctx.progress))
        rows = {key: batch[key] for key in ROWS} | {"weight": batch.get("mask", batch["weight"])}
        explored = self.model.seen(rows)
        if "index" not in batch:  # a rollout, seen once
            return learn(self.model, explored)
        return self.model.fit(explored if explored["weight"].dim() == 1 else flat(explored))

    def get_extra_state(self) -> Tensor:
        return self.sums

    def set_extra_state(self, state: Tensor) -> None:
        self.sums = state.to(self.sums.device, copy=True)  # changed in place from here on


def learn(model: Intrinsic, explored: Batch) -> Metrics:
    """What the model learns from a rollout, [time, env, ...] as it sees it."""
    cfg, metrics = model.cfg, dict[str, Tensor]()
    for epoch in minibatches(explored, cfg.epochs, cfg.minibatch_size, model.shuffle):
        for rows in epoch:
            metrics |= model.fit(rows)
    return metrics
