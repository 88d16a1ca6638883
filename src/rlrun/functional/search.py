"""Monte Carlo tree search on a model, many trees at once, as arrays.

Node 0 of every tree is its root, node i was added by simulation i. A simulation is three steps, each a few operations
on [batch, nodes, actions]; nothing loops over nodes or depth:

- descend: every node chooses an action, which makes "the child of my choice" a pointer; pointers that are doubled
  log2(nodes) times lead from the root to the leaf;
- expand: the model is asked once, for one leaf in each tree;
- back up: each node knows the rewards and the discount between any ancestor and itself, so its return is known to all
  of its ancestors at once.

A transition is worth r + discount * V(next). In a game of two players who take turns the discount is negative: what is
good for the player to move next is bad for the one who moved (negamax). A discount of 0 ends an episode.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Node(NamedTuple):
    """What a model says about a state, and about the step that led there. Leading dimension: batch."""

    state: Tensor  # [batch, ...], whatever the model needs to go on
    reward: Tensor  # [batch], of the step
    discount: Tensor  # [batch], of what follows the step
    logits: Tensor  # [batch, actions]; -inf where an action is illegal
    value: Tensor  # [batch], for the player to move


Model = Callable[[Tensor, Tensor], Node]  # (state [batch, ...], action [batch]) -> what follows
Bounds = Sequence[float] | None  # least and greatest value, where they are known


class Rule(Protocol):
    def scores(self, tree: "Tree") -> Tensor:
        """[batch, nodes, actions]; every node chooses the highest."""


class Tree:
    """Search trees over `num_simulations` nodes and a root. Everything is [batch, nodes, ...]."""

    def __init__(self, root: Node, num_simulations: int):
        batch, actions = root.logits.shape
        nodes, zeros = num_simulations + 1, root.value.new_zeros
        self.size, self.rows = 0, torch.arange(batch, device=root.value.device)
        self.state = root.state.new_zeros(batch, nodes, *root.state.shape[1:])
        self.logits, self.prior = zeros(batch, nodes, actions), zeros(batch, nodes, actions)
        self.value = zeros(batch, nodes)  # as the model predicts it
        self.reward, self.discount = zeros(batch, nodes), zeros(batch, nodes)
        self.visits, self.total = zeros(batch, nodes), zeros(batch, nodes)  # `total` is the sum of returns
        self.child = self.rows.new_zeros(batch, nodes, actions)  # 0: none, for the root is nobody's child
        # between ancestor (last dimension) and node: is it one, what is earned, and by what does the rest count
        self.above, self.earned, self.share = (zeros(batch, nodes, nodes) for _ in range(3))
        no_step = root._replace(reward=zeros(batch), discount=zeros(batch) + 1)
        self._add(no_step, *(part[:, 0] for part in (self.above, self.earned, self.share)))

    def descend(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """(leaf, action) [batch]: where the choices [batch, nodes, actions] lead from the root."""
        choice = scores.argmax(-1)
        child = self.child[:, : self.size].gather(2, choice[..., None]).squeeze(2)
        jump = torch.where(child > 0, child, torch.arange(self.size, device=child.device))
        for _ in range((self.size - 1).bit_length()):
            jump = jump.gather(1, jump)
        leaf = jump[:, 0]
        return leaf, choice[self.rows, leaf]

    def grow(self, leaf: Tensor, action: Tensor, node: Node) -> None:
        """Add what follows `action` at `leaf`, and tell its ancestors."""
        self.child[self.rows, leaf, action] = self.size
        share = self.share[self.rows, leaf]
        earned = self.earned[self.rows, leaf] + share * node.reward[:, None]
        self._add(node, self.above[self.rows, leaf], earned, share * node.discount[:, None])

    def _add(self, node: Node, above: Tensor, earned: Tensor, share: Tensor) -> None:
        new = self.size
        above[:, new] = share[:, new] = 1.0
        self.state[:, new], self.value[:, new] = node.state, node.value
        self.logits[:, new], self.prior[:, new] = node.logits, node.logits.softmax(-1)
        self.reward[:, new], self.discount[:, new] = node.reward, node.discount
        self.above[:, new], self.earned[:, new], self.share[:, new] = above, earned, share
        self.visits += above
        self.total += earned + share * node.value[:, None]
        self.size += 1

    def edges(self, bounds: Bounds) -> tuple[Tensor, Tensor, Tensor]:
        """(visits, q) of every node's actions, [batch, nodes, actions], 0 where no child is; values [batch, nodes] as
        the model predicted them. q = r + discount * V of the child. All values are scaled to [0, 1]: from known bounds,
        else from the least and the greatest q in the tree, the root's value among them."""
        size, child = self.size, self.child[:, : self.size]
        q = self.reward[:, :size] + self.discount[:, :size] * self.total[:, :size] / self.visits[:, :size]
        low, high = bounds or (q.amin(1, keepdim=True), q.amax(1, keepdim=True))
        span = high - low + torch.finfo(q.dtype).tiny
        found = torch.stack([self.visits[:, :size], (q - low) / span])
        visits, q = torch.where(child > 0, found.gather(2, child.flatten(1).expand(2, -1, -1)).view(2, *child.shape), 0)
        return visits, q, (self.value[:, :size] - low) / span

    @property
    def root_visits(self) -> Tensor:
        """How often each action of the root was tried, [batch, actions]."""
        child = self.child[:, 0]
        return self.visits.gather(1, child) * (child > 0)

    @property
    def root_value(self) -> Tensor:
        """Mean return of all simulations and the model's own guess, [batch]."""
        return self.total[:, 0] / self.visits[:, 0]


def search(model: Model, root: Node, rule: Rule, num_simulations: int) -> Tree:
    """Trees of num_simulations nodes below each root. Draws nothing: noise is part of the root or of the rule."""
    tree = Tree(root, num_simulations)
    for _ in range(num_simulations):
        leaf, action = tree.descend(rule.scores(tree))
        tree.grow(leaf, action, model(tree.state[tree.rows, leaf], action))
    return tree


def disturbed(logits: Tensor, noise: Tensor, fraction: float) -> Tensor:
    """Logits of a policy mixed with noise: Dirichlet over the legal actions, from Gamma draws; [batch, actions]."""
    noise = noise * (logits > -math.inf)
    return torch.lerp(logits.softmax(-1), noise / noise.sum(-1, keepdim=True), fraction).log()


class Puct(NamedTuple):
    """Upper confidence bounds weighted by the policy (AlphaZero; constants as in MuZero, arXiv 1911.08265, eq. 2)."""

    c1: float = 1.25
    c2: float = 19652.0
    unvisited: float = 0.5  # q of an action not yet tried, scaled to [0, 1]
    bounds: Bounds = None  # of values, where they are known

    def scores(self, tree: Tree) -> Tensor:
        """q + P sqrt(N) / (1 + n) (c1 + log((N + c2 + 1) / c2)), N visits of the node, n of the child."""
        visits, q, _ = tree.edges(self.bounds)
        prior = tree.prior[:, : tree.size]
        parent = tree.visits[:, : tree.size, None]
        weight = parent.sqrt() * (self.c1 + ((parent + self.c2 + 1) / self.c2).log())
        score = torch.where(visits > 0, q, self.unvisited) + prior * weight / (1 + visits)
        return torch.where(prior > 0, score, -math.inf)

    def policy(self, tree: Tree) -> Tensor:
        """Shares of visits at the root, [batch, actions]."""
        return tree.root_visits / tree.root_visits.sum(-1, keepdim=True)

    def best(self, tree: Tree) -> Tensor:
        """The action tried most often, [batch]; of equals, the one of the highest q."""
        visits, q, _ = tree.edges(self.bounds)
        return torch.where(visits[:, 0] > 0, visits[:, 0] + q[:, 0].clamp(0, 1) / 2, -1.0).argmax(-1)


class Gumbel:
    """Search that improves the policy with any number of simulations (Danihelka et al., ICLR 2022).

    At the root actions are drawn without replacement by `noise`, and the simulations shared out by sequential halving;
    below it, visits follow the improved policy softmax(logits + sigma(q)) as closely as they can.
    """

    def __init__(
        self,
        noise: Tensor,  # [batch, actions] Gumbel(0, 1); zeros: nothing is explored
        num_simulations: int,
        considered: int = 16,  # actions tried at the root, at most
        c_visit: float = 50.0,
        c_scale: float = 1.0,
        bounds: Bounds = None,
    ):
        self.noise, self.considered, self.bounds = noise, min(considered, noise.shape[-1]), bounds
        self.c_visit, self.c_scale = c_visit, c_scale
        plans = [halving(tried, num_simulations) for tried in range(self.considered + 1)]
        self.plans = torch.tensor(plans, device=noise.device)

    def scores(self, tree: Tree) -> Tensor:
        """pi'(a) - n(a) / (1 + sum n) (eq. 14), pi' the improved policy; at the root, as sequential halving says."""
        visits, value = self._improved(tree)
        share = visits / (1 + visits.sum(-1, keepdim=True))
        scores = torch.where(value > -math.inf, value.softmax(-1) - share, -math.inf)
        legal = (tree.logits[:, 0] > -math.inf).sum(-1).clamp(max=self.considered)
        due = self.plans[legal, tree.size - 1, None]
        scores[:, 0] = torch.where(visits[:, 0] == due, self.noise + value[:, 0], -math.inf)
        return scores

    def policy(self, tree: Tree) -> Tensor:
        """The improved policy at the root, [batch, actions]."""
        return self._improved(tree)[1][:, 0].softmax(-1)

    def best(self, tree: Tree) -> Tensor:
        """Of the actions tried most often, that of the highest noise + logit + sigma(q), [batch]."""
        visits, value = (part[:, 0] for part in self._improved(tree))
        most = visits == visits.amax(-1, keepdim=True)
        return torch.where(most, self.noise + value, -math.inf).argmax(-1)

    def _improved(self, tree: Tree) -> tuple[Tensor, Tensor]:
        """(visits, logits + sigma(completed q)) with sigma(q) = (c_visit + max n) c_scale q (eq. 8).

        An action not tried counts as the mean of the model's value and of the q that were tried (eq. 33).
        """
        visits, q, raw = tree.edges(self.bounds)
        logits, tried, total = tree.logits[:, : tree.size], visits > 0, visits.sum(-1)
        prior = tree.prior[:, : tree.size] * tried
        among = (prior * q).sum(-1) / (prior.sum(-1) + torch.finfo(q.dtype).tiny)
        mixed = (raw + total * among) / (1 + total)
        q = torch.where(tried, q, mixed[..., None])
        return visits, logits + (self.c_visit + visits.amax(-1, keepdim=True)) * self.c_scale * q


@cache
def halving(considered: int, num_simulations: int) -> tuple[int, ...]:
    """Sequential halving: how many visits the action tried by each simulation has had until then.

    All actions considered are tried equally often, then the better half of them, down to two.
    """
    rounds = max(1, math.ceil(math.log2(max(1, considered))))
    visits, left = [0] * max(1, considered), max(1, considered)
    plan: list[int] = []
    while len(plan) < num_simulations:
        for _ in range(max(1, num_simulations // (rounds * left))):
            plan += visits[:left]
            visits[:left] = [count + 1 for count in visits[:left]]
        left = max(min(2, considered), left // 2)
    return tuple(plan[:num_simulations])
