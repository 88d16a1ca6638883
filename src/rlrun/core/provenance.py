"""What made a run: versions, host, process, and the state of the project's git."""

import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlrun import __version__

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "ale-py", "hydra-core", "pydantic", "safetensors")


def provenance() -> dict[str, Any]:
    """For meta.json."""
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
