"""The batched search, compared on random models with a slow search that is easy to read, and on known games."""

import math
from dataclasses import dataclass, field
from itertools import product

import pytest
import torch
from torch import Tensor

from rlrun.functional.search import Gumbel, Node, Puct, Rule, Tree, halving, search

STATES, ACTIONS, BATCH = 40, 4, 25


class World:
    """A model in a table, so that both searches use exactly the same numbers."""

    def __init__(self, seed: int, players: int, masked: bool):
        draw = torch.Generator().manual_seed(seed)
        shape = (STATES, ACTIONS)
        self.next = torch.randint(STATES, shape, generator=draw)
        self.reward = torch.randn(shape, generator=draw, dtype=torch.float64)
        over = torch.rand(shape, generator=draw) < 0.15
        self.discount = torch.where(over, 0.0, 0.9 if players == 1 else -0.9).double()
        self.value = torch.randn(STATES, generator=draw, dtype=torch.float64)
        self.logits = torch.randn(shape, generator=draw, dtype=torch.float64)
        if masked:  # some actions illegal, never all
            illegal = torch.rand(shape, generator=draw) < 0.4
            illegal[:, 1] = False
            self.logits[illegal] = -math.inf

    def roots(self, draw: torch.Generator) -> Node:
        state = torch.randint(STATES, (BATCH,), generator=draw)
        none = torch.zeros(BATCH, dtype=torch.float64)
        return Node(state, none, none, self.logits[state], self.value[state])

    def __call__(self, state: Tensor, action: Tensor) -> Node:
        after = self.next[state, action]
        reward, discount = self.reward[state, action], self.discount[state, action]
        return Node(after, reward, discount, self.logits[after], self.value[after])


@dataclass
class Slow:
    """A node of the slow search."""

    state: int
    reward: float
    discount: float
    logits: list[float]
    guess: float
    parent: int | None
    action: int | None
    children: dict[int, int] = field(default_factory=dict)
    returns: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        return sum(self.returns) / len(self.returns)

    @property
    def prior(self) -> list[float]:
        return torch.tensor(self.logits, dtype=torch.float64).softmax(-1).tolist()


class SlowSearch:
    """Searches one tree, with loops over nodes and returns."""

    def __init__(self, world: World, root: int, simulations: int, bounds: tuple[float, float] | None):
        self.world, self.bounds = world, bounds
        self.nodes = [Slow(root, 0.0, 1.0, world.logits[root].tolist(), float(world.value[root]), None, None)]
        self.nodes[0].returns.append(self.nodes[0].guess)
        for simulation in range(simulations):
            node, depth = 0, 0
            while True:
                scores = self.scores(self.nodes[node], depth, simulation)
                action = max(scores, key=lambda a: scores[a])
                if action not in self.nodes[node].children:
                    break
                node, depth = self.nodes[node].children[action], depth + 1
            self.expand(node, action)

    def expand(self, parent: int, action: int) -> None:
        found = self.world(torch.tensor([self.nodes[parent].state]), torch.tensor([action]))
        state, reward, discount, value = (float(x) for x in (found.state, found.reward, found.discount, found.value))
        self.nodes[parent].children[action] = len(self.nodes)
        self.nodes.append(Slow(int(state), reward, discount, found.logits[0].tolist(), value, parent, action))
        at: int | None = len(self.nodes) - 1
        while at is not None:
            node = self.nodes[at]
            node.returns.append(value)
            value, at = node.reward + node.discount * value, node.parent

    def scale(self, value: float) -> float:
        every = [node.reward + node.discount * node.value for node in self.nodes]
        low, high = self.bounds or (min(every), max(every))
        return (value - low) / (high - low) if high > low else 0.0

    def edges(self, node: Slow) -> dict[int, tuple[int, float | None]]:
        """Returns a dict: legal action -> (visits, scaled q)."""
        found: dict[int, tuple[int, float | None]] = {}
        for action in range(ACTIONS):
            child = self.nodes[node.children[action]] if action in node.children else None
            if node.logits[action] > -math.inf:
                q = None if child is None else self.scale(child.reward + child.discount * child.value)
                found[action] = (len(child.returns) if child else 0, q)
        return found

    def scores(self, node: Slow, depth: int, simulation: int) -> dict[int, float]:
        raise NotImplementedError


class SlowPuct(SlowSearch):
    rule = Puct(c1=1.25, c2=50.0, unvisited=0.3, bounds=None)

    def scores(self, node: Slow, depth: int, simulation: int) -> dict[int, float]:
        n, rule = len(node.returns), self.rule
        c = rule.c1 + math.log((n + rule.c2 + 1) / rule.c2)
        return {
            action: (rule.unvisited if q is None else q) + node.prior[action] * math.sqrt(n) / (1 + visits) * c
            for action, (visits, q) in self.edges(node).items()
        }


class SlowGumbel(SlowSearch):
    def __init__(self, noise: list[float], simulations: int, *given: object):
        self.noise, self.simulations = noise, simulations
        super().__init__(*given)  # type: ignore[arg-type]

    def improved(self, node: Slow) -> tuple[dict[int, int], dict[int, float]]:
        """Returns visits, and logit + sigma(completed q), of legal actions."""
        edges = self.edges(node)
        tried = [action for action, (_, q) in edges.items() if q is not None]
        total = sum(visits for visits, _ in edges.values())
        mixed = self.scale(node.guess)
        if tried:
            mass = sum(node.prior[action] for action in tried)
            mixed += total * sum(node.prior[action] * edges[action][1] for action in tried) / mass  # type: ignore
            mixed /= 1 + total
        sigma = 5.0 + max(visits for visits, _ in edges.values())
        value = {a: node.logits[a] + sigma * 0.5 * (mixed if q is None else q) for a, (_, q) in edges.items()}
        return {action: visits for action, (visits, _) in edges.items()}, value

    def scores(self, node: Slow, depth: int, simulation: int) -> dict[int, float]:
        visits, value = self.improved(node)
        if depth == 0:
            due = halving(min(3, len(visits)), self.simulations)[simulation]
            return {a: self.noise[a] + value[a] if visits[a] == due else -math.inf for a in visits}
        most = max(value.values())
        mass = sum(math.exp(value[a] - most) for a in value)
        return {a: math.exp(value[a] - most) / mass - visits[a] / (1 + sum(visits.values())) for a in value}


def gumbel_rule(noise: Tensor, simulations: int, bounds: tuple[float, float] | None) -> Gumbel:
    return Gumbel(noise, simulations, considered=3, c_visit=5.0, c_scale=0.5, bounds=bounds)


PUCT = Puct(c1=1.25, c2=19652.0, unvisited=0.5, bounds=None)  # as in conf


def gumbel_of_conf(noise: Tensor, simulations: int, bounds: tuple[float, float] | None = None) -> Gumbel:
    return Gumbel(noise, simulations, considered=16, c_visit=50.0, c_scale=1.0, bounds=bounds)


CASES = list(product((1, 2), (False, True), (None, (-4.0, 4.0)), (1, 12, 40)))  # x 2 rules x 25 roots = 1200 trees


@pytest.mark.parametrize("players, masked, bounds, simulations", CASES)
@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_search_equals_the_slow_search_node_by_node(
    kind: str, players: int, masked: bool, bounds: tuple[float, float] | None, simulations: int
) -> None:
    seed = CASES.index((players, masked, bounds, simulations))
    world, draw = World(seed, players, masked), torch.Generator().manual_seed(seed)
    root = world.roots(draw)
    noise = -(-torch.rand(BATCH, ACTIONS, generator=draw, dtype=torch.float64).log()).log()
    puct = SlowPuct.rule._replace(bounds=bounds)
    rule: Rule = puct if kind == "puct" else gumbel_rule(noise, simulations, bounds)
    tree = search(world, root, rule, simulations)
    for row in range(BATCH):
        given = (world, int(root.state[row]), simulations, bounds)
        slow = SlowPuct(*given) if kind == "puct" else SlowGumbel(noise[row].tolist(), simulations, *given)
        assert_equal(tree, row, slow)


def assert_equal(tree: Tree, row: int, slow: SlowSearch) -> None:
    """Compares all nodes in the order in which simulations added them, so every simulation chose the same leaf."""
    for number, node in enumerate(slow.nodes):
        assert tree.state[row, number] == node.state
        assert tree.visits[row, number] == len(node.returns)
        assert float(tree.total[row, number] / tree.visits[row, number]) == pytest.approx(node.value, abs=1e-9)
        children = {action: child for action, child in enumerate(tree.child[row, number].tolist()) if child}
        assert children == node.children


def test_search_backs_up_returns_of_a_chain_by_hand() -> None:
    """With one action: three nodes in a chain, rewards 1, 2, 4, a predicted value of 10 everywhere, discount 0.5."""

    def chain(state: Tensor, action: Tensor) -> Node:
        one = torch.ones(1)
        return Node(state + 1, 2.0**state, 0.5 * one, torch.zeros(1, 1), 10 * one)

    root = Node(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.zeros(1, 1), torch.tensor([10.0]))
    tree = search(chain, root, PUCT, 3)
    assert tree.visits.tolist() == [[4, 3, 2, 1]]
    # of node 2: 10 and 4 + 5; of node 1: 10, 2 + 5, 2 + 4.5; of the root: 10, 1 + 5, 1 + 3.5, 1 + 3.25
    torch.testing.assert_close(tree.total, torch.tensor([[24.75, 23.5, 19.0, 10.0]]))
    assert tree.root_value.item() == 24.75 / 4


def test_search_with_two_players_counts_the_opponents_reward_as_a_loss() -> None:
    """Each player moves twice. The search must find that action 1 of the first player lets the opponent win."""
    reward = {(1, 0): 0.0, (1, 1): 0.0, (2, 0): 0.0, (2, 1): 1.0}

    def game(state: Tensor, action: Tensor) -> Node:
        end = state > 0
        gain = torch.tensor([reward.get((int(s), int(a)), 0.0) for s, a in zip(state, action, strict=True)])
        zero = torch.zeros(len(state))
        return Node(1 + action, gain, torch.where(end, 0.0, -1.0), torch.zeros(len(state), 2), zero)

    zero = torch.zeros(1)
    root = Node(torch.zeros(1, dtype=torch.int64), zero, zero, torch.zeros(1, 2), zero)
    for rule in (PUCT._replace(bounds=(-1.0, 1.0)), gumbel_of_conf(torch.zeros(1, 2), 32, (-1.0, 1.0))):
        tree = search(game, root, rule, 32)
        assert rule.best(tree).tolist() == [0]
        assert rule.policy(tree)[0, 0] > 0.5


def test_search_never_tries_illegal_actions() -> None:
    world = World(0, 1, masked=False)
    root = world.roots(torch.Generator().manual_seed(0))
    legal = torch.rand(BATCH, ACTIONS, generator=torch.Generator().manual_seed(1)) < 0.5
    legal[:, 2] = True
    root = root._replace(logits=root.logits.masked_fill(~legal, -math.inf))
    for rule in (PUCT, gumbel_of_conf(torch.zeros(BATCH, ACTIONS, dtype=torch.float64), 20)):
        tree = search(world, root, rule, 20)
        assert not tree.root_visits[~legal].any()
        assert (tree.root_visits.sum(-1) == 20).all()
        policy = rule.policy(tree)
        torch.testing.assert_close(policy.sum(-1), torch.ones(BATCH, dtype=torch.float64))
        assert not policy[~legal].any() and legal[torch.arange(BATCH), rule.best(tree)].all()


def test_halving_by_hand() -> None:
    """16 simulations for 4 actions: two rounds of 8, all four twice, then the better two four times each."""
    assert halving(4, 16) == (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5)
    assert halving(1, 3) == (0, 1, 2)
    assert halving(3, 4) == (0, 0, 0, 1)


def test_gumbel_improved_policy_by_hand() -> None:
    """Two actions with equal logits and values 1 and 0: after one visit each, sigma is (c_visit + 1) c_scale q."""

    def bandit(state: Tensor, action: Tensor) -> Node:
        zero = torch.zeros(len(state))
        return Node(state, 1.0 - action, zero, torch.zeros(len(state), 2), zero)

    zero = torch.zeros(1)
    rule = Gumbel(torch.zeros(1, 2), 2, considered=2, c_visit=1.0, c_scale=0.5, bounds=(0.0, 1.0))
    tree = search(bandit, Node(zero, zero, zero, torch.zeros(1, 2), zero), rule, 2)
    assert rule.policy(tree)[0, 0].item() == pytest.approx(1 / (1 + math.exp(-1.0)))
    assert rule.best(tree).tolist() == [0]
