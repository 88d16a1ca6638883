"""Implements `rlrun board`, which starts TensorBoard over runs, reachable from this machine only."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.errors import ConfigError
from rlrun.rundir import RUNS

DEFAULT_PORT = 6006
USAGE = f"rlrun board [PATH] [port={DEFAULT_PORT}]"
HELP = f"""\
usage: {USAGE}

Starts TensorBoard on http://127.0.0.1:<port> for the runs at or below PATH (default: runs/). Ctrl-C stops it.
Only this machine can reach TensorBoard; to reach it from another, use ssh -L <port>:127.0.0.1:<port> <host>.
port=0 takes a free port."""

PORT = settings.ValueRule("a port, 0 to 65535", lambda value: type(value) is int and 0 <= value < 65536)


def board(words: Sequence[str]) -> int:
    """Runs the command: TensorBoard replaces this process. Returns the exit code of --help."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, {"port": PORT})
    if len(places) > 1:
        raise ConfigError(f"one folder at a time; usage: {USAGE}")
    folder = Path(places[0]) if places else RUNS
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError("TensorBoard is not installed; pip install tensorboard")
    sys.stdout.flush()
    os.execv(sys.executable, command(folder, given.get("port", DEFAULT_PORT)))


def command(folder: Path, port: int) -> list[str]:
    """Returns the command that starts TensorBoard for a folder of runs."""
    where = ["--logdir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    return [sys.executable, "-P", "-m", "tensorboard.main", *where]  # -P: import nothing from the current folder
