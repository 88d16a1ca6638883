"""Lists the keys that a config has, with values and comments, from the YAML files alone.

`compose.py` gives the exact result, but Hydra takes longer to import than a user waits for a completion. Presets are
left out, because they set only keys that exist already.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlrun import dotted
from rlrun.config import sources
from rlrun.config.contents import Contents

CHOICE = r"[\w.-]+(?::\d+)?"
CHOICES = re.compile(rf"{CHOICE}(?: \| {CHOICE})+")  # at the start of a comment: `auto | cpu | cuda`


class Key(NamedTuple):
    """One setting."""

    value: Any
    choices: list[str]  # the values that it may have, or [] for any


def keys(chosen: Mapping[str, str], where: Sequence[Path]) -> dict[str, Key]:
    """Returns the settings by dotted key. chosen: names by group, such as {"algo": "sac", "algo.entropy": "fixed"}."""
    contents = Contents(where)
    files = [*contents.based("train", chosen)]
    if "submit" in chosen:  # a setting of the command, which is not in the config of a run
        files += contents.based(f"submit/{chosen['submit']}", chosen, "submit")
    found: dict[str, Key] = {}
    for file in files:
        meanings: Mapping[str, str] = {}
        if file.file is not None:
            meanings = sources.notes(file.file).meanings
        for name, value in dotted.leaves(file.values):
            key = f"{file.package}.{name}".lstrip(".")
            choices = _choices(value, meanings.get(name, ""))
            if not choices and key in found:  # a file that overrides the value may have a shorter comment
                choices = found[key].choices
            found[key] = Key(value, choices)
    return found


def _choices(value: object, comment: str) -> list[str]:
    if isinstance(value, bool):
        return ["true", "false"]
    listed = CHOICES.match(comment)
    if listed is None:
        return []
    return listed[0].split(" | ")
