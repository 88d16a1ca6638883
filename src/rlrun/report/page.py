"""Writes a report: a self-contained HTML page, every picture as PNG, and every table as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlrun.report import frame, media, png, svg, tables
from rlrun.report.compare import Comparison
from rlrun.report.figures import Picture, draw
from rlrun.report.names import printable, shortened
from rlrun.report.runs import Skipped, StoredRun
from rlrun.report.tables import ReportTable
from rlrun.snapshot.atomic import replace_text

FEW = 6  # with more methods, the page draws bands and single runs fainter, because they overlap

# CSS for each method: hides it if its box is not ticked, and dims all others while the pointer is on its name.
RULES = """\
body:has(#m{0}:not(:checked)) .methods .m{0} {{ display: none }}
body:has([for=m{0}]:hover) .methods .plot [class*=" m"]:not(.m{0}) {{ opacity: .06 }}
body:has([for=m{0}]:hover) .methods .plot .band:not(.m{0}) {{ display: none }}
"""


@dataclass(frozen=True)
class Report:
    """A comparison of runs, and how it is written to a folder."""

    comparison: Comparison
    runs: Sequence[StoredRun]
    skipped: Sequence[Skipped]
    score: str  # key of metrics.jsonl that is compared
    by: Sequence[str] = ()  # config keys that distinguish methods
    steps: Sequence[int] = ()  # steps in the table of scores
    command: str = "rlrun report"

    def write(self, folder: Path) -> Path:
        """Writes the page, its pictures and its tables, and returns the path of the page. Raises OSError."""
        pictures = [*draw(self.comparison, self.score)]
        found = self._tables()
        text = self._html(pictures, found)
        folder.mkdir(parents=True, exist_ok=True)
        for picture in pictures:
            png.save(picture, self.comparison.methods, folder)
        for table in found:
            table.save(folder)
        page = folder / "index.html"
        replace_text(page, text)
        return page

    def _tables(self) -> list[ReportTable]:
        one = self.comparison
        found = [tables.every_run(one, self.runs, self.score, self.by)]
        if one.methods:
            found += [tables.scores(one), tables.at_steps(one, self.steps), tables.chances(one), tables.cost(one)]
            found += [tables.configs(one), tables.unequal(one), tables.curves(one), tables.profiles(one)]
        return found

    def _html(self, pictures: Sequence[Picture], found: Sequence[ReportTable]) -> str:
        from markupsafe import Markup

        methods = self.comparison.methods
        readings: list[dict[str, object]] = []
        panels = {picture.name: _panels(picture, len(methods), readings) for picture in pictures}
        stored, left_out = media.stored_pictures(self.runs)
        states = [run.state for run in self.runs]
        return frame.render(
            "report/page.html",
            style="".join(map(RULES.format, range(len(methods)))),
            command=self.command,
            readings={"methods": [shortened(printable(name)) for name in methods], "panels": readings},
            files=True,
            report=self,
            comparison=self.comparison,
            mixtures=tables.mixtures(self.comparison),
            conditions=tables.conditions(self.comparison),
            pictures=panels,
            stored=stored,
            left_out=left_out,
            swatches=[Markup(svg.swatch(index)) for index in range(len(methods))],
            tables={table.name: table for table in found},
            states={state: states.count(state) for state in dict.fromkeys(states)},
        )


def _panels(picture: Picture, methods: int, readings: list[dict[str, object]]) -> dict[str, object]:
    """Returns the values of a picture for the template. Appends its curves to `readings`, for the page's script."""
    from markupsafe import Markup

    panels = []
    for panel in picture.panels:
        reading = None
        if not panel.rows:
            reading = len(readings)
            readings.append(svg.readings(panel, picture.x_label))
        text = svg.svg(panel, picture.title, len(picture.panels) == 1, reading)
        panels.append({"title": panel.title, "svg": Markup(text)})
    looks = []
    if picture.name != "improvement":
        looks.append("methods")
    if picture.panels[0].rows:
        looks.append("table")
    if methods > FEW:
        looks.append("many")
    return {"panels": panels, "look": " ".join(looks), "x_label": picture.x_label, "y_label": picture.y_label}
