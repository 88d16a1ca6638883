"""A run's directory: its name, lock and small files. Free of torch, so that a run is claimed before torch loads."""

import contextlib
import fcntl
import json
import os
import platform
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from rlrun import __version__
from rlrun.errors import ConfigError
from rlrun.snapshot.atomic import TEMPORARY, replace_text

RUNS = Path("runs")
CONFIG, OVERRIDES, LOCK = "config.yaml", "overrides.yaml", ".lock"
CONFIG_LIMIT = 128 << 10  # bytes; a config has a few thousand
PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "ale-py", "hydra-core", "pydantic", "safetensors")

# Descriptors. A forked child gives its copies up, else it would hold the lock after its parent's death.
_locks: set[int] = set()


class RunDir:
    """One run on disk, held by this process until `release` or its end."""

    def __init__(self, path: Path):
        """Take the lock of an existing directory. ConfigError where another process has it."""
        self.path = path
        self.is_ours = False  # made by this process, so that it may take it away
        self._lock = _lock(path)

    @classmethod
    def create(cls, config: dict[str, Any]) -> "RunDir":
        """A new directory: `run_dir` as it is, else runs/<name>/<UTC time>-s<seed>-<4 hex>."""
        if config.get("run_dir") is None:
            return cls._create_named(config["name"], config["seed"])
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
        if not (path / CONFIG).is_file():
            raise ConfigError(f"{path}: not a run (it has no {CONFIG})")
        run = cls(path)
        for leftover in path.glob(f"{TEMPORARY}*"):
            leftover.unlink()
        return run

    @property
    def holds_run(self) -> bool:
        return (self.path / CONFIG).exists()

    def write_start(self, config: dict[str, Any], overrides: list[str]) -> None:
        """config.yaml as resolved, overrides.yaml as typed. From then on the directory holds a run."""
        replace_text(self.path / OVERRIDES, _yaml_text(overrides))
        replace_text(self.path / CONFIG, _yaml_text(config))

    def change(self, config: dict[str, Any], words: list[str]) -> None:
        """Record what a resume changed."""
        import yaml

        typed = yaml.safe_load((self.path / OVERRIDES).read_text(encoding="utf-8"))
        self.write_start(config, [*(typed or []), *words])

    def config(self) -> dict[str, Any]:
        """config.yaml, read as the data of a stranger."""
        return read_config(self.path / CONFIG)

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        """A small file, at once: meta.json, summary.json. ValueError for numbers that are not finite."""
        replace_text(self.path / name, json.dumps(values, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """What `write_json` wrote; {} where there is none. ConfigError where it is not JSON."""
        path = self.path / name
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: not a JSON object")
        return values

    def error_log(self, text: str) -> None:
        """Append to error.log."""
        with open(self.path / "error.log", "a", encoding="utf-8") as file:
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
        if self._lock in _locks:
            _locks.remove(self._lock)
            os.close(self._lock)


def holder(path: Path) -> str | None:
    """Who holds a run's lock, as text; None where nobody does. Takes nothing away from a process that wants it."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
    else:
        return None
    finally:
        os.close(descriptor)


def runs_of(config: dict[str, Any]) -> list[Path]:
    """Runs that stand where this config's would: in its run_dir, or under its name, latest first."""
    if config.get("run_dir") is not None:
        found = [Path(config["run_dir"])]
    else:
        found = sorted((RUNS / _folder(config["name"])).glob("*"), reverse=True)
    return [path for path in found if (path / CONFIG).is_file()]


def _folder(name: str) -> str:
    return str(name).replace("/", "_").replace(":", "_")


def typed_words(run: Path) -> list[str]:
    """What a run's overrides.yaml lists, read as text, as a stranger's; nothing where there is none."""
    try:
        with open(run / OVERRIDES, encoding="utf-8", errors="replace") as file:
            lines = file.read(CONFIG_LIMIT).splitlines()
    except OSError:
        return []
    return [line.removeprefix("- ").strip("'\"") for line in lines if line.startswith("- ")]


def read_config(path: Path) -> dict[str, Any]:
    """A stored config. It names registered parts and never code: ConfigError for `_target_`, environment variables,
    YAML aliases (a bomb needs them, we never write them), more than CONFIG_LIMIT bytes, or anything but a mapping."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ConfigError(f"{path}: aliases are not allowed")
            return super().compose_node(parent, index)

    try:
        with open(path, "rb") as file:
            text = file.read(CONFIG_LIMIT + 1)
        if len(text) > CONFIG_LIMIT:
            raise ConfigError(f"{path}: larger than {CONFIG_LIMIT} bytes")
        values = yaml.load(text, Loader)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path.parent}: not a run (it has no {path.name})") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a config ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: not a config (no mapping)")
    faults = [f"{path}: {fault}" for fault in _forbidden(values, "")]
    if faults:
        raise ConfigError(*faults)
    return values


def provenance() -> dict[str, Any]:
    """What made this run, for meta.json: versions, host, process and the state of the project's git."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version(), "rlrun": __version__}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"versions": versions, "host": socket.gethostname(), "pid": os.getpid(), "git": git_state(Path.cwd())}


def git_state(folder: Path) -> str | None:
    """`<commit>` or `<commit>-dirty` of the repository around `folder`; None where there is none or git is slow."""
    import subprocess

    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return None
    describe = ["git", "-c", "core.fsmonitor=false", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(describe, cwd=folder, capture_output=True, text=True, timeout=1, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _refuse_run(path: Path) -> None:
    if (path / CONFIG).exists():
        raise ConfigError(f"run_dir={path} already holds a run; go on with it: rlrun resume {path}")


def _lock(path: Path) -> int:
    """Hold RUN/.lock with flock, which the kernel frees however the process ends. Its text says who holds it."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be locked ({error.strerror})") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)  # `holder` may be looking just now
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise ConfigError(f"{path} is in use by {holder or 'another process'}") from None
        raise ConfigError(f"{path}: cannot be locked ({error.strerror})") from None
    _locks.add(descriptor)
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    with contextlib.suppress(OSError):  # a full disk: the lock holds, its text only informs
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()} since {now}\n".encode(), 0)
    return descriptor


def _forget_locks() -> None:
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_forget_locks)


def _yaml_text(values: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def _forbidden(values: Any, path: str) -> list[str]:
    """Faults of a config that would reach outside: one line each."""
    if isinstance(values, dict):
        faults = [f"{path}{key}: not allowed in a stored config" for key in values if key == "_target_"]
        return faults + [fault for key, value in values.items() for fault in _forbidden(value, f"{path}{key}.")]
    if isinstance(values, list):
        return [fault for index, value in enumerate(values) for fault in _forbidden(value, f"{path}{index}.")]
    if isinstance(values, str) and "${oc.env" in values.replace(" ", ""):
        return [f"{path.rstrip('.')}: environment variables are not allowed in a stored config"]
    return []
