"""A sweep on disk: runs/sweeps/<name>/ with sweep.yaml, journal.jsonl, best.yaml and trials/, whose runs are ordinary.

sweep.yaml      settings, the space, and the words that all runs of an environment share
journal.jsonl   every decision and every result
trials/         a folder and a log for each run: <trial>-<env>-s<seed>
best.yaml       the settings of the winner, as a preset; best-<env>.yaml if there are several environments
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun import dotted, files
from rlrun.config.stored import SWEEP, parse_yaml, to_yaml
from rlrun.errors import ConfigError
from rlrun.rundir import RUNS
from rlrun.snapshot.atomic import replace_text
from rlrun.sweep.settings import FREE, SweepConfig
from rlrun.sweep.space import IF, Space

if TYPE_CHECKING:
    from rlrun.sweep.runs import RunTemplate  # imports Hydra

SWEEPS = RUNS / "sweeps"
TRIALS, BEST = "trials", "best.yaml"
LONGEST_NAME = 200  # bytes; file systems allow 255
FORMAT = 1
SECTIONS = "must have the sections sweep, space and runs"


@dataclass(frozen=True)
class Description:
    """The content of sweep.yaml."""

    sweep: dict[str, Any]  # the settings
    space: dict[str, Any]  # in the form of conf/space
    # environment -> {"words": the settings that its runs share, "steps": the step of each rung}
    runs: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, cfg: SweepConfig, space: Space, templates: "Mapping[str, RunTemplate]") -> "Description":
        entries = {}
        for dimension in space.dimensions:
            entry: dict[str, object] = {dimension.range.name: dimension.range.arguments}
            if dimension.condition:
                entry[IF] = dict(dimension.condition)
            entries[dimension.key] = entry
        runs = {env: {"words": list(one.words), "steps": list(one.rung_steps)} for env, one in templates.items()}
        return cls(asdict(cfg), entries, runs)

    @property
    def envs(self) -> list[str]:
        return list(self.runs)

    @property
    def last_rung(self) -> int:
        return max(len(one["steps"]) for one in self.runs.values()) - 1


def begin(folder: Path, description: Description) -> None:
    """Writes sweep.yaml. Raises ConfigError if the folder holds another sweep, or files of another kind."""
    if (folder / SWEEP).exists():
        stored = read(folder)
        difference = _difference(stored, description)
        if difference:
            raise ConfigError(f"{folder} holds another sweep: {difference}; choose another folder with name=...")
        if stored == description:
            return
    elif any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise ConfigError(f"{folder}: holds other files; choose another folder with name=...")
    # sweep.yaml first, because it marks the folder as that of this sweep
    replace_text(folder / SWEEP, to_yaml({"format": FORMAT, **asdict(description)}))
    (folder / TRIALS).mkdir(exist_ok=True)


def read(folder: Path) -> Description:
    """Returns the content of sweep.yaml. Raises ConfigError if the file is missing or invalid, or if there are links,
    pipes or devices anywhere in the folder."""
    files.check_folder(folder)
    path = folder / SWEEP
    try:
        text = files.read(path, files.CONFIG_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{folder}: not a sweep (it has no readable {SWEEP})") from None
    if (folder / TRIALS).is_file():
        raise ConfigError(f"{folder}: not a sweep ({TRIALS} is a file)")
    values = parse_yaml(text, path)
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise ConfigError(f"{path}: must have format: {FORMAT}")
    try:
        found = Description(**values)
    except TypeError:
        raise ConfigError(f"{path}: {SECTIONS}") from None
    if not all(isinstance(value, dict) for value in (found.sweep, found.space, found.runs)):
        raise ConfigError(f"{path}: {SECTIONS}")
    if not found.runs or not all(map(_is_template, found.runs.values())):
        raise ConfigError(f"{path}: each of runs must have the lists words and steps")
    for env in found.runs:
        if not (isinstance(env, str) and env.isprintable() and len(env.encode()) <= LONGEST_NAME):
            raise ConfigError(f"{path}: each of runs must have the name of an environment")
    return found


def _is_template(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("words"), list) and isinstance(value.get("steps"), list)


def _difference(stored: Description, now: Description) -> str:
    """Returns a text with the first entry in which two descriptions differ, or "". Settings of `FREE` may differ."""
    for before, after in ((stored.sweep, now.sweep), (stored.space, now.space), (stored.runs, now.runs)):
        for key in dict.fromkeys([*before, *after]):
            if key not in FREE and before.get(key) != after.get(key):
                return f"{key} {_shown(before.get(key))} -> {_shown(after.get(key))}"
    return ""


def _shown(value: object) -> str:
    if isinstance(value, dict) and "words" in value:
        return " ".join(value["words"])
    return dotted.show(value)
