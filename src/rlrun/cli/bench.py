"""Implements `rlrun bench`, which measures how fast the pieces of rlrun are on this machine."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rlrun.cli import settings
from rlrun.errors import ConfigError, nearest

RULES = {
    "repeats": settings.COUNT,
    "seconds": settings.ValueRule(
        "a number above 0", lambda value: isinstance(value, int | float) and 0 < value < float("inf")
    ),
    "results": settings.PATH,
}
TAKES_RUNS = False


def bench(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    from rlrun.bench import pieces
    from rlrun.bench.measure import interleaved, measure

    if "--help" in words or "-h" in words:
        print(HELP.format(parts=", ".join(pieces.PARTS)))
        return 0
    places, given = settings.read(words, RULES)
    part, *names = places or [""]
    if part and part not in pieces.PARTS:
        raise ConfigError(f"{part}: unknown piece{nearest(part, pieces.PARTS)} (there are: {', '.join(pieces.PARTS)})")
    if names and (part != "update" or not set(names) <= set(pieces.RUNS)):
        raise ConfigError(f"{' '.join(names)}: only update takes names, of {', '.join(pieces.RUNS)}")
    results = None
    if "results" in given:
        results = Path(given["results"])
    chosen = list(pieces.PARTS)
    if part:
        chosen = [part]
    for each in chosen:
        works = pieces.timers(each, names, given.get("seconds", 0.2))
        measure("micro", partial(interleaved, works, given.get("repeats", 5)), "", results)
    return 0


HELP = """\
usage: rlrun bench [PART] [ALGO ...] [repeats=5] [seconds=0.2] [results=FILE]

Measures the microseconds per call of these pieces: {parts}.
PART selects one of them. `simulators` measures how many steps 4,096 environments take per second of wall time and of
CPU time, in torch and in Gymnasium's vector environments.
Repeats of different pieces are interleaved. The output shows median and range, and how fast the machine was during the
measurement; if its speed changed, do not use the figures. `rlrun bench update sac ppo` measures the updates of some
algorithms only.

  repeats=5     number of measurements of each piece
  seconds=0.2   duration of each measurement
  results=FILE  append the figures to this file, one JSON object per line"""
