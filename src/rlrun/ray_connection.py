"""Connects this process to a Ray cluster."""

import contextlib
import os
import socket
from logging import ERROR
from types import ModuleType

from rlrun.errors import ConfigError, one_line
from rlrun.imports import check_extra
from rlrun.operating_system import cache_folder

NAMESPACE = "rlrun"
CONNECT_S = 5.0  # within which a cluster must accept a connection


def connected(address: str, key: str, choice: str) -> ModuleType:
    """Connects to a cluster, unless this process is connected to one, and returns the module ray.

    key: of the address in the config, like `cluster.address`. choice: the setting that needs Ray, like `cluster=ray`.
    Raises ConfigError if Ray is not installed, or if there is no such cluster.
    """
    check_extra("ray", choice)
    if fault := unanswered(address):
        raise ConfigError(f"{key}={address}: {fault}; `ray start --head` starts a cluster on this machine")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if not ray.is_initialized():
        silence(ray)
    nowhere = cache_folder() / "empty"
    nowhere.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.chdir(nowhere):  # Ray's workers search this folder for modules before any other
            ray.init(
                address=address,
                namespace=NAMESPACE,
                ignore_reinit_error=True,  # every evaluation connects
                log_to_driver=False,
                logging_level=ERROR,
            )
    except Exception as error:  # Ray raises plain exceptions, too
        line = one_line(error).partition(". ")[0]
        raise ConfigError(f"{key}={address}: {line}; `ray start --head` starts a cluster on this machine") from None
    return ray


def silence(ray: ModuleType) -> None:
    """Keeps Ray from printing paragraphs about lost actors and machines, each of which the run reports in a line.

    Ray has no public setting for this (2.60).
    """
    with contextlib.suppress(AttributeError):
        ray._private.worker._worker_logs_enabled = False


def unanswered(address: str) -> str:
    """Returns why nobody answers at an address HOST:PORT, or "". Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return ""
    try:
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        return f"nobody answers there ({one_line(error)})"
    return ""
