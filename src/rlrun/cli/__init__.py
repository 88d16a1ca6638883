"""The commands. The first word names one. Each imports what it needs, so torch loads only for commands that train."""

import difflib
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rlrun import __version__
from rlrun.errors import ConfigError, RlrunError
from rlrun.imports import safe_path
from rlrun.run.signals import CODES, Leave

COMMANDS = {
    "train": "train an algorithm on an environment, or sweep over many with -m",
    "resume": "go on with a run from its latest snapshot",
    "eval": "measure a run's best agent in fresh environments; film it, record it",
    "report": "curves, statistics and intervals over runs: one HTML file",
    "status": "every run: state, progress, last return, time left",
    "diff": "what differs between two runs",
    "board": "TensorBoard over runs, on this machine",
    "list": "what there is to choose: algo, network, env, trainer, preset, ...",
    "show": "every key of a composed config, what it means and where it comes from",
    "new": "write an algorithm, environment, network or wrapper of your own to start from, with a test",
    "bench": "how fast the pieces are on this machine",
    "doctor": "versions, devices, extras, and what is wrong",
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

`rlrun <command> --help` says more. `rlrun --version` prints the version."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; errors are printed to stderr, one line per fault."""
    if argv is None:
        argv = sys.argv[1:]
    words = list(argv)
    leave = Leave()
    try:
        with safe_path(), _handling_signals(leave):
            return _dispatch(words)
    except Exception as error:
        if leave.number:  # a signal may raise anywhere, and what it interrupts may raise another error
            return CODES[leave.number]
        return _report(error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _report(error: Exception) -> int:
    """Print an error, one line per fault. Returns the exit code; raises an error that is not expected."""
    if isinstance(error, BrokenPipeError):  # the reader of `rlrun list | head` is gone
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
    command = words[0] if words else "--help"
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
    from rlrun.cli.forms import is_setting, translated
    from rlrun.config.check import did_you_mean

    if is_setting(command) or command in ("-m", "--multirun"):
        return f"no command given; did you mean `rlrun train {' '.join(words)}`?"
    near = difflib.get_close_matches(command, COMMANDS, n=1)
    if not near and (meant := translated("train", words)):
        return f"no command given; did you mean: {meant}"
    hint = did_you_mean("".join(near))
    return f"unknown command {command!r}{hint} (there are: {', '.join(COMMANDS)})"


@contextmanager
def _handling_signals(leave: Leave) -> Iterator[None]:
    """A context in which `leave` handles signals, until training takes them over. Ignored signals stay ignored."""
    earlier: dict[int, Any] = {}
    for number in CODES:
        handler = signal.getsignal(number)
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            earlier[number] = handler
            signal.signal(number, leave)
    try:
        yield
    finally:
        for ours, handler in earlier.items():
            signal.signal(ours, handler)
