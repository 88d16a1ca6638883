"""Whether a resumed run goes on bit for bit, and if not, why."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from rlrun import engine
from rlrun.config.schema import RunConfig
from rlrun.core.loop import Loop
from rlrun.envs import verdicts
from rlrun.run.data import data_digests
from rlrun.run.provenance import provenance

DECISIVE = ("device", "gpu", "threads", "engine", "precision", "products", "cpu")  # of meta.json, beside all versions


def facts(config: RunConfig, loop: Loop) -> dict[str, Any]:
    """meta.json: what made this run, and everything outside the config that can change a bit."""
    return provenance() | {
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": str(loop.env.device),
        "gpu": torch.cuda.get_device_name(loop.env.device) if loop.env.device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "engine": engine.running(config.trainer.engine, loop.env.device),
        "precision": config.trainer.precision,
        "products": engine.matmul_rule(),
        "env_state": loop.env.method,
        "data": data_digests(loop),
        "selftest": loop.env.verdict and asdict(loop.env.verdict),
    }


def decided(config: RunConfig, before: dict[str, Any]) -> RunConfig:
    """A run that goes on, with what `trainer.engine=auto` stood for when it began, and what was known of its envs."""
    _recall_self_tests(before)
    return engine.resumed(config, before.get("engine"))


def _recall_self_tests(before: dict[str, Any]) -> None:
    """Environments that are still what they were are not tested again."""
    for facts in [before, *before.get("resumed", [])]:
        verdicts.recall(facts.get("selftest"))


def verdict(before: dict[str, Any], now: dict[str, Any], others: Sequence[str], format: int) -> str:
    """`exact`, or `not exact, because ...`. `others`: verdicts of the environments and of the files, empty or `exact`
    where nothing is wrong. A snapshot of format 1 does not record the files."""
    reasons = [f"{key} {before.get(key)} -> {now[key]}" for key in DECISIVE if before.get(key) != now[key]]
    old, new = before.get("versions", {}), now["versions"]
    reasons += [f"{name} {old.get(name)} -> {new.get(name)}" for name in new if old.get(name) != new[name]]
    reasons += [other.removeprefix("not exact, because ") for other in others if other not in ("", "exact")]
    if reasons:
        return f"not exact, because {'; '.join(reasons)}"
    return "exact" if format > 1 else "exact as far as a snapshot of format 1 can tell"
