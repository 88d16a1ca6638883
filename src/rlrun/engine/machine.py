"""What `rlrun doctor --probe` found out about this machine, and what `trainer.engine=auto` makes of it.

Without that file `auto` is the same rule everywhere, so that equal seeds give equal bits. With it a run that begins
here may take compiled kernels, whose last bits differ; its meta.json holds what was taken, and resuming obeys that.
"""

import dataclasses
import json
import logging
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import torch

from rlrun.config.schema import RunConfig, config
from rlrun.engine import products
from rlrun.engine.support import lacking

LOOPS = {"onpolicy": "ppo", "offpolicy": "sac"}  # those whose updates were measured, by which algorithm
NETWORKS = ("auto", "mlp")


@config
class Machine:
    """The file. `compile_from`: for each loop the steps from which a run gains by compiling; null: none does."""

    cpu: str
    cores: int
    torch: str
    compile_from: dict[str, int | None]
    measured: dict[str, float]  # for the reader

    @classmethod
    def of(cls, compile_from: dict[str, int | None], measured: dict[str, float]) -> "Machine":
        return cls(**fingerprint(), compile_from=compile_from, measured=measured)

    def engine(self, run: RunConfig) -> str:
        """What `auto` stands for, in a run on the CPU."""
        pays = self.compile_from.get(run.algo["loop"]["name"])
        known = pays is not None and run.network["name"] in NETWORKS
        return "compile" if known and run.trainer.total_steps >= pays else "auto"

    def summary(self) -> str:
        """For people: what `auto` does here."""
        pays = [f"{loop} runs of {steps:,} steps or more" for loop, steps in self.compile_from.items() if steps]
        return f"compiles {' and '.join(pays) or 'nothing'}, else replays kernels; measured, see {path()}"

    def save(self) -> Path:
        path().parent.mkdir(parents=True, exist_ok=True)
        path().write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n", encoding="utf-8")
        return path()


def path() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "rlrun" / "machine.json"


def fingerprint() -> dict[str, Any]:
    return {"cpu": cpu_name(), "cores": os.cpu_count() or 1, "torch": torch.__version__}


def read() -> Machine | None:
    """What was measured here. None where nothing was, and with a line where the file is of another machine, of another
    torch, or no such file."""
    try:
        found = Machine(**json.loads(path().read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, pydantic.ValidationError):
        return _ignored("it cannot be read")
    differs = [f"{key} {getattr(found, key)}, here {value}" for key, value in fingerprint().items()
               if getattr(found, key) != value]  # fmt: skip
    return _ignored("; ".join(differs)) if differs else found


def follow(run: RunConfig, device: torch.device) -> RunConfig:
    """A run that begins, its `trainer.engine=auto` replaced by what was measured here, if anything was."""
    if run.trainer.engine != "auto" or device.type != "cpu" or (machine := read()) is None:
        return run
    return _with_engine(run, machine.engine(run))


def resumed(run: RunConfig, before: str | None) -> RunConfig:
    """A run that goes on: `trainer.engine=auto` stands for what it stood for when the run began, with `before`."""
    return _with_engine(run, "compile") if (run.trainer.engine, before) == ("auto", "compile") else run


def _with_engine(run: RunConfig, engine: str) -> RunConfig:
    if lacking(engine, torch.device("cpu")):
        return run
    return dataclasses.replace(run, trainer=dataclasses.replace(run.trainer, engine=engine))


def about() -> Iterator[tuple[str, str]]:
    """For `rlrun doctor`: this CPU, the path of matrix products, and what `trainer.engine=auto` does."""
    yield "cpu", f"{cpu_name()}, {torch.backends.cpu.get_cpu_capability()}"
    yield "products", products.rule()
    if why := lacking("auto", torch.device("cpu")):
        yield "auto", f"runs eager: {why}"
    elif known := read():
        yield "auto", known.summary()
    else:
        yield "auto", "replays kernels; rlrun doctor --probe measures whether to compile them"


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _ignored(why: str) -> None:
    logging.getLogger(__name__).warning("%s is ignored: %s; rlrun doctor --probe measures anew", path(), why)
