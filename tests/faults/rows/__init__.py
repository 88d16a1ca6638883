"""The rows of the fault table, one kind of fault in each module. Each row runs in a separate process."""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    count: int | None = None  # maximum number of cases of a row; None: all
    seed: int = 0

    def random(self, name: str) -> random.Random:
        """Returns the random generator of one row."""
        return random.Random(f"{self.seed} {name}")


@dataclass
class Tally:
    """The result of a row."""

    cases: int = 0
    failures: list[str] = field(default_factory=list)
    note: str = ""

    def expect(self, truth: object, failure: str) -> bool:
        if not truth:
            self.failures.append(failure)
        return bool(truth)


def some(count: int | None, cases: list, rng: random.Random) -> list:
    """Returns all cases, or a sample of this size in their order."""
    if count is None or count >= len(cases):
        return cases
    return [cases[index] for index in sorted(rng.sample(range(len(cases)), count))]
