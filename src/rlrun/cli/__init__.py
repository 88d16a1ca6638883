"""The command line `rlrun`. A command's module is imported only if the command is run, because some import torch."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rlrun import __version__
from rlrun.errors import PROGRAM, ConfigError, RlrunError
from rlrun.imports import safe_path
from rlrun.operating_system import open_standard_streams
from rlrun.run.signals import CODES, Leave

COMMANDS = {
    "train": "train an algorithm on an environment, or a grid of several with -m",
    "resume": "continue a run from its latest snapshot",
    "reset": "start a new run with the config and the weights of a run",
    "eval": "evaluate a run's best agent, optionally with videos or as a data set",
    "export": "write a run's policy as an ONNX or torch program, which acts without rlrun",
    "push": "share a run on a model hub: weights, config, model card",
    "pull": "download a shared run from a model hub, and verify it",
    "watch": "show a run's agent in a window",
    "sweep": "search hyperparameters, with trials that are pruned and resumed",
    "report": "compare runs in one HTML file: curves, statistics, intervals",
    "status": "list runs with state, progress, last return and time left",
    "tail": "print the log rows of a run while they are written",
    "diff": "print what differs between two runs",
    "clean": "list old snapshots, and remove them after asking",
    "board": "start TensorBoard over runs, on this machine",
    "list": "list the names of algorithms, networks, environments, presets, ...",
    "show": "print every key of a composed config, with meaning and source",
    "new": "write an algorithm, environment, network or other part to start from, with a test",
    "bench": "measure how fast the pieces of rlrun are on this machine",
    "completion": "print the script that completes words in bash, zsh or fish",
    "doctor": "print versions, devices and extras, and report problems",
}
MODULES = {"eval": "evaluate", "list": "catalogue", "show": "catalogue"}

HELP = """\
usage: rlrun <command> ...

{commands}

  rlrun train algo=sac env=HalfCheetah
  rlrun train -m algo=sac env=HalfCheetah,Hopper seed=0,1,2
  rlrun resume runs/sac-HalfCheetah/<run>
  rlrun show algo=sac env=HalfCheetah
  rlrun report runs/

`rlrun <command> --help` prints the help of a command. `rlrun --version` prints the version."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code. Errors are printed to stderr, one line per fault."""
    if argv is None:
        argv = sys.argv[1:]
    words = list(argv)
    open_standard_streams()
    leave = Leave()
    try:
        with safe_path(), _handling_signals(leave):
            return _dispatch(words)
    except Exception as error:
        if leave.number:  # the signal handler raised SystemExit, and the interrupted code turned it into this error
            return CODES[leave.number]
        return _report(error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _report(error: Exception) -> int:
    """Prints an error, one line per fault, and returns the exit code. Raises an unexpected error again."""
    if isinstance(error, BrokenPipeError):  # the reader has exited, as in `rlrun list | head`
        sys.stderr.close()
        return 0
    if isinstance(error, OSError) and error.filename is not None:
        error = RlrunError(f"{error.filename}: {error.strerror}")
    if not isinstance(error, RlrunError):
        raise error
    for fault in error.faults:
        print(f"error: {fault}", file=sys.stderr)
    return error.exit_code


def _dispatch(words: list[str]) -> int:
    """Runs the command that the first word names. Returns the exit code."""
    command = words[0] if words else "--help"
    if command == "help" and words[1:]:  # `rlrun help train` is `rlrun train --help`
        command = words[1]
        words = [command, "--help"]
    if command in ("--help", "-h", "help"):
        commands = [f"  {name:8} {what}" for name, what in COMMANDS.items()]
        print(HELP.format(commands="\n".join(commands)))
        return 0
    if command == "--version":
        print(f"rlrun {__version__}")
        return 0
    if command not in COMMANDS:
        raise ConfigError(_unknown(command, words))
    module = import_module(f"rlrun.cli.{MODULES.get(command, command)}")
    return int(getattr(module, command)(words[1:]))


def _unknown(command: str, words: list[str]) -> str:
    """Returns the fault of a first word that is no command."""
    from rlrun.cli.forms import is_setting, translated
    from rlrun.errors import closest, did_you_mean

    if is_setting(command) or command in ("-m", "--multirun"):
        return f"no command given; did you mean `{PROGRAM} train {' '.join(words)}`?"
    near = closest(command, COMMANDS)
    if near is None:
        meant = translated("train", words)
        if meant:
            return f"no command given; did you mean: {meant}"
    return f"unknown command {command!r}{did_you_mean(near)} (there are: {', '.join(COMMANDS)})"


@contextmanager
def _handling_signals(leave: Leave) -> Iterator[None]:
    """As a context manager, lets `leave` handle stop signals until training sets its own handlers.

    Signals that are ignored, or already have another handler, are not changed.
    """
    earlier: dict[signal.Signals, Any] = {}
    for number in CODES:
        handler = signal.getsignal(number)
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            earlier[number] = handler
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
