"""The returns that algorithms have reached, for `rlrun list`: a summary of the evaluations in docs/learning.

`./scripts/learning` writes the summary, learning_results.json.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_suffix(".json")
DATA = re.compile(r"algo\.loop\.data=\[?([^\s\]]+)")  # in the settings of a run
SHOWN = 2  # number of environments that are shown for an algorithm


class LearningResult(NamedTuple):
    """The result of training one algorithm in one environment."""

    env: str
    final: str  # interquartile mean of the last evaluations of all seeds
    steps: int
    seeds: int
    settings: str  # settings besides those of the preset, as typed; may be empty

    @property
    def data(self) -> str:
        """The data sets from which it learned, in brackets, because a mixture limits the return; "" without data."""
        named = DATA.search(self.settings)
        if named is None:
            return ""
        return f" (from {named[1].replace(',', ' and ')})"

    def __str__(self) -> str:
        text = f"{self.final} after {self.steps:,} steps, {self.seeds} seed{'s' * (self.seeds > 1)}"
        if self.settings:
            text += ", with settings of docs/learning.md"
        return text


@cache
def results() -> Mapping[str, list[LearningResult]]:
    """Returns the results of each algorithm, those of the longest runs first."""
    runs = json.loads(FILE.read_text())["runs"]
    found = {algo: [LearningResult(**one) for one in results] for algo, results in runs.items()}
    return {algo: sorted(results, key=lambda one: -one.steps) for algo, results in found.items()}


def of_preset(name: str) -> str:
    """Returns as text what the preset `<algo>-<env>` reached in stored runs, or else according to a page of docs/, or
    "not measured"."""
    algo, _, env = name.partition("-")
    for result in results().get(algo, ()):
        if result.env == env:
            return str(result)
    elsewhere: dict[str, str] = json.loads(FILE.read_text())["presets"]
    return elsewhere.get(name, "not measured")


def of_algorithm(name: str) -> str:
    """Returns as text what an algorithm reached in its longest runs, or without stored runs, how it was tested."""
    found = results().get(name, [])
    if found:
        shown = [f"{result.env} {result.final}{result.data}" for result in found[:SHOWN]]
        if len(found) > SHOWN:
            shown.append(f"{len(found) - SHOWN} more")
        return ", ".join(shown)
    if name in json.loads(FILE.read_text())["tests"]:
        return "in a test"
    return "contract only"
