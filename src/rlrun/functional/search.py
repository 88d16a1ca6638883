"""Monte Carlo tree search with a learned model, vectorised over a batch of trees.

Node 0 of every tree is its root; simulation i adds node i. A simulation has three steps. Each step takes a few tensor
operations on [batch, nodes, actions], without a loop over nodes or depth:

- descend: every node selects an action, and points to the child of this action, or to itself if there is none yet.
  Pointer doubling follows these pointers from the root to the leaf in log2(nodes) operations;
- expand: the model is called once, with one leaf and one action per tree;
- back up: the tree stores the discounted reward and the discount on the path from each ancestor to each node, so one
  operation adds the return of the new node to all of its ancestors.

The value of a transition is r + discount * V(next). In a two-player game with alternating moves the discount is
negative, since V is the value for the player to move (negamax). A discount of 0 ends an episode.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Node(NamedTuple):
    """Holds a model's output for a batch of states, and for the transitions that led to these states."""

    state: Tensor  # [batch, ...], the input of the next model call
    reward: Tensor  # [batch], of the transition
    discount: Tensor  # [batch], multiplies the return after the transition
    logits: Tensor  # [batch, actions]; -inf for illegal actions
    value: Tensor  # [batch], for the player to move


Model = Callable[[Tensor, Tensor], Node]  # (state [batch, ...], action [batch]) -> the next node
Bounds = Sequence[float] | None  # (minimum, maximum) of all values, or None if unknown


class Rule(Protocol):
    """Selects the action of each node that a simulation follows."""

    def scores(self, tree: "Tree") -> Tensor:
        """Returns scores [batch, nodes, actions]; every node selects the action with the highest score."""


class Tree:
    """Holds a batch of search trees, each with a root and up to `num_simulations` other nodes.

    All tensors but `rows` are [batch, nodes, ...], allocated for the final number of nodes.
    """

    def __init__(self, root: Node, num_simulations: int):
        batch, num_actions = root.logits.shape
        nodes = num_simulations + 1
        zeros = root.value.new_zeros
        self.size = 0  # number of nodes added so far
        self.rows = torch.arange(batch, device=root.value.device)  # [batch], the index of each tree
        self.state = root.state.new_zeros(batch, nodes, *root.state.shape[1:])
        self.logits = zeros(batch, nodes, num_actions)
        self.prior = zeros(batch, nodes, num_actions)
        self.value = zeros(batch, nodes)  # as the model predicted it
        self.reward = zeros(batch, nodes)
        self.discount = zeros(batch, nodes)
        self.visits = zeros(batch, nodes)
        self.total = zeros(batch, nodes)  # sum of the returns backed up to the node, one for each visit
        self.child = self.rows.new_zeros(batch, nodes, num_actions)  # 0 if the action has no child
        # is_ancestor [batch, node, other]: 1 if `other` is the node itself or one of its ancestors, else 0.
        # path_reward, path_discount [batch, node, other]: if `other` is such an ancestor, the sum of discounted rewards
        # and the product of discounts on the path from `other` to the node; else 0
        self.is_ancestor = zeros(batch, nodes, nodes)
        self.path_reward = zeros(batch, nodes, nodes)
        self.path_discount = zeros(batch, nodes, nodes)

        no_reward = zeros(batch)
        no_discount = zeros(batch) + 1
        no_ancestors = zeros(batch, nodes)
        self._add(
            root._replace(reward=no_reward, discount=no_discount),
            is_ancestor=no_ancestors.clone(),
            path_reward=no_ancestors.clone(),
            path_discount=no_ancestors.clone(),
        )

    def descend(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Follows the highest scores [batch, nodes, actions] from the root, until the selected action has no child.

        Returns (leaf, action), each [batch].
        """
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
        """Adds `node` as the child of `leaf` under `action`, and backs up its return to all of its ancestors."""
        self.child[self.rows, leaf, action] = leaf.new_full((), self.size)
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
        """Adds a node to every tree, with one visit and one return for the node itself and each of its ancestors.

        is_ancestor [batch, nodes]: 1 for the ancestors of the node.
        path_reward, path_discount [batch, nodes]: the sum of discounted rewards and the product of discounts on the
        path from each ancestor to the node; 0 for all other nodes.
        """
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
        """Returns (visits, q, value): the visit count and the Q-value of every action of every node, each
        [batch, nodes, actions] and 0 for actions without a child, and the model's value of every node, [batch, nodes].

        The Q-value of an action is r + discount * V, where V is the mean return of the child. q and value are
        normalised as (x - low) / (high - low). (low, high) are the bounds, if given; otherwise they are the minimum and
        maximum of the Q-values in each tree, including the root's mean return.
        """
        size = self.size
        child = self.child[:, :size]
        visits = self.visits[:, :size]
        discounted_total = self.discount[:, :size] * self.total[:, :size]
        q = self.reward[:, :size] + discounted_total / visits
        if bounds is None:
            low: Tensor | float = q.amin(1, keepdim=True)
            high: Tensor | float = q.amax(1, keepdim=True)
        else:
            low, high = bounds
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
        """Returns the visit count of each action at the root, [batch, actions]."""
        child = self.child[:, 0]
        return self.visits.gather(1, child) * (child > 0)

    @property
    def root_value(self) -> Tensor:
        """Returns the mean over the returns of all simulations and the model's value of the root, [batch]."""
        return self.total[:, 0] / self.visits[:, 0]


def search(
    model: Model,
    root: Node,
    rule: Rule,
    num_simulations: int,
) -> Tree:
    """Runs `num_simulations` simulations from each root and returns the trees.

    The search samples no random numbers: exploration noise is part of `root` or `rule`.
    """
    tree = Tree(root, num_simulations)
    for _ in range(num_simulations):
        scores = rule.scores(tree)
        leaf, action = tree.descend(scores)
        leaf_state = tree.state[tree.rows, leaf]
        node = model(leaf_state, action)
        tree.grow(leaf, action, node)
    return tree


def with_dirichlet_noise(
    logits: Tensor,
    noise: Tensor,
    fraction: float,
) -> Tensor:
    """Returns the logits of (1 - fraction) * policy + fraction * Dirichlet noise, [batch, actions].

    noise [batch, actions]: samples of a Gamma distribution; divided by their sum, they are a Dirichlet sample. Illegal
    actions get no noise.
    """
    is_legal = logits > -math.inf
    noise = noise * is_legal
    policy = logits.softmax(-1)
    dirichlet = noise / noise.sum(-1, keepdim=True)
    return torch.lerp(policy, dirichlet, fraction).log()


class Puct(NamedTuple):
    """Selects actions by PUCT, an upper confidence bound weighted by the prior (MuZero, arXiv 1911.08265, eq. 2)."""

    c1: float
    c2: float
    unvisited: float  # normalised q of an action without visits
    bounds: Bounds

    def scores(self, tree: Tree) -> Tensor:
        """Returns q + P sqrt(N) / (1 + n) (c1 + log((N + c2 + 1) / c2)), or -inf for illegal actions.

        P is the policy prior; N and n are the visit counts of the node and of its child. The paper's equation has the
        sum of n in place of N. N is one more, because a node is visited once before its children.
        """
        n, q, _ = tree.edges(self.bounds)
        prior = tree.prior[:, : tree.size]
        N = tree.visits[:, : tree.size, None]
        growth = ((N + self.c2 + 1) / self.c2).log()
        weight = N.sqrt() * (self.c1 + growth)
        q = torch.where(n > 0, q, self.unvisited)
        score = q + prior * weight / (1 + n)
        return torch.where(prior > 0, score, -math.inf)

    def policy(self, tree: Tree) -> Tensor:
        """Returns the visit counts at the root divided by their sum, [batch, actions]."""
        visits = tree.root_visits
        return visits / visits.sum(-1, keepdim=True)

    def best(self, tree: Tree) -> Tensor:
        """Returns the action with the most visits at the root, [batch]; ties go to the action with the highest q."""
        root_visits = tree.root_visits
        _, q, _ = tree.edges(self.bounds)
        tie_break = q[:, 0].clamp(0, 1) / 2
        score = torch.where(root_visits > 0, root_visits + tie_break, -1.0)
        return score.argmax(-1)


class Gumbel:
    """Selects actions as Gumbel MuZero does, which improves the policy with any number of simulations (Danihelka et
    al., ICLR 2022).

    At the root, `noise` samples actions without replacement, and sequential halving divides the simulations among
    them. At all other nodes, actions are selected so that the visit counts approach the improved policy
    softmax(logits + sigma(q)).
    """

    def __init__(
        self,
        noise: Tensor,  # [batch, actions], samples of Gumbel(0, 1), or zeros for no exploration
        num_simulations: int,
        considered: int,  # maximum number of actions tried at the root
        c_visit: float,
        c_scale: float,
        bounds: Bounds,
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
        # [considered + 1, simulations]: row i is the plan for i legal actions
        self.plans = torch.tensor(plans, device=noise.device)

    def scores(self, tree: Tree) -> Tensor:
        """Returns pi'(a) - n(a) / (1 + sum n) (eq. 14) with the improved policy pi'; at the root, the scores of
        sequential halving."""
        n, improved_logits = self._improved(tree)
        visit_fraction = n / (1 + n.sum(-1, keepdim=True))
        improved_policy = improved_logits.softmax(-1)
        is_legal = improved_logits > -math.inf
        scores = torch.where(is_legal, improved_policy - visit_fraction, -math.inf)
        scores[:, 0] = self._root_scores(tree, n[:, 0], improved_logits[:, 0])
        return scores

    def _root_scores(self, tree: Tree, n: Tensor, improved_logits: Tensor) -> Tensor:
        """Returns noise + logit + sigma(q) for actions whose visit count equals the planned count, -inf for others."""
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
        """Returns the action with the highest noise + logit + sigma(q) among the most visited actions, [batch]."""
        visits, improved_logits = self._improved(tree)
        root_visits = visits[:, 0]
        tried_most = root_visits == root_visits.amax(-1, keepdim=True)
        score = torch.where(tried_most, self.noise + improved_logits[:, 0], -math.inf)
        return score.argmax(-1)

    def _improved(self, tree: Tree) -> tuple[Tensor, Tensor]:
        """Returns (visits, logits + sigma(completed q)) with sigma(q) = (c_visit + max n) c_scale q (eq. 8).

        The completed q of an untried action is v_mix, a weighted mean of the model's value and the q of the tried
        actions (eq. 33).
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
    """Returns the plan of sequential halving: for each simulation, how many visits the action to try next must have.

    All considered actions are tried equally often, then the better half of them, and so on until two remain. The plan
    names visit counts and not actions, because the better half is found only during the search.
    """
    remaining = max(1, considered)
    num_rounds = max(1, math.ceil(math.log2(remaining)))
    visits = [0] * remaining  # of the actions by rank, the best first
    plan: list[int] = []
    while len(plan) < num_simulations:
        tries = max(1, num_simulations // (num_rounds * remaining))
        for _ in range(tries):
            for rank in range(remaining):
                plan.append(visits[rank])
                visits[rank] += 1
        remaining = max(min(2, considered), remaining // 2)
    return tuple(plan[:num_simulations])
