"""Processes of rlrun that import torch, as forks of the process of the tests, which has imported it.

The processes themselves are tested in tests/cluster, tests/faults and tests/sweep/test_plan.py.
"""

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver
from typing import NoReturn

import pytest
from faults.rows.processes import aside

from rlrun.cli import main
from rlrun.cluster import local, server
from rlrun.sweep import ends


@contextmanager
def forked() -> Iterator[None]:
    """Lets grids, sweeps and the checks of spaces fork this process instead of starting Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "start_server", Server)
        patch.setattr(ends, "_queried", queried)
        yield


def queried(query: str, *arguments: Sequence[Sequence[str]]) -> list[str]:
    return aside(partial(ends.QUERIES[query], *arguments))


class Server:
    """The server of a grid or a sweep, with what `Forks` uses of `subprocess.Popen`."""

    def __init__(self) -> None:
        requests, ours = os.pipe()
        results, theirs = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(ours)
            os.close(results)
            _serve(requests, theirs)
        os.close(requests)
        os.close(theirs)
        self.stdin, self.stdout = os.fdopen(ours, "wb", 0), os.fdopen(results, "rb", 0)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


def _serve(requests: int, results: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        os.dup2(requests, 0)
        os.dup2(results, 1)
        os.close(requests)
        os.close(results)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)  # pytest has put others in their place
        forkserver._forkserver.__init__()  # type: ignore[attr-defined, misc]  # its process is no child of this one
        server.serve(main)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
