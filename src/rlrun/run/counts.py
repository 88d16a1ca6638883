"""How far a run is, in each unit of `trainer.period_unit`."""

from dataclasses import dataclass
from typing import Annotated

import pydantic

from rlrun.formats.numbers import LAST_STEP

Count = Annotated[int, pydantic.Field(ge=0, le=LAST_STEP)]  # snapshots may be untrusted


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run has done so far. The fields are the units of `trainer.period_unit`."""

    steps: Count = 0
    updates: Count = 0
    episodes: Count = 0

    def is_due(self, period: int, unit: str, before: "Counts") -> bool:
        """Returns whether a multiple of the period, in this unit, was reached after `before`.

        A period of 0 is never due.
        """
        return period > 0 and getattr(self, unit) // period > getattr(before, unit) // period
