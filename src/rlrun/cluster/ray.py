"""Starts commands as actors of a Ray cluster, which outlive the process that submitted them."""

import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from rlrun.cluster import Cluster, Command, Main
from rlrun.cluster.scheduler import Scheduler, label, title
from rlrun.errors import ConfigError
from rlrun.ray_connection import connected
from rlrun.settings import NonNegativeFloat, PositiveInt, config

INTERRUPT_S = 60.0  # for the snapshots of interrupted runs
LOCAL = "local"  # address of a cluster that ends with this process


@config
class RayConfig:
    """Settings of `submit=ray`."""

    address: Annotated[str, Field(min_length=1)]
    cpus: PositiveInt
    gpus: NonNegativeFloat

    def cluster(self, main: Main) -> Cluster:
        return Ray(self)

    def check_lasting(self) -> None:
        """Raises ConfigError if the cluster would end with this process."""
        if self.address == LOCAL:
            raise ConfigError(
                f"submit.address={LOCAL}: such a cluster would end with this command; `ray start --head` starts one "
                "that does not"
            )


class Ray(Scheduler):
    """Actors of a Ray cluster, one for each command. If the machine of an actor is lost, Ray starts it on another."""

    def __init__(self, cfg: RayConfig):
        """Connects to the cluster. Raises ConfigError if Ray is not installed, or if there is no such cluster."""
        super().__init__()
        self.cfg = cfg
        self._ray = connected(cfg.address, "submit.address", "submit=ray")

    def start(self, commands: Sequence[Command]) -> str:
        for command in commands:
            # a unique name, because the actor of an earlier rung may still exist
            name = f"{label(command.log)}@{secrets.token_hex(4)}"
            runner = self._ray.remote(Runner).options(
                name=name, lifetime="detached", max_restarts=-1, num_cpus=self.cfg.cpus, num_gpus=self.cfg.gpus,
            )  # fmt: skip
            log = str(command.log.absolute())
            runner.remote(command.words, log, os.getcwd())
        return title(commands)

    def queued(self) -> set[str] | None:
        return {name.rpartition("@")[0] for name in self._ray.util.list_named_actors()}

    def interrupt(self) -> None:
        labels = set(map(label, self.logs.values()))
        actors: list[Any] = []
        for name in self._ray.util.list_named_actors():
            if name.rpartition("@")[0] in labels:
                with contextlib.suppress(ValueError):  # the actor has just left
                    actors.append(self._ray.get_actor(name))
        answers = [actor.interrupt.remote() for actor in actors]
        if answers:
            self._ray.wait(answers, num_returns=len(answers), timeout=INTERRUPT_S)
        for actor in actors:  # also those that Ray has not started, which do not answer
            self._ray.kill(actor)
        self.logs = {}

    def close(self) -> None:
        if self.cfg.address == LOCAL:
            self.interrupt()
        self._ray.shutdown()


class Runner:
    """An actor that runs one command in a process of its own, and leaves the cluster when the command has ended."""

    def __init__(self, words: list[str], log: str, folder: str):
        import ray

        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rlrun.cli.task", log, *words],  # -P: import nothing from the current folder
            cwd=folder, stdin=subprocess.DEVNULL, start_new_session=os.name == "posix",
        )  # fmt: skip
        self.itself = ray.get_runtime_context().current_actor
        threading.Thread(target=self.leave_after_command, daemon=True).start()

    def leave_after_command(self) -> None:
        """Waits until the command has ended. Then ends this actor; Ray does not restart an actor that is killed."""
        import ray

        self.process.wait()
        ray.kill(self.itself)

    def interrupt(self) -> None:
        """Interrupts the command, which writes a snapshot, and waits until it has ended."""
        self.process.terminate()
        self.process.wait()
