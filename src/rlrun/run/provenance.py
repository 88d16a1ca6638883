"""The provenance of a run: versions, host, process, and the state of the project's git repository."""

import os
import platform
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlrun import __version__, files, imports
from rlrun.errors import ConfigError

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "ale-py", "hydra-core", "pydantic", "safetensors")

INDEX_BYTES = 64 << 20  # of a repository with half a million files
NOTHING: Mapping[str, str] = {}
LOCATE = ("rev-parse", "HEAD", "--show-toplevel", "--git-path", "index", "--git-path", "objects")


def provenance() -> dict[str, Any]:
    """For meta.json."""
    versions = {"python": platform.python_version(), "rlrun": __version__}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "versions": versions, "host": socket.gethostname(), "pid": os.getpid(), "git": git_state(Path.cwd()),
        "code": imports.digests(),
    }  # fmt: skip


def git_state(folder: Path) -> str | None:
    """`<commit>` or `<commit>-dirty` of the repository around `folder`; None where there is none or git is slow.

    The repository may be untrusted, and its configuration can name programs that git then runs: filters, hooks,
    monitors, and those of its submodules. So git gets its objects and a copy of its index under a new configuration.
    """
    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return None
    try:
        commit, top, index, objects = _git(folder, *LOCATE).splitlines()
        with tempfile.TemporaryDirectory() as clean:
            _git(folder, "init", "--quiet", "--template=", clean)
            Path(clean, "index").write_bytes(files.read(folder / index, INDEX_BYTES))
            env = {"GIT_DIR": f"{clean}/.git", "GIT_WORK_TREE": top, "GIT_INDEX_FILE": f"{clean}/index"}
            env["GIT_OBJECT_DIRECTORY"] = str((folder / objects).resolve())
            _git(folder, "update-index", "-q", "--refresh", env=env, codes=(0, 1))  # 1: something changed
            changes = _git(folder, "diff-index", "--name-only", "--ignore-submodules=all", commit, "--", env=env)
    except (OSError, ValueError, subprocess.SubprocessError, ConfigError):
        return None
    if changes:
        return f"{commit}-dirty"
    return commit


def _git(folder: Path, *words: str, env: Mapping[str, str] = NOTHING, codes: Sequence[int] = (0,)) -> str:
    """The output of a git command, which prompts for no password and fetches nothing. Raises SubprocessError."""
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words],
        cwd=folder, env={**os.environ, **quiet, **env}, capture_output=True, text=True, timeout=1, check=False,
    )  # fmt: skip
    if done.returncode not in codes:
        raise subprocess.SubprocessError(done.stderr)
    return done.stdout.strip()
