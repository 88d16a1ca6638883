"""The data sets that a loop reads and writes, in the units of its environments."""

from pathlib import Path

from rlrun.buffers.demos import Demo
from rlrun.core.loop import Loop
from rlrun.datasets.demonstrations import DataEnv, read, write
from rlrun.datasets.folders import digests


class DataSets:
    """Reads data sets that fit the environments of a loop, and notes their digests in `Loop.digests`.

    data_env: whether data sets of other environments are allowed.
    """

    def __init__(self, loop: Loop, data_env: DataEnv):
        self.loop, self.data_env = loop, data_env

    def read(self, key: str, data: str | None) -> list[Demo]:
        """Returns the episodes of a data set, or [] for None. key: the setting that names it."""
        if data is None:
            return []
        self.loop.digests |= digests(key, data)
        return read(key, data, self.loop.env, self.data_env)

    def write(self, folder: str, demos: list[Demo]) -> None:
        """Writes episodes as a data set, in place of one that is there."""
        write(Path(folder), demos, self.loop.env)
