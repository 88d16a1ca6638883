"""MuZero (Schrittwieser et al. 2020, arXiv 1911.08265): acts by tree search in a model learned for that search alone.

By option: the Gumbel search of Danihelka et al. (ICLR 2022), TD(lambda) targets, Reanalyze (appendix H): old positions
get the policy of a fresh search, and here its value too. Other values are bootstrapped with the target network, as
there, never with stored ones. Past the end of an episode the model learns that no action changes anything.
"""

from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun import registry
from rlrun.config.schema import (
    Discounted,
    Fraction,
    NonNegativeFloat,
    Part,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Units,
    config,
)
from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.returns import n_step, td_lambda
from rlrun.functional.scalars import Plain, TwoHot
from rlrun.functional.search import Model, Node
from rlrun.networks.choices import legal
from rlrun.networks.inputs import merged
from rlrun.networks.latent_model import LatentModel, scale_gradient
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "muzero")
class MuZero(Agent):
    actions = Discrete

    @config
    class Config(Discounted):
        two_player: bool
        unroll_steps: Units
        td_steps: Units
        td_lambda: Fraction | None
        reanalyze_ratio: Fraction
        latent_size: Units
        support: Units | None
        value_coef: PositiveFloat
        reward_coef: PositiveFloat
        gradient_scale: PositiveFraction
        learning_rate: PositiveFloat
        lr_schedule: dict[str, Any]
        weight_decay: NonNegativeFloat
        max_grad_norm: PositiveFloat | None
        tau: PositiveFraction
        target_every: PositiveInt
        search: Annotated[dict[str, Any], Part("search")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.sequence_length = cfg.unroll_steps + cfg.td_steps
        scalar = Plain() if cfg.support is None else TwoHot(cfg.support)
        self.model = LatentModel(parts.torso, spec.action, cfg.latent_size, scalar)
        self.target = Target(self.model, cfg.tau)
        self.optim = Optim(
            self.model.parameters(), cfg.learning_rate, weight_decay=cfg.weight_decay,
            max_grad_norm=cfg.max_grad_norm, schedule=cfg.lr_schedule,
        )  # fmt: skip
        # of what comes next, for the one who moved: the other player's gain is a loss
        self.discount = -cfg.gamma if cfg.two_player else cfg.gamma
        self.search = registry.build("search", cfg.search, path="algo.search")
        self.noise, self.beyond = parts.stream("act"), parts.stream("beyond")
        self.stores = {"policy": Box(0.0, 1.0, (int(spec.action.n),), np.float32)}

    @torch.no_grad()
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        model, root = self.root(self.model, obs)
        moves = torch.where(carry["first"], 0, carry.get("carry.moves", 0) + 1)
        found = self.search.explore(model, root, moves, self.noise) if explore else self.search.best(model, root)
        return found.action, {"policy": found.policy, "carry.moves": moves}

    def root(self, model: LatentModel, obs: Any) -> tuple[Model, Node]:
        """(what the search asks, where it starts)."""
        latent = model.encode(obs)
        logits, value = model.predict(latent)
        value = model.scalar.mean(value)
        none = torch.zeros_like(value)
        return partial(self.follow, model), Node(latent, none, none, legal(logits, obs), value)

    def follow(self, model: LatentModel, latent: Tensor, action: Tensor) -> Node:
        latent, reward = model.step(latent, action)
        logits, value = model.predict(latent)
        reward, value = model.scalar.mean(torch.stack([reward, value]))
        return Node(latent, reward, torch.full_like(value, self.discount), logits, value)

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        cfg = self.cfg
        self.search.anneal(ctx.progress)
        self.optim.tick(ctx.progress)
        metrics, error = self.update_model(batch | {"action": self.onward(batch)}, *self.reanalyzed(batch))
        self.target.track_every(cfg.target_every, ctx.updates + 1)
        return metrics, error

    def onward(self, batch: Batch) -> Tensor:
        """Actions [time, batch]: those taken, then at random."""
        anything = self.beyond.integers(self.model.actions, *batch["action"].shape)
        return torch.where(batch["mask"] > 0, batch["action"], anything)

    @torch.no_grad()
    def reanalyzed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Policies to learn [unroll + 1, batch, actions], as stored, or for a share of the batch searched anew; and the
        values that these searches found [unroll + 1, share]."""
        policy = batch["policy"][: self.cfg.unroll_steps + 1]
        share = round(self.cfg.reanalyze_ratio * policy.shape[1])
        if not share:
            return policy, policy.new_zeros(len(policy), 0)
        found = self.search.best(*self.root(self.target.module, merged(batch["obs"], len(policy), share)))
        value = found.value.view(-1, share) * batch["mask"][: len(policy), :share]
        return torch.cat([found.policy.view(-1, share, policy.shape[-1]), policy[:, share:]], 1), value

    @kernel
    def update_model(self, batch: Batch, policy: Tensor, value: Tensor) -> tuple[Metrics, Tensor]:
        returns, rewards, known = self.targets(batch)
        returns = torch.cat([value, returns[: len(value), value.shape[1] :]], 1)
        value_loss, reward_loss, policy_loss, error = self.unroll(batch, policy, returns, rewards, known)
        each = self.cfg.value_coef * value_loss + policy_loss
        later = each[1:].sum(0) + self.cfg.reward_coef * reward_loss.sum(0)
        each = (each[0] + later / self.cfg.unroll_steps) * batch["weight"]
        norm = self.optim.step(each.mean())
        losses = {"value": value_loss, "reward": reward_loss, "policy": policy_loss}
        metrics = {f"{name}_loss": loss.detach().mean() for name, loss in losses.items()}
        return metrics | {"grad_norm": norm}, error

    @torch.no_grad()
    def targets(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """(returns, rewards, known), all [time, batch]. After a termination both are known to be 0 for ever."""
        there = batch["mask"]
        next_value = self.target(merged(batch["next_obs"], *there.shape)).view_as(there)
        last = torch.cat([there[1:], torch.zeros_like(there[:1])]) == 0
        known = (batch["reward"], next_value, batch["terminated"] > 0, last, self.discount)
        if self.cfg.td_lambda is None:
            returns = n_step(*known, self.cfg.td_steps)
        else:
            returns = td_lambda(*known, self.cfg.td_lambda)
        over = (1 - there) * batch["terminated"]  # past the end the last step is repeated
        return returns * there, batch["reward"] * there, there + over

    def unroll(
        self, batch: Batch, policy: Tensor, returns: Tensor, rewards: Tensor, known: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Losses of value and policy [unroll + 1, batch] and of rewards [unroll, batch]; error of the first value."""
        steps, scalar = self.cfg.unroll_steps, self.model.scalar
        latents, outputs = [self.model.encode(merged(batch["obs"], 1, len(batch["weight"])))], []
        for action in batch["action"][:steps]:
            latent, output = self.model.step(scale_gradient(latents[-1], self.cfg.gradient_scale), action)
            latents.append(latent)
            outputs.append(output)
        logits, values = self.model.predict(torch.stack(latents))
        value_loss = scalar.loss(values, returns[: steps + 1]) * known[: steps + 1]
        reward_loss = scalar.loss(torch.stack(outputs), rewards[:steps]) * known[:steps]
        policy_loss = -(policy * logits.log_softmax(-1)).sum(-1) * batch["mask"][: steps + 1]
        return value_loss, reward_loss, policy_loss, (scalar.mean(values[0]) - returns[0]).detach()
