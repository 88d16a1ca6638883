"""A run's directory: its name, lock and small files. Imports no torch, so that a run is locked before torch loads."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlrun import files, lock
from rlrun.config.stored import CONFIG, OVERRIDES, config_text, not_a_run, parse_json, read_stored, read_words, to_yaml
from rlrun.errors import PROGRAM, ConfigError, quoted
from rlrun.lock import LOCK
from rlrun.snapshot.atomic import TEMPORARY, remove_leftovers, replace_text

RUNS = Path("runs")
STARTING = ".starting"  # lock file of `starting`
METRICS, META, SUMMARY, SNAPSHOTS = "metrics.jsonl", "meta.json", "summary.json", "snapshots"
LISTING = "rlrun.json"  # list of the files of a shared run, whose snapshot holds only weights


class RunDir:
    """A run on disk, locked until `release` or until this process exits."""

    def __init__(self, path: Path):
        """Locks an existing directory. Raises ConfigError if another process holds the lock."""
        self.path = path
        self.is_ours = False  # whether this process created the directory; if so, `discard` deletes it
        self._lock = lock.take(path)

    @classmethod
    def create(cls, config: dict[str, Any]) -> "RunDir":
        """Creates a run's directory: `run_dir` if it is set, else runs/<name>/<UTC time>-s<seed>-<4 hex digits>.

        Raises ConfigError if the directory already holds a run or other files, or cannot be created.
        """
        if config.get("run_dir") is None:
            return cls._create_named(config["name"], config["seed"])
        path = _named_folder(config["run_dir"])
        try:
            is_ours = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run_dir={path}: {error.strerror}") from None
        run = cls(path)
        try:
            _refuse_run(path)  # another run may have started and ended before we got the lock
        except ConfigError:
            run.release()
            raise
        run.is_ours = is_ours
        return run

    @classmethod
    def _create_named(cls, name: str, seed: int) -> "RunDir":
        while True:
            path = new_path(name, seed)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.mkdir()
            except FileExistsError:
                if not path.parent.is_dir():
                    raise ConfigError(f"{path.parent}: is not a folder") from None
                continue  # another run drew the same name in the same second
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}") from None
            run = cls(path)
            run.is_ours = True
            return run

    @classmethod
    def open(cls, path: str | Path) -> "RunDir":
        """Opens and locks an existing run. Raises ConfigError if there is none."""
        path = Path(path)
        if not (path / CONFIG).exists():
            raise ConfigError(f"{path}: {not_a_run(path)}")
        files.check_folder(path)
        run = cls(path)
        remove_leftovers(path)
        return run

    @property
    def holds_run(self) -> bool:
        """Whether config.yaml has been written."""
        return (self.path / CONFIG).exists()

    def write_start(self, config: dict[str, object], overrides: list[str], metrics_format: int | None = None) -> None:
        """Writes the resolved config.yaml and the user's overrides.yaml. From then on the directory holds a run.

        `metrics_format` is the format of the run's metric keys, which never changes; None means the current format.
        """
        replace_text(self.path / OVERRIDES, to_yaml(overrides))
        replace_text(self.path / CONFIG, config_text(config, metrics_format))

    def change(self, config: dict[str, object], overrides: list[str]) -> None:
        """Writes the config of a resumed run, and appends its overrides to overrides.yaml."""
        self.write_start(config, [*read_words(self.path / OVERRIDES), *overrides], self.metrics_format)

    def config(self) -> dict[str, Any]:
        """Returns the values of config.yaml, parsed as untrusted data."""
        return read_stored(self.path / CONFIG).values

    @property
    def metrics_format(self) -> int:
        """The format of the run's metric keys, fixed when the run started."""
        return read_stored(self.path / CONFIG).metrics_format

    def write_json(self, name: str, values: dict[str, object]) -> None:
        """Writes a small JSON file (e.g. meta.json) atomically. Raises ValueError if a number is not finite."""
        replace_text(self.path / name, json.dumps(values, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, object]:
        """Returns what `write_json` wrote, or {} if the file does not exist. Raises ConfigError if it is not JSON."""
        return read_json(self.path / name)

    @staticmethod
    def summary_of(path: Path) -> dict[str, object]:
        """Returns summary.json of a run without locking the run, or {} if the file does not exist."""
        return read_json(path / SUMMARY)

    def meta(self) -> dict[str, Any]:
        """Returns meta.json. Raises ConfigError if `versions`, `code` or `resumed` has the wrong type."""
        return self.meta_of(self.path)

    @staticmethod
    def meta_of(path: Path) -> dict[str, Any]:
        """Returns meta.json of a run without locking the run. Raises the errors of `meta`."""
        found = read_json(path / META)
        for key in ("versions", "code"):
            if not isinstance(found.get(key, {}), dict):
                raise ConfigError(f"{path / META}: {key}: must be an object")
        resumed = found.get("resumed", [])
        if not isinstance(resumed, list) or not all(isinstance(entry, dict) for entry in resumed):
            raise ConfigError(f"{path / META}: resumed: must be a list of objects")
        return found

    def error_log(self, text: str) -> None:
        """Appends to error.log. Ignores every OSError, because the error is also printed."""
        with contextlib.suppress(OSError):
            descriptor = files.open_to_append(self.path / "error.log")
            with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text.rstrip("\n") + "\n")

    def discard(self) -> None:
        """Deletes a run that never trained: its directory, or only our files if the directory existed before.

        Below runs/, also deletes the parent folders if they are empty then.
        """
        if self.is_ours:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            for name in (CONFIG, OVERRIDES, LOCK):
                (self.path / name).unlink(missing_ok=True)
        self.release()
        if self.path.is_relative_to(RUNS):
            with contextlib.suppress(OSError):  # a parent with other runs is not empty
                self.path.parent.rmdir()
                RUNS.rmdir()

    def release(self) -> None:
        """Releases the lock."""
        lock.release(self._lock)


@contextlib.contextmanager
def starting(config: dict[str, object]) -> Iterator[None]:
    """As a context manager, lets one process at a time look for a run of this config and create it."""
    folder = _home(config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from None
    with lock.alone(folder / STARTING):
        yield


def planned(config: dict[str, Any]) -> str:
    """Returns the folder of a run that has not started, as text. Creates nothing.

    Raises the errors of `RunDir.create`.
    """
    if config["run_dir"] is not None:
        return str(_named_folder(config["run_dir"]))
    return f"{_home_of(config['name'])}/<UTC time>-s{config['seed']}-<4 hex digits>"


def new_path(name: str, seed: int) -> Path:
    """Returns a path for a new run, runs/<name>/<UTC time>-s<seed>-<4 hex digits>. Creates nothing.

    Raises ConfigError if the name is not valid.
    """
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return _home_of(name) / f"{now}-s{seed}-{os.urandom(2).hex()}"


def runs_of(config: dict[str, Any]) -> list[Path]:
    """Returns the existing runs of a config: the run in its run_dir, or else all runs under its name, latest first."""
    if config.get("run_dir") is not None:
        found = [Path(config["run_dir"])]
    else:
        found = sorted(_home(config).glob("*"), reverse=True)
    return [path for path in found if (path / CONFIG).is_file()]


def _home(config: dict[str, Any]) -> Path:
    """Returns the parent folder of the runs of this config."""
    if config.get("run_dir") is None:
        return RUNS / folder_name(config["name"])
    return Path(config["run_dir"]).parent


def read_json(path: Path) -> dict[str, object]:
    """Returns a small JSON file of a run, or {} if it does not exist. Raises ConfigError if it is not JSON."""
    try:
        return parse_json(files.read(path, files.JSON_BYTES), path)
    except (FileNotFoundError, NotADirectoryError):  # `init_from` may name a file
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None


def folder_name(name: str) -> str:
    """Returns a name of an environment or a run without the characters that separate folders."""
    return str(name).replace("/", "_").replace(":", "_")


def _home_of(name: str) -> Path:
    """Returns the parent folder of runs with a name. Raises ConfigError if the name is not valid."""
    folder = folder_name(name)
    if folder in ("", ".", ".."):
        raise ConfigError(f"name={name!r}: is not a valid folder name")
    return RUNS / folder


def _named_folder(run_dir: str) -> Path:
    """Returns the path of a `run_dir`. Raises ConfigError if no run can begin there."""
    if not run_dir:
        raise ConfigError("run_dir=: must name a folder; without run_dir, a new folder under runs/<name>/ is used")
    path = Path(run_dir)
    try:
        _refuse_run(path)
        entries = []
        if path.exists():
            entries = [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise ConfigError(f"run_dir={path}: {error.strerror}") from None
    foreign = [name for name in entries if not name.startswith((LOCK, TEMPORARY))]
    if foreign not in ([], [OVERRIDES]):  # left by a start that was killed before it wrote config.yaml
        raise ConfigError(f"run_dir={path} is not empty and is not a run")
    return path


def _refuse_run(path: Path) -> None:
    if (path / CONFIG).exists():
        raise ConfigError(f"run_dir={path} already holds a run; to continue it: {PROGRAM} resume {quoted(path)}")
