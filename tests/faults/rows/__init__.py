"""The rows of the fault table, one idea in each module. A row is tried in a process of its own."""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    count: int | None = None  # cases of a row at most; None: its long form
    seed: int = 0

    def random(self, name: str) -> random.Random:
        """Random numbers of one row."""
        return random.Random(f"{self.seed} {name}")


@dataclass
class Tally:
    """What a row found."""

    cases: int = 0
    failures: list[str] = field(default_factory=list)
    note: str = ""

    def expect(self, truth: object, failure: str) -> bool:
        if not truth:
            self.failures.append(failure)
        return bool(truth)


def some(count: int | None, cases: list, rng: random.Random) -> list:
    """All cases, or so many of them in their order."""
    if count is None or count >= len(cases):
        return cases
    return [cases[index] for index in sorted(rng.sample(range(len(cases)), count))]
