"""Records which tests execute which lines: a plug-in of pytest, of which a copy is a module of the probed source.

The plug-in writes the name of the current test to a file that the processes of the test map into memory. Before and
after the test itself this is the name of its file, because other tests of the file may share what is set up.
"""

import mmap
import os

import pytest

FOLDER = os.environ["MUTANTS_FOLDER"]
SIZE = 1024  # of the file with a name
seen: set[tuple[int, bytes]] = set()

if __name__ == "mutation.probe":
    os.environ["MUTANTS_NOW"] = f"{FOLDER}/now-{os.getpid()}"
    with open(os.environ["MUTANTS_NOW"], "wb") as file:
        file.write(bytes(SIZE))
with open(os.environ["MUTANTS_NOW"], "r+b") as file:
    now = mmap.mmap(file.fileno(), SIZE)


def hit(number: int) -> None:
    """Records that the current test executes the line with this number."""
    name = now[:]
    if (number, name) not in seen:
        seen.add((number, name))
        with open(f"{FOLDER}/hits.tsv", "ab", buffering=0) as file:
            file.write(b"%d\t%s\n" % (number, name.rstrip(b"\0")))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Names the file of a test that is set up."""
    now[:] = item.nodeid.partition("::")[0].encode().ljust(SIZE, b"\0")


def pytest_runtest_call(item: pytest.Item) -> None:
    """Names a test that begins."""
    now[:] = item.nodeid.encode()[:SIZE].ljust(SIZE, b"\0")


pytest_runtest_teardown = pytest_runtest_setup
