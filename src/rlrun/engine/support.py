"""Which engines can be had here: recording rests on inner names of torch, so it is tested for a range of versions."""

import logging
from functools import cache

import torch
from packaging.specifiers import SpecifierSet

from rlrun.config.schema import TrainerConfig
from rlrun.errors import ConfigError, reason

TESTED = ">=2.10,<2.15"  # versions of torch; the same range stands in pyproject.toml


def check(cfg: TrainerConfig, device: torch.device) -> None:
    """Raise ConfigError if the config names an engine that this torch or this device cannot run."""
    why = None if cfg.engine == "auto" else lacking(cfg.engine, device)
    if why:
        raise ConfigError(f"trainer.engine={cfg.engine}: {why}; trainer.engine=eager runs everywhere")


def running(engine: str, device: torch.device) -> str:
    """The engine itself, or `eager` where it cannot be had, which is said once."""
    why = lacking(engine, device)
    if why is None:
        return engine
    _say(f"trainer.engine={engine} runs eager here: {why}")
    return "eager"


def lacking(engine: str, device: torch.device) -> str | None:
    """Why an engine cannot be had here; None where it can."""
    if engine == "eager" or (engine == "auto" and device.type != "cpu"):
        return None
    if engine == "cudagraph" and device.type != "cuda":
        return f"needs device=cuda, and this run is on {device}"
    return _untested() or _broken(engine)


def _untested() -> str | None:
    if SpecifierSet(TESTED).contains(torch.__version__, prereleases=True):
        return None
    return f"torch {torch.__version__} is not among the tested versions ({TESTED})"


@cache
def _broken(engine: str) -> str | None:
    """Why this torch does not do what recording needs: modules cannot be imported, or a small kernel not recorded."""
    try:
        if engine == "compile":
            import rlrun.engine.native
        if engine == "cudagraph":
            import rlrun.engine.graphs  # noqa: F401
        from rlrun.engine.tape import works

        works()
    except Exception as error:  # whatever another torch may raise
        return f"torch {torch.__version__} lacks what recording needs ({reason(error)})"
    return None


@cache
def _say(line: str) -> None:
    logging.getLogger(__name__).warning("%s", line)
