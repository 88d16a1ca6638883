"""The importance of each searched key: the fraction of the differences between trials that it explains.

Trials with similar values of a key form a group, and the ranks of their scores are compared between groups, as in the
test of Kruskal and Wallis (1952). What groups by two keys explain beyond the two keys alone is their interaction.
Whether a key explains more than chance is tested by permutations of the scores, with Bonferroni's correction for the
number of keys, because among many keys without influence one always looks important.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rlrun.report.statistics import Array
from rlrun.sweep.ranges import Choice
from rlrun.sweep.space import Dimension
from rlrun.sweep.trials import Trial, Trials

Flags = NDArray[np.bool_]
Groups = NDArray[np.intp]

LEVEL = 0.01  # probability that any key exceeds its threshold although none has an influence
DRAWS = 1000  # permutations of the scores
FEWEST = 20  # minimum number of trials that have a key; keys of fewer trials are not tested
MOST = 500  # trials that are compared; of more trials, every n-th is taken
BLOCK = 10  # successive trials that a learning search has proposed from about the same scores
GROUP = 6  # minimum number of trials in a group, on average
GROUPS = 8  # maximum number of groups by one key
GROUPS_OF_PAIR = 3  # maximum number of groups by each key of a pair


@dataclass(frozen=True)
class KeyValues:
    """The values of one key in all trials."""

    positions: Array  # [trials] in the unit interval, NaN if the trial does not have the key
    is_ordered: bool

    @property
    def has(self) -> Flags:
        """Which trials have the key, [trials]."""
        return np.isfinite(self.positions)

    def groups(self, chosen: Flags, most: int) -> Groups:
        """Returns the number of the group of each chosen trial. Trials with equal values are in the same group.

        most: number of groups by ordered values; choices are a group each.
        """
        positions = self.positions[chosen]
        if not self.is_ordered:
            return np.unique(positions, return_inverse=True)[1]
        edges = np.quantile(positions, np.linspace(0, 1, most + 1)[1:-1])
        return np.digitize(positions, edges).astype(np.intp)


def importances(
    dimensions: Sequence[Dimension], trials: Trials, learns: bool = False
) -> dict[str, tuple[float, float]]:
    """Returns the importance of each key, and the threshold that it exceeds by chance with probability `LEVEL` / keys.
    The most important key comes first.

    Trials are compared at the first rung, which all have in common; those that failed are the worst. The importance is
    the fraction of the variance of the ranks that the key explains alone, plus its largest interaction. Keys that fewer
    than `FEWEST` trials have are left out.

    learns: whether the search learns from scores. Its later trials are better, and close to each other in all keys, so
    that a key without influence seems to have one; therefore ranks are centred and permuted within blocks.
    """
    scored: list[tuple[Trial, float]] = []
    for trial in trials.trials:
        score = trial.score(0)
        if score is not None:
            scored.append((trial, score))
    scored = scored[:: max(1, math.ceil(len(scored) / MOST))]
    columns: dict[str, KeyValues] = {}
    for dimension in dimensions:
        values = [trial.values.get(dimension.key) for trial, _ in scored]
        positions = [np.nan if value is None else dimension.range.position(value) for value in values]
        column = KeyValues(np.array(positions, float), not isinstance(dimension.range, Choice))
        if column.has.sum() >= FEWEST:
            columns[dimension.key] = column
    if not columns:
        return {}
    blocks = 1
    if learns:
        blocks = max(1, len(scored) // BLOCK)
    rng = np.random.default_rng(0)
    parts = np.array_split(ranked([score for _, score in scored]), blocks)
    ranks = np.vstack([permutations(part, rng) for part in parts])
    largest = dict.fromkeys(columns, np.zeros(DRAWS + 1))  # largest interaction of each key
    for key, other in combinations(columns, 2):
        shared = interaction(ranks, columns[key], columns[other])
        largest[key] = np.maximum(largest[key], shared)
        largest[other] = np.maximum(largest[other], shared)
    found = {}
    for key, column in columns.items():
        group = column.groups(column.has, min(GROUPS, int(column.has.sum()) // GROUP))
        importance = np.clip(explained(ranks[column.has], group) + largest[key], 0, 1)
        by_chance = importance[1:]
        found[key] = float(importance[0]), float(np.quantile(by_chance, 1 - LEVEL / len(columns)))
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def ranked(scores: Sequence[float]) -> Array:
    """Returns the ranks of scores, from 0.5 for the lowest; equal scores get their mean rank."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[place]


def permutations(ranks: Array, rng: np.random.Generator) -> Array:
    """Returns the ranks without their mean in column 0, and permutations of them in the others, [trials, 1 + DRAWS]."""
    drawn = rng.permuted(np.tile(ranks, (DRAWS, 1)), axis=1)
    return np.vstack([ranks, drawn]).T - ranks.mean()


def interaction(ranks: Array, one: KeyValues, other: KeyValues) -> Array:
    """Returns what groups by two keys explain beyond the groups by each of them, at least 0. ranks: see `explained`."""
    both = one.has & other.has
    most = min(GROUPS_OF_PAIR, int((both.sum() / GROUP) ** 0.5))
    if most < 2:
        return np.zeros(ranks.shape[1])
    ranks = ranks[both]
    first = one.groups(both, most)
    second = other.groups(both, most)
    alone = explained(ranks, first).clip(0) + explained(ranks, second).clip(0)
    return (explained(ranks, first * len(ranks) + second) - alone).clip(0)


def explained(ranks: Array, group: Groups) -> Array:
    """Returns the fraction of the variance that groups explain, adjusted for their number: 0 on average by chance.

    ranks: [trials, columns]; each column is one permutation, and has one result. group: the group of each trial.
    """
    _, place, sizes = np.unique(group, return_inverse=True, return_counts=True)
    freedom = len(group) - len(sizes)
    if freedom < len(sizes):  # too many groups
        return np.zeros(ranks.shape[1])
    sums = (place == np.arange(len(sizes))[:, None]).astype(float) @ ranks  # sum of each group, [groups, columns]
    centre = sums.sum(0) ** 2 / len(group)
    between = (sums**2 / sizes[:, None]).sum(0) - centre
    total = np.maximum(np.einsum("td,td->d", ranks, ranks) - centre, 1e-9)
    return 1 - (1 - between / total) * (len(group) - 1) / freedom
