"""Writes the page of a sweep: one HTML file that needs nothing else."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rlrun.config import sources
from rlrun.dotted import show
from rlrun.errors import ConfigError
from rlrun.report import frame, svg
from rlrun.report.figures import Picture
from rlrun.report.statistics import interval, iqm
from rlrun.report.tables import ReportTable, span
from rlrun.snapshot.atomic import replace_text
from rlrun.sweep import space as spaces
from rlrun.sweep.figures import draw, fresh_scores, measured_again
from rlrun.sweep.settings import typed
from rlrun.sweep.standings import MOST_SHOWN, Standing, ranked, short_names, shown, standings, totals, values_text
from rlrun.sweep.stored import Stored
from rlrun.telemetry.formatting import clock, number

NAME = "report.html"


def write(stored: Stored, folder: Path, command: str) -> Path:
    """Writes the page to `FOLDER/report.html` and returns its path. command: shown as its origin. Raises OSError."""
    path = folder / NAME
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(path, html(stored, command))
    return path


def html(stored: Stored, command: str) -> str:
    """Returns the page."""
    trials = stored.trials
    found = standings(trials)
    best = ranked(trials, found)
    taken = totals(trials, stored.rung_steps)
    readings: list[dict[str, object]] = []
    return frame.render(
        "sweep/page.html",
        style=frame.packaged("sweep/page.css"),
        command=command,
        stored=stored,
        found=found,
        most=MOST_SHOWN,
        best=best,
        headline=headline(stored, best),
        totals=taken,
        time=clock(taken.seconds),
        pictures={picture.name: _panels(picture, readings) for picture in draw(stored)},
        readings={"methods": [f"trial {one.number}" for one in found], "panels": readings},
        winners=winners(stored),
        failures=failures(found),
        table=every_trial(stored),
        settings=setting_rows(stored),
        searched=[(dimension.key, dimension.text) for dimension in stored.space.dimensions],
        repeat=shlex.join(repeating(stored)),
    )


def headline(stored: Stored, best: Sequence[Standing]) -> str:
    """Returns the result of a sweep in one sentence."""
    if not best:
        return "No trial has a score yet."
    first = best[0]
    what = "the best so far"
    if stored.trials.winner is not None:
        first = standings(stored.trials)[stored.trials.winner]
        what = "the winner"
    text = f"Trial {first.number} is {what}"
    if first.fresh is not None:
        return f"{text}, with {number(first.fresh)} on {first.trial.fresh_seeds} fresh seeds."
    if first.score is not None:
        return f"{text}, with a score of {number(first.score)}."
    return f"{text}."


def winners(stored: Stored) -> ReportTable:
    """Returns the table of trials with scores on fresh seeds, best first."""
    found = standings(stored.trials)
    rows = []
    for trial in measured_again(stored.trials):
        strata = fresh_scores(trial)
        fresh = [score for stratum in strata for score in stratum]
        low, high = interval(strata)
        score = found[trial.number].score
        searched = "" if score is None else number(score)
        values = values_text(trial.values, short_names(stored.space.keys))
        rows.append([trial.number, number(float(iqm(fresh))), span(low, high), len(fresh), searched, values])
    header = ("trial", "IQM", "95 % interval", "runs", "score in the search", "values")
    return ReportTable("winners", "Scores on fresh seeds", header, rows, range(5))


def failures(found: Sequence[Standing]) -> ReportTable:
    """Returns the table of runs that failed, with the reasons."""
    rows = []
    for one in found:
        rows += [[one.number, run, why] for run, why in one.trial.failures.items()]
    rows = rows[:MOST_SHOWN]
    return ReportTable("failures", "Runs that failed", ("trial", "run", "reason"), rows, (0,))


def every_trial(stored: Stored) -> ReportTable:
    """Returns the table of all trials, best first, then those without a score."""
    names = short_names(stored.space.keys)
    rows = []
    for one in shown(stored.trials):
        trial = one.trial
        rung = "" if one.rung is None else f"{one.rung + 1} of {stored.trials.last_rung + 1}"
        score = "" if one.score is None else number(one.score)
        fresh = "" if one.fresh is None else number(one.fresh)
        values = [show(trial.values[key]) if key in trial.values else "" for key in names]
        rows.append([one.number, one.state, rung, trial.seeds_started, score, fresh, f"{one.seconds:.1f}", *values])
    header = ("trial", "state", "rung", "seeds", "score", "fresh seeds", "s per run", *names.values())
    return ReportTable("trials", "Every trial", header, rows, (0, *range(3, len(header))))


def setting_rows(stored: Stored) -> list[tuple[str, str]]:
    """Returns the settings of the sweep as text, and the words that all runs share."""
    rows = [(key, show(value)) for key, value in stored.described.sweep.items()]
    return [*rows, *((f"runs on {env}", shlex.join(run["words"])) for env, run in stored.described.runs.items())]


def repeating(stored: Stored) -> list[str]:
    """Returns the command that repeats the sweep, or [] if its space has conditions, which cannot be typed."""
    words = next(iter(stored.described.runs.values()))["words"]
    shared = [word for word in words if not word.startswith("env=")]
    named = _named_space(stored, shared)
    dimensions = stored.space.dimensions
    if stored.cfg.space is not None or all(one.text == named.get(one.key) for one in dimensions):
        dimensions = [one for one in dimensions if one.text != named.get(one.key)]
    if any(one.condition for one in dimensions):
        return []
    ranges = [f"{one.key}={one.text}" for one in dimensions]
    own = [f"{key}={show(value)}" for key, value in typed(asdict(stored.cfg)).items()]
    return ["rlrun", "sweep", *shared, f"env={','.join(stored.described.envs)}", *ranges, *own]


def _named_space(stored: Stored, words: Sequence[str]) -> dict[str, str]:
    """Returns the ranges of the space that the sweep names, or else of its algorithm's, by key; {} if there is none.

    Plug-ins that the sweep names are not read, because it may be untrusted.
    """
    algo = next((word.removeprefix("algo=") for word in words if word.startswith("algo=")), "")
    try:
        found = spaces.named(stored.cfg.space or algo, sources.folders())
    except ConfigError:
        return {}
    return {one.key: one.text for one in found.dimensions}


def _panels(picture: Picture, readings: list[dict[str, object]]) -> dict[str, object]:
    """Returns the values of a picture for the template. Appends curves to `readings`, for the page's script."""
    from markupsafe import Markup

    panels = []
    for panel in picture.panels:
        reading = None
        if any(mark.ends is not None and not panel.rows for mark in panel.marks):
            reading = len(readings)
            readings.append(svg.readings(panel, picture.x_label))
        text = svg.svg(panel, picture.title, len(picture.panels) == 1, reading)
        panels.append({"title": panel.title, "svg": Markup(text)})
    look = f"sweep {picture.name}"
    if picture.panels[0].rows:
        look += " table"
    return {"panels": panels, "look": look, "x_label": picture.x_label, "y_label": picture.y_label}
