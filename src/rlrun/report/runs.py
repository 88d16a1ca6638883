"""Reads runs from untrusted folders. Damaged files are left out and listed in `faults`."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlrun import files
from rlrun.config.resumable import setting
from rlrun.config.stored import CONFIG, OVERRIDES, not_a_run, parse_json, read_stored, read_words
from rlrun.dotted import ABSENT, lookup
from rlrun.errors import ConfigError
from rlrun.formats.numbers import LAST_STEP, is_number, is_whole
from rlrun.lock import LOCK, holder
from rlrun.rundir import LISTING, METRICS
from rlrun.telemetry.metrics import MetricKeys, Row, last_step, read_rows

RUN_FILES = (CONFIG, OVERRIDES, METRICS, LOCK)  # a folder with one of these files is a run, or a run that never began
SWEEPS = "sweeps"  # folder below runs/ that holds sweeps; it is no fault if it holds no run
MOST_LEVELS = 32  # of folders in which runs are looked for

RUNNING, DONE, RESUMABLE, SHARED, DEAD = "running", "done", "resumable", "shared", "dead"


@dataclass(frozen=True)
class StoredRun:
    """A run on disk."""

    path: Path
    config: dict[str, Any]
    typed: dict[str, str]  # settings as the user typed them: algo, env, ...
    meta: dict[str, Any]
    summary: dict[str, Any]
    rows: list[Row]  # log rows, finite numbers only, steps ascending
    faults: list[str]  # a line for each file or part that could not be read

    @property
    def algo(self) -> str:
        """The algorithm as the user typed it, such as `double_dqn`, whose agent is registered as `dqn`."""
        return self.typed.get("algo") or str(self.config["algo"]["name"])

    @property
    def env(self) -> str:
        """The id of the environment, even if the user typed an alias."""
        return str(self.config["env"]["id"])

    def has(self, word: str) -> bool | None:
        """Returns whether a setting such as `algo.gamma=0.9` has this value, or None if the run has no such key.

        A group has the name that the user typed, or else that of its section; `env` may also be the id.
        """
        key, expected = setting(word)
        found = lookup(key, self.config)
        if isinstance(found, dict) and key in self.typed:
            return expected in (self.typed[key], found.get("id"))
        if isinstance(found, dict):
            found = found.get("name", found.get("id", found))
        if found is ABSENT:
            return None
        return bool(found == expected)

    @property
    def seed(self) -> object:
        """The seed of the run."""
        return self.config.get("seed")

    @property
    def total_steps(self) -> int:
        """The step at which the run ends, estimated if it ends after a number of updates."""
        trainer = self.config["trainer"]
        latest: dict[str, float] = {}
        if self.rows:
            latest = self.rows[-1]
        return last_step(trainer["total_steps"], trainer.get("total_updates"), latest)

    @property
    def step(self) -> int:
        """The step of the last log row; 0 without rows."""
        if not self.rows:
            return 0
        return int(self.rows[-1]["step"])

    @property
    def host(self) -> str:
        """The host on which the run was last started or resumed."""
        host = self.meta.get("host", "")
        resumed = self.meta.get("resumed")
        if isinstance(resumed, list) and resumed and isinstance(resumed[-1], dict):
            host = resumed[-1].get("host", host)
        return str(host)

    @cached_property
    def state(self) -> str:
        """The first of these that is true.

        `running`: a process holds the run's lock. `done`. `shared`: it came from a hub and holds weights alone.
        `resumable`: it has a snapshot. `dead`.
        """
        if holder(self.path):
            return RUNNING
        if self.summary.get("status") == DONE:
            return DONE
        if (self.path / LISTING).exists():
            return SHARED
        if any((self.path / "snapshots" / name).exists() for name in ("LATEST", "best")):
            return RESUMABLE
        return DEAD

    def last(self, key: str) -> float | None:
        """Returns the last value of a metric, or None if there is none."""
        for row in reversed(self.rows):
            if key in row:
                return row[key]
        return None

    def most(self, key: str) -> float | None:
        """Returns the largest value of a metric, or None if there is none."""
        return max((row[key] for row in self.rows if key in row), default=None)


@dataclass(frozen=True)
class Skipped:
    """A folder that was not read as a run."""

    path: Path
    reason: str


def read(places: Iterable[Path]) -> tuple[list[StoredRun], list[Skipped]]:
    """Returns every run at or below `places`, once each, and the folders that hold no run or cannot be read."""
    runs: list[StoredRun] = []
    skipped: list[Skipped] = []
    seen: set[Path] = set()
    for place in places:
        for path, reason in find(place):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                if reason:
                    raise ConfigError(reason)
                runs.append(_read_run(path))
            except ConfigError as error:
                skipped.append(Skipped(path, error.faults[0].removeprefix(f"{path}: ").removeprefix(f"{path}/")))
    return runs, skipped


def newest(place: Path) -> Path | None:
    """Returns the run at or below a folder that was written last, or None if there is none."""
    times: dict[Path, float] = {}
    for path, reason in find(place):
        if reason:
            continue
        for name in (CONFIG, METRICS):
            with contextlib.suppress(OSError):
                times[path] = (path / name).stat().st_mtime
    return max(times, key=lambda path: times[path], default=None)


def find(place: Path, levels: int = MOST_LEVELS) -> Iterator[tuple[Path, str]]:
    """Yields folders of runs, each with "", and folders that hold no run, each with the reason.

    levels: how far below `place` runs are looked for.
    """
    if levels < 0:
        yield place, f"cannot be read (more than {MOST_LEVELS} levels of folders)"
        return
    inside: list[Path] = []
    try:
        if place.is_dir():
            inside = sorted(place.iterdir())
    except OSError as error:
        yield place, f"cannot be read ({error.strerror})"
        return
    if any(entry.name in RUN_FILES for entry in inside):
        yield place, ""
        return
    found: list[tuple[Path, str]] = []
    for entry in inside:
        if entry.is_dir() and not entry.is_symlink() and entry.name[0] != ".":
            found += find(entry, levels - 1)
    if any(not reason for _, reason in found):
        yield from found
    elif not place.is_dir():
        yield place, "no such folder"
    elif place.name != SWEEPS:
        yield place, _nothing(inside)


def _nothing(inside: Sequence[Path]) -> str:
    """Returns the reason why a folder holds no run."""
    if not inside:
        return "an empty folder"
    if any(entry.is_symlink() and entry.is_dir() for entry in inside):
        return "holds no run; links in it are not followed, name them instead"
    return "holds no run"


def _read_run(path: Path) -> StoredRun:
    """Reads a run, with a line in `faults` for each damaged file or part.
    Raises ConfigError if the config is missing or damaged, or if metrics.jsonl exceeds a limit of `files`.
    """
    if not (path / CONFIG).is_file():
        raise ConfigError(not_a_run(path))
    files.check_folder(path)
    stored = read_stored(path / CONFIG)
    config = stored.values
    check_config(config)
    keys = MetricKeys(stored.metrics_format, config["algo"]["name"])
    faults: list[str] = []
    return StoredRun(
        path=path,
        config=config,
        typed=_typed(path / OVERRIDES),
        meta=_small(path / "meta.json", faults),
        summary=_small(path / "summary.json", faults),
        rows=_rows(path / METRICS, keys, faults),
        faults=faults,
    )


def check_config(config: dict[str, Any]) -> None:
    """Raises ConfigError if the config lacks a value that reports need."""
    for section, key, kind in (("algo", "name", str), ("env", "id", str), ("trainer", "total_steps", int)):
        part = config.get(section)
        if not isinstance(part, dict) or not isinstance(part.get(key), kind):
            raise ConfigError(f"not a run of rlrun ({CONFIG} has no {section}.{key})")
    if not is_whole(config["trainer"]["total_steps"], 0, LAST_STEP):
        raise ConfigError(f"not a run of rlrun (trainer.total_steps in {CONFIG} is not a number of steps)")
    updates = config["trainer"].get("total_updates")
    if updates is not None and not is_whole(updates, 1, LAST_STEP):
        raise ConfigError(f"not a run of rlrun (trainer.total_updates in {CONFIG} is not a number of updates)")


def _rows(path: Path, keys: MetricKeys, faults: list[str]) -> list[Row]:
    """Returns the log rows of a metrics file with the current keys, one for each step.

    Adds a fault if the file, or some of its lines, cannot be read. Raises ConfigError if it exceeds a limit of `files`.
    """
    try:
        lines = sum(line.endswith(b"\n") for line in files.read_lines(path))  # the last line may be incomplete
        found = read_rows(path)
    except OSError as error:
        faults.append(f"{METRICS}: {error.strerror}")
        return []
    rows: dict[int, Row] = {}
    lost = lines - len(found)
    for row in map(keys.current, found):
        rows[row["step"]] = rows.get(row["step"], {}) | sound(row)
    if lost > 0:
        noun = "lines"
        if lost == 1:
            noun = "line"
        faults.append(f"{METRICS}: {lost} {noun} cannot be read")
    return [rows[step] for step in sorted(rows)]


def sound(values: dict[str, object]) -> Row:
    """Returns the entries that are finite numbers, up to HUGE."""
    return {key: value for key, value in values.items() if is_number(value)}


def _small(path: Path, faults: list[str]) -> dict[str, object]:
    """Returns the content of a small JSON file, or {} if it is missing. Adds a fault if it is damaged."""
    try:
        return parse_json(files.read(path, files.JSON_BYTES), path)
    except FileNotFoundError:
        return {}
    except (OSError, ConfigError):
        faults.append(f"{path.name}: cannot be read")
        return {}


def _typed(path: Path) -> dict[str, str]:
    """Returns the keys and values in an overrides.yaml, or {} if it cannot be read."""
    try:
        words = read_words(path)
    except ConfigError:
        return {}
    typed = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            typed[key] = value
    return typed
