"""Determines whether a resumed run continues bit for bit, and if not, why."""

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch

from rlrun import engine, imports
from rlrun.config.schema import RunConfig
from rlrun.core.loop import Loop
from rlrun.engine import Engine
from rlrun.envs.same_spaces import described
from rlrun.envs.saving import verdicts
from rlrun.errors import ConfigError
from rlrun.run.data import data_digests
from rlrun.run.provenance import provenance, versions

# keys of meta.json that, like the versions of packages, can change bits of the result
DECISIVE = ("device", "gpu", "threads", "engine", "precision", "products", "cpu")


class Machine(NamedTuple):
    """What of a machine and of a process can change bits of what shards do there."""

    versions: dict[str, str]  # of Python, rlrun and packages
    cpu: str  # instructions that torch uses
    threads: int  # of torch
    products: str  # library that multiplies matrices

    @classmethod
    def here(cls) -> "Machine":
        """Returns this machine and process."""
        cpu = torch.backends.cpu.get_cpu_capability()
        return cls(versions(), cpu, torch.get_num_threads(), engine.matmul_rule())

    def check(self) -> None:
        """Raises ConfigError if what a worker does in this process may differ from what it would do there."""
        now = self.here()
        reasons = _differences(self.versions, now.versions, now.versions)
        reasons += _differences(self._asdict(), now._asdict(), ("cpu", "threads", "products"))
        if reasons:
            raise ConfigError(
                f"a worker on {socket.gethostname()} would not give the results of the run: {'; '.join(reasons)}"
            )


def facts(config: RunConfig, loop: Loop) -> dict[str, Any]:
    """Returns the content of meta.json: provenance, and what besides the config can change bits of the result."""
    gpu = None
    if loop.env.device.type == "cuda":
        gpu = torch.cuda.get_device_name(loop.env.device)
    selftest = None
    if loop.env.verdict is not None:
        selftest = asdict(loop.env.verdict)
    return provenance() | {
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": str(loop.env.device),
        "gpu": gpu,
        "threads": torch.get_num_threads(),
        "engine": engine.running(config.trainer.engine, loop.env.device),
        "precision": config.trainer.precision,
        "products": engine.matmul_rule(),
        "env_state": loop.env.method,
        "spaces": described(loop.env.spec),
        "data": data_digests(loop),
        "selftest": selftest,
    }


def with_chosen_engine(config: RunConfig, device: torch.device) -> RunConfig:
    """Returns the config of a new run, with `trainer.engine=auto` replaced by the engine for this machine."""
    if config.trainer.engine != "auto":
        return config
    loop, network = config.algo["loop"]["name"], config.network["name"]
    return _with_engine(config, engine.chosen(loop, network, config.trainer.total_steps, device))


def with_stored_engine(config: RunConfig, before: dict[str, Any]) -> RunConfig:
    """Returns the config of a resumed run, with `trainer.engine=auto` replaced by the engine at the start of the run.

    Also reuses the recorded results of self-tests.
    """
    _recall_self_tests(before)
    return _with_engine(config, engine.resumed(config.trainer.engine, before.get("engine")))


def _with_engine(config: RunConfig, name: Engine) -> RunConfig:
    return replace(config, trainer=replace(config.trainer, engine=name))


def _recall_self_tests(before: dict[str, Any]) -> None:
    """Adds the recorded self-test verdicts to the cache, so that unchanged environments are not tested again."""
    for process in [before, *before.get("resumed", [])]:
        verdicts.recall(process.get("selftest"))


def verdict(before: dict[str, Any], now: dict[str, Any], others: Sequence[str]) -> str:
    """Returns `exact`, or `not exact, because ...`.

    before, now: meta.json at the start and `facts` of this process. others: verdicts about environments, log and data
    sets; "" and "exact" mean no fault.
    """
    reasons = _differences(before, now, DECISIVE)
    reasons += _differences(before.get("versions", {}), now["versions"], now["versions"])
    reasons += [f"{path} has changed" for path in imports.changed(before.get("code", {}))]
    reasons += [other.removeprefix("not exact, because ") for other in others if other not in ("", "exact")]
    if reasons:
        return f"not exact, because {'; '.join(reasons)}"
    return "exact"


def _differences(before: Mapping[str, object], now: Mapping[str, object], keys: Iterable[str]) -> list[str]:
    """Returns `key old -> new` for each key whose values differ."""
    return [f"{key} {before.get(key)} -> {now[key]}" for key in keys if before.get(key) != now[key]]
