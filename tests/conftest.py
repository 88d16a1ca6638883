"""How tests are collected and marked; the fixtures are in shared_fixtures.py."""

import gc
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "scripts"))  # whose tools are tested too
UNITS = (
    "addons", "architecture", "buffers", "core", "datasets", "formats", "functional", "loops", "networks", "report",
    "snapshot", "sweep", "telemetry",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Loads the fixtures, unless this process only distributes tests to workers: then it needs no torch."""
    if config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("shared_fixtures")
        for logger in logging.root.manager.loggerDict.values():
            if isinstance(logger, logging.Logger):
                logger.propagate = True  # pytest adds a handler to each of torch's 40 that do not, six times a test


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects without garbage collection, which would visit the objects of torch and of all tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # they stay until the process ends
        gc.set_threshold(10_000)  # in place of 700: a test leaves little that only the collector frees
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before the tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of units as `quick`."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in UNITS and not item.get_closest_marker("slow") and not item.get_closest_marker("full"):
            item.add_marker(pytest.mark.quick)
