"""Keeps environments from changing settings of the process in which they and the training run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rlrun.errors import ConfigError

FOLDER = "the working directory"


@contextmanager
def unchanged(name: str) -> Iterator[None]:
    """As a context manager, restores settings of this process that the environment `name` has changed.

    Raises ConfigError if it has changed one that the training uses too, except for the number of torch's threads, which
    is only restored.
    """
    before = _settings()
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        after = _settings()
        os.chdir(before[FOLDER])
        torch.set_default_dtype(before["torch's default dtype"])
        torch.set_grad_enabled(before["torch's gradient mode"])
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
    for what, value in after.items():
        if value != before[what]:
            raise _changed(name, what, value)


def check_folder(name: str, folder: str) -> None:
    """Raises ConfigError, after a return to `folder`, if the environment `name` has changed the working directory.

    Unlike `unchanged`, it costs only a microsecond.
    """
    try:
        now = os.getcwd()
    except FileNotFoundError:  # someone has deleted the folder
        return
    if now != folder:
        os.chdir(folder)
        raise _changed(name, FOLDER, now)


def _changed(name: str, what: str, value: object) -> ConfigError:
    return ConfigError(
        f"env {name}: sets {what} to {value}, which the training in the same process uses; env.backend=async "
        "runs every environment in a process of its own"
    )


def _settings() -> dict[str, Any]:
    return {
        FOLDER: os.getcwd(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's gradient mode": torch.is_grad_enabled(),
    }
