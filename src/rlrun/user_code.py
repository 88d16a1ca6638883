"""Modules that the user typed: `plugins=[my_package]`, `env=my_module:My-v0`. Nothing else is looked for in the current
folder, which may be full of files from elsewhere whose names are those of optional packages."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType


def load(module: str) -> ModuleType:
    """Import a module that the user typed. Raises ModuleNotFoundError, and whatever its code raises."""
    with _current_folder_for(module):
        return importlib.import_module(module)


def find(module: str) -> ModuleSpec | None:
    """The package that holds a module that the user typed, found but not imported; None where there is none."""
    with _current_folder_for(module):
        return _spec(module)


def module_of(env_id: str) -> str | None:
    """The module of `module:Id`, which registers the environment; None for an id alone."""
    module, colon, _ = env_id.rpartition(":")
    return module if colon else None


@contextmanager
def _current_folder_for(module: str) -> Iterator[None]:
    """The current folder can be imported from within, unless the module is installed."""
    if _spec(module) is not None:
        yield
        return
    folder = os.getcwd()
    sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)


def _spec(module: str) -> ModuleSpec | None:
    """Of its package at the top. None also for what is no name of a module."""
    top = module.partition(".")[0]
    try:
        return importlib.util.find_spec(top) if top else None
    except (ImportError, ValueError):
        return None
