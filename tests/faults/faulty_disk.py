"""A disk that fails at the nth system call: replaces the os functions that the snapshot store calls.

    with Faulty("write", nth=3, error=errno.ENOSPC): ...      # that call fails, the next one works
    with Faulty("write", nth=3, error=errno.EROFS, lasting=True): ...    # and so does every call from then on
    with Faulty(nth=3): ...                                   # at the third call of any kind the process dies

A dead process does nothing more: every later call raises Killed too, so no `except` and no `finally` can clean up.
Written data stay, as after kill -9. `Faulty().count` is the number of calls that can fail, so new code is covered
automatically.
"""

import os
from typing import Any

import pytest

CHANGING = ("write", "fsync", "replace", "mkdir", "unlink", "link", "rmdir")
CALLS = (*CHANGING, "open", "statvfs")


class Killed(BaseException):
    """Simulates the end of the process."""


class Faulty:
    def __init__(self, call: str | None = None, nth: int = -1, error: int | None = None, lasting: bool = False):
        self.calls = (call,) if call else CALLS
        self.nth, self.error, self.lasting = nth, error, lasting
        self.count = 0  # calls so far
        self.patch = pytest.MonkeyPatch()

    def __enter__(self) -> "Faulty":
        for call in self.calls:
            self.patch.setattr(os, call, self._disturbed(getattr(os, call)))
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def _disturbed(self, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            past = 0 <= self.nth < self.count - 1
            if self.count - 1 == self.nth or (past and (self.lasting or self.error is None)):
                if self.error is None:
                    raise Killed
                raise OSError(self.error, os.strerror(self.error))
            return real(*args, **kwargs)

        return call
