"""MuZero (Schrittwieser et al. 2020, arXiv 1911.08265): tree search in a learned model.

Options: the Gumbel search of Danihelka et al. (ICLR 2022), TD(lambda) targets, and Reanalyze (appendix H). Reanalyze
replaces the policy targets of old positions with those of a new search; this implementation also replaces the value
targets. All other value targets bootstrap from the target network, as in appendix H, and never from stored values.
After a termination, the model is trained to stay in an absorbing state with rewards and values of 0.
"""

from functools import partial
from typing import Annotated

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rlrun.core.agent import Agent, kernel
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import batch_mean
from rlrun.functional.returns import n_step, td_lambda
from rlrun.functional.scalars import Plain, TwoHot
from rlrun.functional.search import Model, Node
from rlrun.models.search_model import LatentModel, scale_gradient
from rlrun.nested import index
from rlrun.networks.choices import legal
from rlrun.settings import (
    Discounted,
    Fraction,
    NonNegativeFloat,
    Part,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Scheduled,
    Size,
    Units,
    config,
    register,
    registry,
)
from rlrun.tensors import flat
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "muzero")
class MuZero(Agent):
    """Acts by tree search in a learned model; the search results are the policy targets."""

    actions = Discrete
    unexportable = "it acts by a tree search"

    @config
    class Config(Discounted):
        two_player: bool
        unroll_steps: Size
        td_steps: Size
        td_lambda: Fraction | None
        reanalyze_ratio: Fraction
        latent_size: Units
        support: Units | None
        value_coef: PositiveFloat
        reward_coef: PositiveFloat
        gradient_scale: PositiveFraction
        learning_rate: Scheduled[PositiveFloat]
        weight_decay: NonNegativeFloat
        max_grad_norm: PositiveFloat | None
        tau: PositiveFraction
        target_every: PositiveInt
        search: Annotated[dict[str, object], Part("search")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.sequence_length = cfg.unroll_steps + cfg.td_steps  # the last unrolled target sums td_steps rewards
        scalar: Plain | TwoHot = Plain()
        if cfg.support is not None:
            scalar = TwoHot(cfg.support)
        self.model = LatentModel(parts.torso, spec.action, cfg.latent_size, scalar)
        self.target = Target(self.model, cfg.tau)
        self.optim = Optim(
            self.model.parameters(), cfg.learning_rate, weight_decay=cfg.weight_decay,
            max_grad_norm=cfg.max_grad_norm,
        )  # fmt: skip
        self.discount = cfg.gamma
        if cfg.two_player:
            self.discount = -cfg.gamma  # the next value is the opponent's
        self.search = registry.build("search", cfg.search, path="algo.search")
        self.noise = parts.stream("act")
        self.beyond = parts.stream("beyond")  # draws actions after the end of an episode
        num_actions = int(spec.action.n)
        self.stores = {"policy": Box(0.0, 1.0, (num_actions,), np.float32)}

    @torch.no_grad()  # not a recorded @policy, because the search depends on values
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        model, root = self.root(self.model, obs)
        next_move = carry.get("carry.moves", 0) + 1
        moves = torch.where(carry["first"], 0, next_move)  # moves made in this episode before this one
        if explore:
            choice = self.search.explore(model, root, moves, self.noise)
        else:
            choice = self.search.best(model, root)
        return choice.action, {"policy": choice.policy, "carry.moves": moves}

    def root(self, model: LatentModel, obs: Obs) -> tuple[Model, Node]:
        """Returns the model as a function for the search, and the root node of the tree."""
        latent = model.encode(obs)
        logits, value = model.predict(latent)
        value = model.scalar.mean(value)
        zeros = torch.zeros_like(value)  # the search uses neither reward nor discount of the root
        node = Node(latent, reward=zeros, discount=zeros, logits=legal(logits, obs), value=value)
        return partial(self.follow, model), node

    def follow(self, model: LatentModel, latent: Tensor, action: Tensor) -> Node:
        """Returns the child that `action` leads to from a node with state `latent`, [batch, ...]."""
        latent, reward = model.step(latent, action)
        logits, value = model.predict(latent)
        outputs = torch.stack([reward, value])
        reward, value = model.scalar.mean(outputs)
        discount = torch.full_like(value, self.discount)
        return Node(latent, reward, discount, logits, value)

    def state_values(self, obs: Obs) -> Tensor:
        _, root = self.root(self.model, obs)
        return root.value

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        cfg = self.cfg
        batch = batch | {"action": self.unrolled_actions(batch)}
        policy, value = self.reanalyzed(batch)
        metrics, error = self.update_model(batch, policy, value)
        self.target.track_every(cfg.target_every, ctx.updates + 1)
        return metrics, error

    def unrolled_actions(self, batch: Batch) -> Tensor:
        """Returns the actions to unroll the model with, [time, batch].

        They are random after the end of an episode, so that the model learns its absorbing state for every action.
        """
        random = self.beyond.integers(self.model.actions, *batch["action"].shape)
        in_episode = batch["mask"] > 0
        return torch.where(in_episode, batch["action"], random)

    @torch.no_grad()
    def reanalyzed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns target policies [unroll + 1, batch, actions] and search values [unroll + 1, num_searched].

        The first num_searched sequences of the batch are searched again; the rest keep their stored policies.
        """
        policy = batch["policy"][: self.cfg.unroll_steps + 1]
        num_targets, batch_size, num_actions = policy.shape
        num_searched = round(self.cfg.reanalyze_ratio * batch_size)
        if not num_searched:
            return policy, policy.new_zeros(num_targets, 0)
        searched_obs = index(batch["obs"], (slice(num_targets), slice(num_searched)))
        obs = flat(searched_obs)
        model, root = self.root(self.target.module, obs)
        choice = self.search.best(model, root)
        searched = choice.policy.view(-1, num_searched, num_actions)
        in_episode = batch["mask"][:num_targets, :num_searched]
        value = choice.value.view(-1, num_searched) * in_episode
        return torch.cat([searched, policy[:, num_searched:]], 1), value

    @kernel
    def update_model(self, batch: Batch, policy: Tensor, value: Tensor) -> tuple[Metrics, Tensor]:
        """Takes one gradient step, and returns metrics and the errors of the root values [batch].

        policy [unroll + 1, batch, actions]: target policies. value [unroll + 1, num_searched]: search values, which
        replace the returns of the first sequences of the batch.
        """
        returns, rewards, has_target = self.targets(batch)
        num_targets, num_searched = value.shape
        returns = torch.cat([value, returns[:num_targets, num_searched:]], 1)
        value_loss, reward_loss, policy_loss, error = self.unroll(batch, policy, returns, rewards, has_target)
        losses_by_step = self.cfg.value_coef * value_loss + policy_loss
        root_loss = losses_by_step[0]
        unrolled_loss = losses_by_step[1:].sum(0) + self.cfg.reward_coef * reward_loss.sum(0)
        # losses of the unrolled steps are divided by their number (appendix G)
        loss = (root_loss + unrolled_loss / self.cfg.unroll_steps) * batch["weight"]
        norm = self.optim.step(batch_mean(loss))
        metrics = {
            "loss/value_loss": batch_mean(value_loss.detach()),
            "loss/reward_loss": batch_mean(reward_loss.detach()),
            "loss/policy_loss": batch_mean(policy_loss.detach()),
            "loss/grad_norm": norm,
        }
        return metrics, error

    @torch.no_grad()
    def targets(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (returns, rewards, mask of timesteps that have targets), each [time, batch].

        The state after a termination is absorbing: its returns and rewards are 0.
        """
        in_episode = batch["mask"]
        next_value = self.target(flat(batch["next_obs"])).view_as(in_episode)
        terminated = batch["terminated"]
        is_last = torch.cat([in_episode[1:], torch.zeros_like(in_episode[:1])]) == 0
        steps = (batch["reward"], next_value, terminated > 0, is_last, self.discount)
        if self.cfg.td_lambda is None:
            returns = n_step(*steps, self.cfg.td_steps)
        else:
            returns = td_lambda(*steps, self.cfg.td_lambda)
        absorbing = (1 - in_episode) * terminated  # the last step of an episode is repeated after its end
        return returns * in_episode, batch["reward"] * in_episode, in_episode + absorbing

    def unroll(
        self,
        batch: Batch,
        policy: Tensor,
        returns: Tensor,
        rewards: Tensor,
        has_target: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns (value loss, reward loss, policy loss, error).

        returns, rewards and has_target have at least unroll + 1 timesteps. Value and policy losses are [unroll + 1,
        batch], reward losses [unroll, batch]. error [batch]: predicted value of the root minus its target.
        """
        steps = self.cfg.unroll_steps
        scalar = self.model.scalar
        latent = self.model.encode(index(batch["obs"], 0))
        latents = [latent]
        outputs = []
        for action in batch["action"][:steps]:
            latent = scale_gradient(latent, self.cfg.gradient_scale)
            latent, output = self.model.step(latent, action)
            latents.append(latent)
            outputs.append(output)
        logits, values = self.model.predict(torch.stack(latents))
        value_loss = scalar.loss(values, returns[: steps + 1]) * has_target[: steps + 1]
        reward_loss = scalar.loss(torch.stack(outputs), rewards[:steps]) * has_target[:steps]
        cross_entropy = -(policy * logits.log_softmax(-1)).sum(-1)
        policy_loss = cross_entropy * batch["mask"][: steps + 1]
        error = scalar.mean(values[0]) - returns[0]
        return value_loss, reward_loss, policy_loss, error.detach()
