"""Starts commands as processes of this machine. Each survives the process that started it."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

from rlrun import files
from rlrun.cluster import Cluster, Command, Ended, Main
from rlrun.settings import PositiveInt, config


@config
class LocalConfig:
    """Settings of `submit=local`."""

    workers: PositiveInt

    def cluster(self, main: Main) -> Cluster:
        return local()


def local() -> Cluster:
    """Returns the cluster of this machine that starts commands fastest on this system."""
    if sys.platform == "linux":
        return Forks()
    return Processes()


class Local(ABC):
    """Base of the clusters whose commands are processes of this machine."""

    @abstractmethod
    def start(self, command: Command) -> None:
        """Starts one command."""

    def interrupt(self) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """As in `Cluster`."""

    def submit(self, commands: Sequence[Command]) -> str:
        for command in commands:
            command.log.parent.mkdir(parents=True, exist_ok=True)
            self.start(command)
        return ", ".join(command.name for command in commands)

    def adopt(self, commands: Sequence[Command]) -> list[str]:
        return []


class Processes(Local):
    """Starts a Python process for each command."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, command: Command) -> None:
        output = files.open_to_append(command.log)
        self._processes[command.name] = subprocess.Popen(
            [sys.executable, "-m", "rlrun", *command.words],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=os.name == "posix",
        )  # fmt: skip
        os.close(output)

    def ended(self) -> list[Ended]:
        codes = {name: process.poll() for name, process in self._processes.items()}
        found = [Ended(name, code) for name, code in codes.items() if code is not None]
        for name, _ in found:
            del self._processes[name]
        return found

    def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGINT)
        for process in self._processes.values():
            process.wait()
        self._processes = {}


def start_server() -> subprocess.Popen[bytes]:
    """Starts `cli/server.py`."""
    return subprocess.Popen(
        [sys.executable, "-m", "rlrun.cli.server"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True,
    )  # fmt: skip


class Forks(Local):
    """Requests commands from one process of `cli/server.py`, which imports torch once and forks for each command."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._running: list[str] = []
        self._partial = b""  # beginning of the server's next line

    def start(self, command: Command) -> None:
        if self._server is None:
            self._server = start_server()
        self._running.append(command.name)
        with contextlib.suppress(BrokenPipeError):  # `ended` reports that the server was killed
            self._send({"name": command.name, "words": command.words, "log": str(command.log)})

    def ended(self) -> list[Ended]:
        if self._server is None or self._server.stdout is None:
            return []
        if not select.select([self._server.stdout], [], [], 0)[0]:
            return []
        received = os.read(self._server.stdout.fileno(), 1 << 16)
        if not received:  # the server was killed; its commands may go on
            found = [Ended(name, None) for name in self._running]
            self._forget_server()
            return found
        *lines, self._partial = (self._partial + received).split(b"\n")
        found = [Ended(**json.loads(line)) for line in lines]
        for ended in found:
            self._running.remove(ended.name)
        return found

    def close(self) -> None:
        if self._server is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._send({"interrupt": True})
        self._forget_server()

    def _forget_server(self) -> None:
        """Waits until the server has ended, and closes its pipes."""
        assert self._server is not None
        self._server.wait()
        for pipe in (self._server.stdin, self._server.stdout):
            if pipe is not None:
                pipe.close()
        self._server, self._running, self._partial = None, [], b""

    def _send(self, request: dict[str, object]) -> None:
        assert self._server is not None and self._server.stdin is not None
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        self._server.stdin.flush()
