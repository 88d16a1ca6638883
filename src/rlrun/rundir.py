"""A run's directory: its name, lock and small files. Free of torch, so that a run is claimed before torch loads."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlrun import files, lock
from rlrun.config.stored import CONFIG, OVERRIDES, config_text, parse_json, read_stored, read_words, to_yaml
from rlrun.errors import ConfigError
from rlrun.lock import LOCK
from rlrun.snapshot.atomic import TEMPORARY, replace_text, sweep

RUNS = Path("runs")
STARTING = ".starting"  # held by the process that looks for a run, or makes it
METRICS, META = "metrics.jsonl", "meta.json"


class RunDir:
    """One run on disk, held by this process until `release` or its end."""

    def __init__(self, path: Path):
        """Take the lock of an existing directory. ConfigError where another process has it."""
        self.path = path
        self.is_ours = False  # made by this process, so that it may take it away
        self._lock = lock.take(path)

    @classmethod
    def create(cls, config: dict[str, Any]) -> "RunDir":
        """A new directory: `run_dir` as it is, else runs/<name>/<UTC time>-s<seed>-<4 hex>."""
        if config.get("run_dir") is None:
            return cls._create_named(config["name"], config["seed"])
        if not config["run_dir"]:
            raise ConfigError("run_dir=: must name a folder; left out, runs/<name>/ has one made")
        path = Path(config["run_dir"])
        try:
            _refuse_run(path)
            is_ours = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            foreign = [entry.name for entry in path.iterdir() if not entry.name.startswith((LOCK, TEMPORARY))]
        except OSError as error:
            raise ConfigError(f"run_dir={path}: {error.strerror}") from None
        if foreign not in ([], [OVERRIDES]):  # all that a start leaves which was killed before it was a run
            raise ConfigError(f"run_dir={path} is not empty and holds no run")
        run = cls(path)
        try:
            _refuse_run(path)  # one may have begun and ended before the lock was ours
        except ConfigError:
            run.release()
            raise
        run.is_ours = is_ours
        return run

    @classmethod
    def _create_named(cls, name: str, seed: int) -> "RunDir":
        folder = _folder(name)
        if folder in ("", ".", ".."):
            raise ConfigError(f"name={name!r}: cannot be the name of a folder")
        while True:
            now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            path = RUNS / folder / f"{now}-s{seed}-{os.urandom(2).hex()}"
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
        """An existing run."""
        path = Path(path)
        if not (path / CONFIG).exists():
            raise ConfigError(f"{path}: not a run (it has no {CONFIG})")
        files.check_folder(path)
        run = cls(path)
        sweep(path)
        return run

    @property
    def holds_run(self) -> bool:
        return (self.path / CONFIG).exists()

    def write_start(self, config: dict[str, Any], overrides: list[str], metrics_format: int | None = None) -> None:
        """config.yaml as resolved, overrides.yaml as typed. From then on the directory holds a run.

        `metrics_format`: that of the run's metric keys, which it keeps; None: today's.
        """
        replace_text(self.path / OVERRIDES, to_yaml(overrides))
        replace_text(self.path / CONFIG, config_text(config, metrics_format))

    def change(self, config: dict[str, Any], words: list[str]) -> None:
        """Record what a resume changed."""
        self.write_start(config, [*read_words(self.path / OVERRIDES), *words], self.metrics_format)

    def config(self) -> dict[str, Any]:
        """config.yaml, read as untrusted data."""
        return read_stored(self.path / CONFIG).values

    @property
    def metrics_format(self) -> int:
        """The format of the run's metric keys: the one it began with."""
        return read_stored(self.path / CONFIG).metrics_format

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        """A small file, at once: meta.json, summary.json. ValueError for numbers that are not finite."""
        replace_text(self.path / name, json.dumps(values, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """What `write_json` wrote; {} where there is none. ConfigError where it is not JSON."""
        return _read_json(self.path / name)

    @staticmethod
    def summary_of(path: Path) -> dict[str, Any]:
        """summary.json of a run that is only read; {} where there is none."""
        return _read_json(path / "summary.json")

    def meta(self) -> dict[str, Any]:
        """meta.json. Raises ConfigError where its parts are not what `run/exactness.py` writes."""
        return self.meta_of(self.path)

    @staticmethod
    def meta_of(path: Path) -> dict[str, Any]:
        """The same of a run that is only read."""
        found = _read_json(path / META)
        if not isinstance(found.get("versions", {}), dict):
            raise ConfigError(f"{path / META}: versions: must be a section")
        resumed = found.get("resumed", [])
        if not isinstance(resumed, list) or not all(isinstance(one, dict) for one in resumed):
            raise ConfigError(f"{path / META}: resumed: must be a list of sections")
        return found

    def error_log(self, text: str) -> None:
        """Append to error.log; nothing where the disk has no room for it, since the error itself is still shown."""
        with contextlib.suppress(OSError):
            descriptor = files.open_to_append(self.path / "error.log")
            with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text.rstrip("\n") + "\n")

    def discard(self) -> None:
        """Take away a run that never trained: its folder and those it leaves empty, or in a folder that the user had
        made only what a start writes."""
        if self.is_ours:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            for name in (CONFIG, OVERRIDES, LOCK):
                (self.path / name).unlink(missing_ok=True)
        self.release()
        if self.path.is_relative_to(RUNS):
            with contextlib.suppress(OSError):  # one that holds other runs stays
                self.path.parent.rmdir()
                RUNS.rmdir()

    def release(self) -> None:
        """Give the lock back."""
        lock.release(self._lock)


@contextlib.contextmanager
def starting(config: dict[str, Any]) -> Iterator[None]:
    """One process at a time looks whether this config has a run, and makes it where there is none."""
    folder = _home(config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from None
    with lock.alone(folder / STARTING):
        yield


def runs_of(config: dict[str, Any]) -> list[Path]:
    """Runs that stand where this config's would: in its run_dir, or under its name, latest first."""
    if config.get("run_dir") is not None:
        found = [Path(config["run_dir"])]
    else:
        found = sorted(_home(config).glob("*"), reverse=True)
    return [path for path in found if (path / CONFIG).is_file()]


def _home(config: dict[str, Any]) -> Path:
    """The folder in which a run of this config would be made."""
    return RUNS / _folder(config["name"]) if config.get("run_dir") is None else Path(config["run_dir"]).parent


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return parse_json(files.read(path, files.JSON_BYTES), path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None


def _folder(name: str) -> str:
    return str(name).replace("/", "_").replace(":", "_")


def _refuse_run(path: Path) -> None:
    if (path / CONFIG).exists():
        raise ConfigError(f"run_dir={path} already holds a run; go on with it: rlrun resume {path}")
