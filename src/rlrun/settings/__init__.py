"""The language of settings: what a Config is, the types of its fields, and the names of registered parts."""

from rlrun.settings.configs import config, parse
from rlrun.settings.discount import Discounted, NStepReturns
from rlrun.settings.marks import Part, Scheduled, ScheduledValue, is_schedule, number_fault, parts_of, scheduled_of
from rlrun.settings.registry import register
from rlrun.settings.requirements import Around, Requires
from rlrun.settings.types import (
    Episodes,
    Fraction,
    Int,
    IntRange,
    NonNegativeFloat,
    NonNegativeInt,
    NonNegativePerDimension,
    OpenFraction,
    PerDimension,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Range,
    Size,
    Units,
)

__all__ = [
    "Around",
    "Discounted",
    "Episodes",
    "Fraction",
    "Int",
    "IntRange",
    "NStepReturns",
    "NonNegativeFloat",
    "NonNegativeInt",
    "NonNegativePerDimension",
    "OpenFraction",
    "Part",
    "PerDimension",
    "PositiveFloat",
    "PositiveFraction",
    "PositiveInt",
    "Range",
    "Requires",
    "Scheduled",
    "ScheduledValue",
    "Size",
    "Units",
    "config",
    "is_schedule",
    "number_fault",
    "parse",
    "parts_of",
    "register",
    "scheduled_of",
]
