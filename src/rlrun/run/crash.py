"""Saves a snapshot after an exception: the state at the end of the last tick of which a copy was kept.

The state of the process itself may be half of an update, so it is never saved.
"""

import sys

from rlrun.errors import SnapshotError
from rlrun.snapshot.store import Store, step_of


def save(policy: str, store: Store, error: str) -> str:
    """Writes the copy that a store holds, as `trainer.snapshot_at_crash` says.

    Returns what to print after the error: a line that begins with a line break, or "" without a copy.
    """
    name = store.held
    if name is None:
        return ""
    what = f"the state of step {step_of(name):,}"
    if policy == "ask" and not agreed(f"{error}\nsave {what}, from before this error? [Y/n] "):
        return f"\n  {what} is not saved"
    try:
        store.wait()
        store.save_held()
        store.wait()
    except SnapshotError as fault:
        return f"\n  {what} is not saved: {fault}"
    return f"\n  {what} is saved"


def agreed(question: str) -> bool:
    """Returns whether the user at the terminal does not answer no. Returns True without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        return True
    try:
        answer = input(question)
    except EOFError:
        print()
        return True
    return answer.strip().lower() not in ("n", "no")
