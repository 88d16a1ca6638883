"""The report as files: one HTML page that needs nothing else, beside it every picture as PNG and every table as CSV."""

import importlib.resources
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlrun import __version__
from rlrun.report import tables
from rlrun.report.compare import Comparison
from rlrun.report.figures import Picture, draw
from rlrun.report.runs import Run, Skipped
from rlrun.report.tables import Table


@dataclass(frozen=True)
class Report:
    comparison: Comparison
    runs: Sequence[Run]
    skipped: Sequence[Skipped]
    score: str  # the key of metrics.jsonl that is compared
    by: Sequence[str] = ()  # keys of the config that tell methods apart
    steps: Sequence[int] = ()  # of the table of scores
    command: str = "rlrun report"

    def write(self, folder: Path) -> Path:
        """Returns the page. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        pictures = [*draw(self.comparison, self.score)]
        found = self._tables()
        for picture in pictures:
            picture.save(folder)
        for table in found:
            table.save(folder)
        page = folder / "index.html"
        page.write_text(self._html(pictures, found), encoding="utf-8")
        return page

    def _tables(self) -> list[Table]:
        one = self.comparison
        found = [tables.every_run(one, self.runs, self.score, self.by)]
        if one.methods:
            found += [tables.scores(one), tables.at_steps(one, self.steps), tables.chances(one), tables.cost(one)]
            found += [tables.configs(one), tables.curves(one), tables.profiles(one)]
        return found

    def _html(self, pictures: Sequence[Picture], found: Sequence[Table]) -> str:
        import jinja2

        room = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        template = (importlib.resources.files("rlrun.report") / "page.html").read_text(encoding="utf-8")
        states = [run.state for run in self.runs]
        return room.from_string(template).render(
            report=self,
            comparison=self.comparison,
            pictures={picture.name: picture for picture in pictures},
            tables={table.name: table for table in found},
            states={state: states.count(state) for state in dict.fromkeys(states)},
            made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            version=__version__,
        )
