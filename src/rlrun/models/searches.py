"""The part `algo.search` of MuZero: how a search chooses the action and the policy target, and how it explores."""

from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from rlrun.core.random import Stream
from rlrun.functional.search import Gumbel, Model, Node, Puct, search, with_dirichlet_noise
from rlrun.settings import Fraction, NonNegativeFloat, PositiveFloat, Scheduled, Units, config, register

ValueBounds = Annotated[list[float], Field(min_length=2, max_length=2)]  # [minimum, maximum] of all values


class SearchResult(NamedTuple):
    """The result of a search."""

    action: Tensor  # [batch]
    policy: Tensor  # [batch, actions], the policy target
    value: Tensor  # [batch], value of the root after the search


@register("search", "puct")
class PuctSearch(nn.Module):
    """PUCT search. The policy target is the distribution of visits at the root.

    Exploration adds Dirichlet noise to the prior of the root. The first `sampled_moves` moves of an episode, or all
    moves for None, are sampled from the visit distribution; the other moves are those with the most visits.
    """

    @config
    class Config:
        num_simulations: Units
        value_bounds: ValueBounds | None
        c1: PositiveFloat
        c2: PositiveFloat
        unvisited: Fraction
        dirichlet_alpha: PositiveFloat
        dirichlet_fraction: Fraction
        temperature: Scheduled[PositiveFloat]
        sampled_moves: Units | None

    temperature: Tensor

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.rule = Puct(cfg.c1, cfg.c2, cfg.unvisited, cfg.value_bounds)
        # a scheduled temperature is a tensor that the loop changes in place; as_tensor does not copy it
        self.register_buffer("temperature", torch.as_tensor(cfg.temperature), persistent=False)

    def best(self, model: Model, root: Node) -> SearchResult:
        """Returns the choice of a search from `root`: the action with the most visits."""
        tree = search(model, root, self.rule, self.cfg.num_simulations)
        return SearchResult(self.rule.best(tree), self.rule.policy(tree), tree.root_value)

    def explore(self, model: Model, root: Node, moves: Tensor, stream: Stream) -> SearchResult:
        """Returns the choice of a search from `root` with noise in its prior.

        moves [batch]: number of moves in the episode so far.
        """
        noise = stream.gamma(torch.full_like(root.logits, self.cfg.dirichlet_alpha))
        logits = with_dirichlet_noise(root.logits, noise, self.cfg.dirichlet_fraction)
        choice = self.best(model, root._replace(logits=logits))
        scores = choice.policy.log() / self.temperature
        sampled = (scores + stream.gumbel(*choice.policy.shape)).argmax(-1)
        if self.cfg.sampled_moves is None:
            return choice._replace(action=sampled)
        is_sampled = moves < self.cfg.sampled_moves
        action = torch.where(is_sampled, sampled, choice.action)
        return choice._replace(action=action)


@register("search", "gumbel")
class GumbelSearch(nn.Module):
    """Gumbel search. The policy target is the improved policy of Gumbel MuZero.

    Exploration adds Gumbel noise to the logits of the root.
    """

    @config
    class Config:
        num_simulations: Units
        value_bounds: ValueBounds | None
        considered: Units
        c_visit: NonNegativeFloat
        c_scale: PositiveFloat

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg

    def best(self, model: Model, root: Node) -> SearchResult:
        """Returns the choice of a search without noise."""
        return self._choose(model, root, torch.zeros_like(root.logits))

    def explore(self, model: Model, root: Node, moves: Tensor, stream: Stream) -> SearchResult:
        """Returns the choice of a search with noise; `moves` is not used."""
        return self._choose(model, root, stream.gumbel(*root.logits.shape))

    def _choose(self, model: Model, root: Node, noise: Tensor) -> SearchResult:
        cfg = self.cfg
        rule = Gumbel(noise, cfg.num_simulations, cfg.considered, cfg.c_visit, cfg.c_scale, cfg.value_bounds)
        tree = search(model, root, rule, cfg.num_simulations)
        return SearchResult(rule.best(tree), rule.policy(tree), tree.root_value)
