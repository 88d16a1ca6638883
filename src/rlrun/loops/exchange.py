"""Exchange of demonstrations between runs: a run saves its best episodes, and reads those that others save."""

import logging
from pathlib import Path
from typing import Any

from rlrun.core.loop import Loop
from rlrun.datasets.demonstrations import check_replaceable, holds_demonstrations
from rlrun.errors import ConfigError
from rlrun.loops.data_sets import recorded, save


class Exchange:
    """Saves to `buffer.cfg.save_to`, and reads the data sets in the folder `buffer.cfg.supplementary`."""

    def __init__(self, buffer: Any):
        self.buffer = buffer
        self.read: list[str] = []  # names of the supplementary data sets that were read
        cfg = buffer.cfg
        if cfg.save_to:
            check_replaceable(f"algo.buffer.save_to={cfg.save_to}", Path(cfg.save_to))
        if cfg.supplementary and not Path(cfg.supplementary).is_dir():
            line = "algo.buffer.supplementary=%s: there is no such folder yet; it is searched once it exists"
            logging.getLogger(__name__).warning(line, cfg.supplementary)

    def run(self, loop: Loop) -> None:
        """Saves the best episodes of the agent, and reads the supplementary data sets that were not read before."""
        cfg = self.buffer.cfg
        best = self.buffer.best()
        if cfg.save_to and best:
            save(loop, cfg.save_to, best)
        if not cfg.supplementary or not Path(cfg.supplementary).is_dir():
            return
        for folder in sorted(Path(cfg.supplementary).iterdir()):
            if folder.name in self.read or not holds_demonstrations(folder):
                continue
            self.read.append(folder.name)
            try:
                for found in recorded(loop, "algo.buffer.supplementary", str(folder), cfg.data_env):
                    self.buffer.add_success(found | {"kind": "own"})
            except ConfigError as error:  # a bad data set of another run must not end this run
                logging.getLogger(__name__).warning("data set left out: %s", error)
            self.buffer.evict()
