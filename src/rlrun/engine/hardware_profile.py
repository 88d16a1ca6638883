"""What `rlrun doctor --probe` measured on this machine, and what `trainer.engine=auto` means because of it.

Without that file `auto` is the same rule everywhere, so that equal seeds give equal bits. With it a run that begins
here may use compiled kernels, whose last bits differ; its meta.json records the engine, and a resume keeps to it.
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

from rlrun.config.schema import RunConfig, config
from rlrun.engine import matmul_backend
from rlrun.engine.support import lacking

LOOPS = {"onpolicy": "ppo", "offpolicy": "sac"}  # loops whose updates were measured, and with which algorithm
NETWORKS = ("auto", "mlp")

Choice = Literal["auto", "compile"]


@config
class HardwareProfile:
    """The file. `compile_from`: for each loop, the steps from which a run is faster compiled; null: never."""

    cpu: str
    cores: int
    torch: str
    compile_from: dict[str, int | None]
    measured: dict[str, float]  # for the reader

    @classmethod
    def of(cls, compile_from: dict[str, int | None], measured: dict[str, float]) -> "HardwareProfile":
        """The profile of this machine."""
        return cls(**fingerprint(), compile_from=compile_from, measured=measured)

    def engine(self, run: RunConfig) -> Choice:
        """What `auto` stands for, in a run on the CPU."""
        steps = self.compile_from.get(run.algo["loop"]["name"])
        if steps is None or run.network["name"] not in NETWORKS or run.trainer.total_steps < steps:
            return "auto"
        return "compile"

    def summary(self) -> str:
        """For people: what `auto` does here."""
        gains = [f"{loop} runs of {steps:,} steps or more" for loop, steps in self.compile_from.items() if steps]
        return f"compiles {' and '.join(gains) or 'nothing'}, else replays kernels; measured, see {path()}"

    def save(self) -> Path:
        """Write the file. Returns its path."""
        path().parent.mkdir(parents=True, exist_ok=True)
        path().write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n", encoding="utf-8")
        return path()


def path() -> Path:
    """The file, in the user's folder for configuration."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "rlrun" / "machine.json"


def fingerprint() -> dict[str, Any]:
    """What the figures depend on: the CPU, its cores and the version of torch."""
    return {"cpu": cpu_name(), "cores": os.cpu_count() or 1, "torch": torch.__version__}


def read() -> HardwareProfile | None:
    """The profile of this machine. None where there is no file, and also, with a warning, where it is damaged or was
    written on another machine or with another torch."""
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


def follow(run: RunConfig, device: torch.device) -> RunConfig:
    """The config of a run that begins: `trainer.engine=auto` is replaced by what the profile says, if there is one."""
    if run.trainer.engine != "auto" or device.type != "cpu":
        return run
    profile = read()
    if profile is None:
        return run
    return _with_engine(run, profile.engine(run))


def resumed(run: RunConfig, before: str | None) -> RunConfig:
    """The config of a run that goes on: `trainer.engine=auto` means what it meant when the run began, with `before`."""
    if (run.trainer.engine, before) == ("auto", "compile"):
        return _with_engine(run, "compile")
    return run


def _with_engine(run: RunConfig, engine: Choice) -> RunConfig:
    if lacking(engine, torch.device("cpu")):
        return run
    return dataclasses.replace(run, trainer=dataclasses.replace(run.trainer, engine=engine))


def about() -> Iterator[tuple[str, str]]:
    """For `rlrun doctor`: this CPU, the library for matrix products, and what `trainer.engine=auto` does."""
    yield "cpu", f"{cpu_name()}, {torch.backends.cpu.get_cpu_capability()}"
    yield "products", matmul_backend.rule()
    if why := lacking("auto", torch.device("cpu")):
        yield "auto", f"runs eager: {why}"
    elif profile := read():
        yield "auto", profile.summary()
    else:
        yield "auto", "replays kernels; rlrun doctor --probe measures whether to compile them"


def cpu_name() -> str:
    """The model of this CPU; where it is not known, its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _warn_ignored(why: str) -> None:
    logging.getLogger(__name__).warning("%s is ignored: %s; rlrun doctor --probe measures anew", path(), why)
