"""Stores the measurements of `rlrun doctor --probe`, and derives the engine for `trainer.engine=auto` from them.

Without this file, `auto` follows the same rule on every machine, so that equal seeds give equal bits. With the file, a
new run may use compiled kernels, whose results differ in the last bits. The run's meta.json records the engine, and a
resumed run uses the same one.
"""

import dataclasses
import json
import logging
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pydantic
import torch

from rlrun.engine import matmul_backend
from rlrun.engine.support import lacking
from rlrun.operating_system import cpu_information
from rlrun.settings import config

LOOPS = {"onpolicy": "ppo", "offpolicy": "sac"}  # loop -> algorithm with which its updates are measured
NETWORKS = ("auto", "mlp")  # those to which the measurements apply

Engine = Literal["auto", "eager", "compile", "cudagraph"]
Choice = Literal["auto", "compile"]


@config
class HardwareProfile:
    """The content of the file."""

    cpu: str
    cores: int
    torch: str
    compile_from: dict[str, int | None]  # loop -> number of steps from which a run is faster compiled; None: never
    measured: dict[str, float]  # the measurements, for information only

    @classmethod
    def of(cls, compile_from: dict[str, int | None], measured: dict[str, float]) -> "HardwareProfile":
        """Returns a profile of this machine with these measurements."""
        return cls(**fingerprint(), compile_from=compile_from, measured=measured)

    def engine(self, loop: str, network: str, total_steps: int) -> Choice:
        """Returns the engine that `auto` stands for, in a run on the CPU. loop, network: names of its parts."""
        steps = self.compile_from.get(loop)
        if steps is None or network not in NETWORKS or total_steps < steps:
            return "auto"
        return "compile"

    def summary(self) -> str:
        """Returns one line for the user about what `auto` does on this machine."""
        gains = [f"{loop} runs of {steps:,} steps or more" for loop, steps in self.compile_from.items() if steps]
        return f"compiles {' and '.join(gains) or 'nothing'}, else replays kernels; measurements are in {path()}"

    def save(self) -> Path:
        """Writes the file. Returns its path."""
        path().parent.mkdir(parents=True, exist_ok=True)
        path().write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n", encoding="utf-8")
        return path()


def path() -> Path:
    """Returns the path of the file, $XDG_CONFIG_HOME/rlrun/machine.json or ~/.config/rlrun/machine.json."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "rlrun" / "machine.json"


def fingerprint() -> dict[str, Any]:
    """Returns what the measurements depend on: the CPU, its number of cores and the version of torch."""
    return {"cpu": cpu_name(), "cores": os.cpu_count() or 1, "torch": torch.__version__}


def read() -> HardwareProfile | None:
    """Returns the profile of this machine, or None if there is no file.

    A file that is damaged, or was written on another machine or with another torch, is ignored with a warning.
    """
    try:
        profile = HardwareProfile(**json.loads(path().read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, pydantic.ValidationError):
        _warn_ignored("it cannot be read")
        return None
    differing = []
    for key, value in fingerprint().items():
        if getattr(profile, key) != value:
            differing.append(f"{key} {getattr(profile, key)}, here {value}")
    if differing:
        _warn_ignored("; ".join(differing))
        return None
    return profile


def chosen(loop: str, network: str, total_steps: int, device: torch.device) -> Choice:
    """Returns the engine that `auto` stands for in a new run: the profile's choice, if there is a profile."""
    profile = read() if device.type == "cpu" else None
    if profile is None or lacking("compile", device):
        return "auto"
    return profile.engine(loop, network, total_steps)


def resumed(engine: Engine, before: str | None) -> Engine:
    """Returns the engine of a resumed run: for `auto`, the one with which the run began.

    before: the engine in the run's meta.json.
    """
    if (engine, before) == ("auto", "compile") and not lacking("compile", torch.device("cpu")):
        return "compile"
    return engine


def about() -> Iterator[tuple[str, str]]:
    """Yields (name, text) for `rlrun doctor`: the CPU, the library for matrix products, what engine=auto does."""
    yield "cpu", f"{cpu_name()}, {torch.backends.cpu.get_cpu_capability()}"
    yield "products", matmul_backend.rule()
    if why := lacking("auto", torch.device("cpu")):
        yield "auto", f"runs eager: {why}"
    elif profile := read():
        yield "auto", profile.summary()
    else:
        yield "auto", "replays kernels; rlrun doctor --probe measures whether to compile them"


def cpu_name() -> str:
    """Returns the model name of this CPU, or its architecture if the system does not report the model."""
    for line in cpu_information().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _warn_ignored(why: str) -> None:
    logging.getLogger(__name__).warning("%s is ignored: %s; rlrun doctor --probe measures again", path(), why)
