"""Monte Carlo tree search on a model, many trees at once, as arrays.

Node 0 of every tree is its root, node i was added by simulation i. A simulation is three steps, each a few operations
on [batch, nodes, actions]; nothing loops over nodes or depth:

- descend: every node chooses an action, which makes "the child of my choice" a pointer; following pointers that double
  their reach log2(nodes) times leads from the root to the leaf;
- expand: the model is called once, for one leaf in each tree;
- back up: each node holds the rewards and the discount between any ancestor and itself, so its return reaches all of
  its ancestors in one operation.

The value of a transition is r + discount * V(next). In a game of two players who take turns the discount is negative:
what is good for the player to move next is bad for the one who moved (negamax). A discount of 0 ends an episode.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Node(NamedTuple):
    """A model's output for a state and the step that led there. Leading dimension: batch."""

    state: Tensor  # [batch, ...], whatever the model needs to go on
    reward: Tensor  # [batch], of the step
    discount: Tensor  # [batch], of the return after the step
    logits: Tensor  # [batch, actions]; -inf where an action is illegal
    value: Tensor  # [batch], for the player to move


Model = Callable[[Tensor, Tensor], Node]  # (state [batch, ...], action [batch]) -> the next node
Bounds = Sequence[float] | None  # minimum and maximum of values, where they are given


class Rule(Protocol):
    """How nodes choose the action that a simulation follows."""

    def scores(self, tree: "Tree") -> Tensor:
        """Returns scores [batch, nodes, actions]; every node chooses the highest."""


class Tree:
    """Search trees over `num_simulations` nodes and a root. Everything is [batch, nodes, ...]."""

    def __init__(self, root: Node, num_simulations: int):
        batch, num_actions = root.logits.shape
        nodes = num_simulations + 1
        zeros = root.value.new_zeros
        self.size = 0  # nodes so far
        self.rows = torch.arange(batch, device=root.value.device)
        self.state = root.state.new_zeros(batch, nodes, *root.state.shape[1:])
        self.logits = zeros(batch, nodes, num_actions)
        self.prior = zeros(batch, nodes, num_actions)
        self.value = zeros(batch, nodes)  # as the model predicts it
        self.reward = zeros(batch, nodes)
        self.discount = zeros(batch, nodes)
        self.visits = zeros(batch, nodes)
        self.total = zeros(batch, nodes)  # sum of the returns of all visits
        self.child = self.rows.new_zeros(batch, nodes, num_actions)  # 0: none, for the root is nobody's child
        # [batch, node, other node]: whether the other is an ancestor of the node or itself, and then the discounted
        # rewards and the discount on the path between them
        self.is_ancestor = zeros(batch, nodes, nodes)
        self.path_reward = zeros(batch, nodes, nodes)
        self.path_discount = zeros(batch, nodes, nodes)

        no_reward = zeros(batch)
        no_discount = zeros(batch) + 1
        self._add(
            root._replace(reward=no_reward, discount=no_discount),
            self.is_ancestor[:, 0],
            self.path_reward[:, 0],
            self.path_discount[:, 0],
        )

    def descend(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (leaf, action) [batch]: where the best scores [batch, nodes, actions] lead from the root."""
        choice = scores.argmax(-1)
        child_of_choice = self.child[:, : self.size].gather(2, choice[..., None]).squeeze(2)
        itself = torch.arange(self.size, device=choice.device)
        pointer = torch.where(child_of_choice > 0, child_of_choice, itself)
        num_doublings = (self.size - 1).bit_length()
        for _ in range(num_doublings):
            pointer = pointer.gather(1, pointer)
        leaf = pointer[:, 0]
        action = choice[self.rows, leaf]
        return leaf, action

    def grow(self, leaf: Tensor, action: Tensor, node: Node) -> None:
        """Adds the node to which `action` leads at `leaf`, and its return to all of its ancestors."""
        self.child[self.rows, leaf, action] = self.size
        is_ancestor = self.is_ancestor[self.rows, leaf]
        path_discount = self.path_discount[self.rows, leaf]
        path_reward = self.path_reward[self.rows, leaf] + path_discount * node.reward[:, None]
        path_discount = path_discount * node.discount[:, None]
        self._add(node, is_ancestor, path_reward, path_discount)

    def _add(
        self,
        node: Node,
        is_ancestor: Tensor,
        path_reward: Tensor,
        path_discount: Tensor,
    ) -> None:
        """Adds a node, given its paths [batch, nodes] from every ancestor, and counts one visit of each of them."""
        new = self.size
        is_ancestor[:, new] = 1.0
        path_discount[:, new] = 1.0
        self.state[:, new] = node.state
        self.value[:, new] = node.value
        self.logits[:, new] = node.logits
        self.prior[:, new] = node.logits.softmax(-1)
        self.reward[:, new] = node.reward
        self.discount[:, new] = node.discount
        self.is_ancestor[:, new] = is_ancestor
        self.path_reward[:, new] = path_reward
        self.path_discount[:, new] = path_discount
        self.visits += is_ancestor
        self.total += path_reward + path_discount * node.value[:, None]
        self.size += 1

    def edges(self, bounds: Bounds) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (visits, q) of every node's actions [batch, nodes, actions], 0 where no child is, and the values
        [batch, nodes] that the model predicted.

        q = r + discount * V of the child. All values are scaled to [0, 1]: from the bounds, else from the minimum and
        the maximum of q in the tree, the root's value among them.
        """
        size = self.size
        child = self.child[:, :size]
        visits = self.visits[:, :size]
        discounted_total = self.discount[:, :size] * self.total[:, :size]
        q = self.reward[:, :size] + discounted_total / visits
        low, high = bounds or (q.amin(1, keepdim=True), q.amax(1, keepdim=True))
        span = high - low + torch.finfo(q.dtype).tiny

        # visits and q of the child of every action, in one gather
        of_nodes = torch.stack([visits, (q - low) / span])
        child_index = child.flatten(1).expand(2, -1, -1)
        of_children = of_nodes.gather(2, child_index).view(2, *child.shape)
        child_visits, child_q = torch.where(child > 0, of_children, 0)
        value = (self.value[:, :size] - low) / span
        return child_visits, child_q, value

    @property
    def root_visits(self) -> Tensor:
        """How often each action of the root was tried, [batch, actions]."""
        child = self.child[:, 0]
        return self.visits.gather(1, child) * (child > 0)

    @property
    def root_value(self) -> Tensor:
        """Mean of the returns of all simulations and the model's own value, [batch]."""
        return self.total[:, 0] / self.visits[:, 0]


def search(
    model: Model,
    root: Node,
    rule: Rule,
    num_simulations: int,
) -> Tree:
    """Returns trees of num_simulations nodes below each root. Draws nothing: noise is part of the root or the rule."""
    tree = Tree(root, num_simulations)
    for _ in range(num_simulations):
        scores = rule.scores(tree)
        leaf, action = tree.descend(scores)
        leaf_state = tree.state[tree.rows, leaf]
        node = model(leaf_state, action)
        tree.grow(leaf, action, node)
    return tree


def disturbed(
    logits: Tensor,
    noise: Tensor,
    fraction: float,
) -> Tensor:
    """Returns the logits of a policy mixed with Dirichlet noise over the legal actions; [batch, actions].

    noise: draws from a Gamma distribution, which are Dirichlet once they are divided by their sum.
    """
    is_legal = logits > -math.inf
    noise = noise * is_legal
    policy = logits.softmax(-1)
    dirichlet = noise / noise.sum(-1, keepdim=True)
    return torch.lerp(policy, dirichlet, fraction).log()


class Puct(NamedTuple):
    """Upper confidence bounds weighted by the policy (AlphaZero; constants as in MuZero, arXiv 1911.08265, eq. 2)."""

    c1: float = 1.25
    c2: float = 19652.0
    unvisited: float = 0.5  # q of an action not yet tried, scaled to [0, 1]
    bounds: Bounds = None  # of values, where they are given

    def scores(self, tree: Tree) -> Tensor:
        """Returns q + P sqrt(N) / (1 + n) (c1 + log((N + c2 + 1) / c2)), with N visits of the node, n of the child."""
        n, q, _ = tree.edges(self.bounds)
        prior = tree.prior[:, : tree.size]
        N = tree.visits[:, : tree.size, None]
        growth = ((N + self.c2 + 1) / self.c2).log()
        weight = N.sqrt() * (self.c1 + growth)
        q = torch.where(n > 0, q, self.unvisited)
        score = q + prior * weight / (1 + n)
        return torch.where(prior > 0, score, -math.inf)

    def policy(self, tree: Tree) -> Tensor:
        """Returns the fractions of visits at the root, [batch, actions]."""
        visits = tree.root_visits
        return visits / visits.sum(-1, keepdim=True)

    def best(self, tree: Tree) -> Tensor:
        """Returns the action tried most often, [batch]; of several, the one of the highest q."""
        visits, q, _ = tree.edges(self.bounds)
        root_visits = visits[:, 0]
        tie_break = q[:, 0].clamp(0, 1) / 2
        score = torch.where(root_visits > 0, root_visits + tie_break, -1.0)
        return score.argmax(-1)


class Gumbel:
    """Search that improves the policy with any number of simulations (Danihelka et al., ICLR 2022).

    At the root actions are drawn without replacement by `noise`, and the simulations are divided among them by
    sequential halving; below it, visits follow the improved policy softmax(logits + sigma(q)) as closely as they can.
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
        num_actions = noise.shape[-1]
        self.noise = noise
        self.considered = min(considered, num_actions)
        self.c_visit = c_visit
        self.c_scale = c_scale
        self.bounds = bounds
        plans = []
        for num_legal in range(self.considered + 1):
            plans.append(halving(num_legal, num_simulations))
        self.plans = torch.tensor(plans, device=noise.device)  # [legal actions, simulations]

    def scores(self, tree: Tree) -> Tensor:
        """Returns pi'(a) - n(a) / (1 + sum n) (eq. 14), pi' the improved policy; at the root, sequential halving."""
        n, improved_logits = self._improved(tree)
        visit_fraction = n / (1 + n.sum(-1, keepdim=True))
        improved_policy = improved_logits.softmax(-1)
        is_legal = improved_logits > -math.inf
        scores = torch.where(is_legal, improved_policy - visit_fraction, -math.inf)
        scores[:, 0] = self._root_scores(tree, n[:, 0], improved_logits[:, 0])
        return scores

    def _root_scores(self, tree: Tree, n: Tensor, improved_logits: Tensor) -> Tensor:
        """Returns noise + logit + sigma(q) of the actions that have as many visits as the plan says, else -inf."""
        is_legal = tree.logits[:, 0] > -math.inf
        num_legal = is_legal.sum(-1).clamp(max=self.considered)
        simulation = tree.size - 1
        planned_visits = self.plans[num_legal, simulation, None]
        return torch.where(n == planned_visits, self.noise + improved_logits, -math.inf)

    def policy(self, tree: Tree) -> Tensor:
        """Returns the improved policy at the root, [batch, actions]."""
        _, improved_logits = self._improved(tree)
        return improved_logits[:, 0].softmax(-1)

    def best(self, tree: Tree) -> Tensor:
        """Returns the action of the highest noise + logit + sigma(q) among those tried most often, [batch]."""
        visits, improved_logits = self._improved(tree)
        root_visits = visits[:, 0]
        tried_most = root_visits == root_visits.amax(-1, keepdim=True)
        score = torch.where(tried_most, self.noise + improved_logits[:, 0], -math.inf)
        return score.argmax(-1)

    def _improved(self, tree: Tree) -> tuple[Tensor, Tensor]:
        """Returns (visits, logits + sigma(completed q)) with sigma(q) = (c_visit + max n) c_scale q (eq. 8).

        An action not tried counts as the mean of the model's value and of the q that were tried (eq. 33).
        """
        n, q, value = tree.edges(self.bounds)
        logits = tree.logits[:, : tree.size]
        tried = n > 0
        sum_n = n.sum(-1)

        # v_mix = (value + sum n * sum_tried P q / sum_tried P) / (1 + sum n)
        prior = tree.prior[:, : tree.size] * tried
        prior_q = (prior * q).sum(-1)
        mean_q = prior_q / (prior.sum(-1) + torch.finfo(q.dtype).tiny)
        v_mix = (value + sum_n * mean_q) / (1 + sum_n)

        completed_q = torch.where(tried, q, v_mix[..., None])
        max_n = n.amax(-1, keepdim=True)
        sigma = (self.c_visit + max_n) * self.c_scale * completed_q
        return n, logits + sigma


@cache
def halving(considered: int, num_simulations: int) -> tuple[int, ...]:
    """Returns, for each simulation, the visits that the action it tries has had before (sequential halving).

    All actions considered are tried equally often, then the better half of them, down to two.
    """
    remaining = max(1, considered)
    num_rounds = max(1, math.ceil(math.log2(remaining)))
    visits = [0] * remaining
    plan: list[int] = []
    while len(plan) < num_simulations:
        tries = max(1, num_simulations // (num_rounds * remaining))
        for _ in range(tries):
            for action in range(remaining):
                plan.append(visits[action])
                visits[action] += 1
        remaining = max(min(2, considered), remaining // 2)
    return tuple(plan[:num_simulations])
