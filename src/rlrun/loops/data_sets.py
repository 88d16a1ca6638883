"""The data sets that a loop reads and writes, in the units of its environments."""

from pathlib import Path

from rlrun.buffers.demos import Demo
from rlrun.core.loop import Loop
from rlrun.datasets import demonstrations
from rlrun.datasets.demonstrations import DataEnv
from rlrun.datasets.folders import digests


def recorded(loop: Loop, key: str, data: str | None, data_env: DataEnv) -> list[Demo]:
    """Returns the episodes of a data set, or [] for None, and notes its digest in `Loop.digests`.

    key: the setting that names it. data_env: whether data sets of other environments are allowed.
    """
    if data is None:
        return []
    loop.digests |= digests(key, data)
    return demonstrations.read(key, data, loop.env, data_env)


def save(loop: Loop, folder: str, demos: list[Demo]) -> None:
    """Writes episodes as a data set, in place of one that is there."""
    demonstrations.write(Path(folder), demos, loop.env)
