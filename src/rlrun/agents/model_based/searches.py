"""How MuZero chooses from a tree: what it plays, what it learns, and where chance comes in."""

from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from rlrun.config.schema import Fraction, NonNegativeFloat, PositiveFloat, Units, config
from rlrun.core.random import Stream
from rlrun.functional.schedules import linear
from rlrun.functional.search import Gumbel, Model, Node, Puct, disturbed, search
from rlrun.registry import register

Bounds = Annotated[list[float], Field(min_length=2, max_length=2)]


class Choice(NamedTuple):
    action: Tensor  # [batch]
    policy: Tensor  # [batch, actions], to learn
    value: Tensor  # [batch], of the root, as the tree has it


@register("search", "puct")
class PuctSearch(nn.Module):
    """The policy is the share of visits. Exploring, the root's prior is disturbed, and moves are drawn by visits."""

    @config
    class Config:
        num_simulations: Units
        value_bounds: Bounds | None
        c1: PositiveFloat
        c2: PositiveFloat
        unvisited: Fraction
        dirichlet_alpha: PositiveFloat
        dirichlet_fraction: Fraction
        temperature_start: PositiveFloat
        temperature_end: PositiveFloat
        sampled_moves: Units | None

    temperature: Tensor

    def __init__(self, cfg: Any):
        super().__init__()
        self.cfg, self.rule = cfg, Puct(cfg.c1, cfg.c2, cfg.unvisited, cfg.value_bounds)
        self.register_buffer("temperature", torch.tensor(cfg.temperature_start))

    def anneal(self, progress: float) -> None:
        self.temperature.fill_(linear(self.cfg.temperature_start, self.cfg.temperature_end, progress))

    def best(self, model: Model, root: Node) -> Choice:
        """Without chance."""
        tree = search(model, root, self.rule, self.cfg.num_simulations)
        return Choice(self.rule.best(tree), self.rule.policy(tree), tree.root_value)

    def explore(self, model: Model, root: Node, moves: Tensor, stream: Stream) -> Choice:
        """moves [batch]: how many this episode has seen."""
        noise = stream.gamma(torch.full_like(root.logits, self.cfg.dirichlet_alpha))
        root = root._replace(logits=disturbed(root.logits, noise, self.cfg.dirichlet_fraction))
        found = self.best(model, root)
        drawn = (found.policy.log() / self.temperature + stream.gumbel(*found.policy.shape)).argmax(-1)
        sampled = moves < (self.cfg.sampled_moves or torch.inf)
        return found._replace(action=torch.where(sampled, drawn, found.action))


@register("search", "gumbel")
class GumbelSearch(nn.Module):
    """The policy is the one that the search improved. Exploring, the action is drawn from it by the root's noise."""

    @config
    class Config:
        num_simulations: Units
        value_bounds: Bounds | None
        considered: Units
        c_visit: NonNegativeFloat
        c_scale: PositiveFloat

    def __init__(self, cfg: Any):
        super().__init__()
        self.cfg = cfg

    def anneal(self, progress: float) -> None:
        """Nothing: the policy itself becomes sure of what it does."""

    def best(self, model: Model, root: Node) -> Choice:
        return self._choose(model, root, torch.zeros_like(root.logits))

    def explore(self, model: Model, root: Node, moves: Tensor, stream: Stream) -> Choice:
        return self._choose(model, root, stream.gumbel(*root.logits.shape))

    def _choose(self, model: Model, root: Node, noise: Tensor) -> Choice:
        cfg = self.cfg
        rule = Gumbel(noise, cfg.num_simulations, cfg.considered, cfg.c_visit, cfg.c_scale, cfg.value_bounds)
        tree = search(model, root, rule, cfg.num_simulations)
        return Choice(rule.best(tree), rule.policy(tree), tree.root_value)
