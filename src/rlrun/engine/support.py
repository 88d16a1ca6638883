"""Checks which engines run here. Recording uses private names of torch, so it needs one of the tested versions."""

import logging
from functools import cache

import torch
from packaging.specifiers import SpecifierSet

from rlrun.errors import ConfigError, reason

TESTED = ">=2.10,<2.15"  # versions of torch; pyproject.toml has the same range


def check(engine: str, device: torch.device) -> None:
    """Raises ConfigError if the config names an engine that this torch or this device cannot run."""
    if engine == "auto":
        return
    why = lacking(engine, device)
    if why:
        raise ConfigError(f"trainer.engine={engine}: {why}; trainer.engine=eager runs everywhere")


def running(engine: str, device: torch.device) -> str:
    """Returns `engine`, or "eager" with one warning if `engine` does not run on this device with this torch."""
    why = lacking(engine, device)
    if why is None:
        return engine
    _warn_once(f"trainer.engine={engine} runs eager here: {why}")
    return "eager"


def lacking(engine: str, device: torch.device) -> str | None:
    """Returns why an engine does not run on this device with this torch, or None if it does."""
    if engine == "eager" or (engine == "auto" and device.type != "cpu"):
        return None
    if engine == "cudagraph" and device.type != "cuda":
        return f"needs device=cuda, but this run is on {device}"
    return _untested() or _broken(engine)


def _untested() -> str | None:
    if SpecifierSet(TESTED).contains(torch.__version__, prereleases=True):
        return None
    return f"torch {torch.__version__} is not among the tested versions ({TESTED})"


@cache
def _broken(engine: str) -> str | None:
    """Imports the modules of an engine and records a small kernel. Returns what fails with this torch, or None."""
    try:
        if engine == "compile":
            import rlrun.engine.inductor
        if engine == "cudagraph":
            import rlrun.engine.graphs  # noqa: F401
        from rlrun.engine.tape import works

        works()
    except Exception as error:  # an unknown version of torch may raise anything
        return f"torch {torch.__version__} lacks what recording needs ({reason(error)})"
    return None


@cache
def _warn_once(line: str) -> None:
    logging.getLogger(__name__).warning("%s", line)
