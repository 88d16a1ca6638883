"""What the console shows of a sweep, on a terminal, in a pipe, and afterwards by `rlrun sweep status`."""

import copy
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sweep import STEPS, make_sweep
from rich.console import Console

import rlrun
from rlrun.cli import main
from rlrun.cluster import Command, Ended
from rlrun.report.statistics import iqm
from rlrun.sweep import display, driver, journal, stored
from rlrun.sweep.driver import Driver
from rlrun.sweep.forecast import forecast
from rlrun.sweep.journal import Event, Journal
from rlrun.sweep.panel import panel
from rlrun.sweep.runs import Outcome
from rlrun.sweep.settings import settings
from rlrun.sweep.standings import job_steps
from rlrun.sweep.stored import Stored
from rlrun.sweep.trials import Result, RungJob, Trial, Trials
from rlrun.sweep.view import SweepView, table
from rlrun.telemetry.panel import PLAIN, UNICODE, Glyphs

COURSES = {"HalfCheetah": STEPS}


@pytest.fixture(scope="module")
def found(tmp_path_factory: Any) -> Stored:
    """A sweep of 27 trials, one of which failed."""
    path = tmp_path_factory.mktemp("sweep") / "sac-HalfCheetah"
    return stored.read(make_sweep(path, 27, failing="nan in the \x1b[31mloss"))


def until(found: Stored, kind: str) -> Trials:
    """Returns the trials just before the first event of a kind."""
    trials = Trials(found.described.envs, found.cfg.seeds, 2)
    for event in journal.read(found.path / "journal.jsonl"):
        if event["event"] == kind:
            return trials
        trials.apply(event)
    raise AssertionError(f"no event {kind}")


def view_of(found: Stored, trials: Trials, running: Sequence[RungJob] = ()) -> SweepView:
    view = SweepView(found.path, found.cfg, COURSES, 27)
    view.see(trials)
    view.move(running)
    return view


def drawn(view: SweepView, width: int, height: int = 40, glyphs: Glyphs = UNICODE) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(panel(view, width, height, glyphs))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_panel_of_a_sweep_shows_trials_at_work_best_and_time_left(found: Stored) -> None:
    trials = until(found, "measured_again")
    job = RungJob(trials.best()[3].number, 2, "HalfCheetah", 0)
    view = view_of(found, trials, [job])
    text = "\n".join(drawn(view, 100))
    best = trials.best()[0]
    assert (
        f"trial {best.number}   so far" in text
        and f"actor_learning_rate={best.values['algo.actor_learning_rate']}" in text
    )
    assert "27 of 27 trials" in text and re.search(r"left about \d+:\d\d", text) and "1 failed" in text
    first = next(line for line in drawn(view, 100) if "training" in line)
    assert first.split()[1] == str(job.trial)
    ended = "\n".join(drawn(view_of(found, found.trials), 100))
    assert f"trial {found.trials.winner}   on 5 fresh seeds" in ended and "100.0%" in ended


@pytest.mark.parametrize("width", [1, 8, 20, 33, 46, 60, 79, 100, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, PLAIN])
def test_panel_of_a_sweep_is_a_closed_box_at_any_width(found: Stored, width: int, glyphs: Glyphs) -> None:
    running = [RungJob(number, 0, "HalfCheetah", 0) for number in range(27)]
    for trials in (Trials(["HalfCheetah"], 2, 2), until(found, "promoted"), found.trials):
        lines = drawn(view_of(found, trials, running[: len(trials)]), width, 24, glyphs)
        assert width < 8 or {len(line) for line in lines} == {min(width, 100)}
        assert width < 60 or len(lines) <= 24, "there is room for lines above it"


def test_live_display_scrolls_lines_above_the_panel(found: Stored) -> None:
    for no_color in (False, True):
        file = io.StringIO()
        terminal = Console(
            file=file, force_terminal=True, width=90, height=30, no_color=no_color, color_system="standard"
        )
        live = display.SweepPanel(SweepView(found.path, found.cfg, COURSES, 27), terminal)
        trials = Trials(["HalfCheetah"], 2, 2)
        for event in journal.read(found.path / "journal.jsonl"):
            trials.apply(event)
            live.say(event, trials)
            live.progress(trials, trials.open_jobs()[:2])
        live.close()
        written = file.getvalue()
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
        assert "measured again with 5 fresh seeds" in text and "27 of 27 trials" in text.rpartition("╭")[2]
        assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", written)) == (not no_color)
        assert len({*re.findall(r"[\d.]+%", text)}) < 6, "not one picture for each event"
        assert "\x1b[31mloss" not in written and "\\x1b[31mloss" in text


def test_pipe_gets_plain_lines(found: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    shown = display.open_display(SweepView(found.path, found.cfg, COURSES, 27))
    assert isinstance(shown, display.SweepLines)
    trials = Trials(["HalfCheetah"], 2, 2)
    for event in journal.read(found.path / "journal.jsonl"):
        trials.apply(event)
        shown.say(event, trials)
        shown.progress(trials, [])
    shown.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trial 0: algo.actor_learning_rate=")
    assert "trial 7, HalfCheetah, seed 0: failed: nan in the \\x1b[31mloss" in lines
    kinds = (
        "train on: ",
        "another seed: ",
        "significantly worse than the best: ",
        "measured again with 5 fresh seeds: ",
    )
    assert all(any(line.startswith(kind) for line in lines) for kind in kinds)
    assert all(line.isprintable() for line in lines)


def test_driver_reports_runs_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "POLL_S", 0.0)
    trials, seen = Trials(["E"], 1, 0), []
    trials.apply({"event": "asked", "points": [[]], "values": [{}]})

    class Fake:
        """A strategy without decisions, runs that fail, and a cluster that ends them at the third look."""

        looks = 0
        folder = tmp_path

        def decision(self) -> Event | None:
            return None

        def prepare(self, job: RungJob, trial: Any) -> None: ...

        def check(self, job: RungJob, trial: Any) -> None: ...

        def is_running(self, job: RungJob) -> bool:
            return False

        def outcome(self, job: RungJob) -> Outcome:
            return Outcome(None, "it failed")

        def command(self, job: RungJob, values: Any) -> list[str]:
            return []

        def log(self, job: RungJob) -> Path:
            return tmp_path / "log"

        def submit(self, commands: Sequence[Command]) -> str:
            self.name = commands[0].name
            return ""

        def adopt(self, commands: Sequence[Command]) -> list[str]:
            return []

        def ended(self) -> list[Ended]:
            self.looks += 1
            return [Ended(self.name, 1)] if self.looks == 3 else []

        def interrupt(self) -> None: ...

        def close(self) -> None: ...

    fake: Any = Fake()
    book = Journal(tmp_path / "journal.jsonl")
    made = Driver(
        fake, trials, book, fake, fake, settings({}), lambda *_: None, lambda _, running: seen.append([*running])
    )
    made.run()
    made.close()
    assert seen == [[RungJob(0, 0, "E", 0)]] * 2


def test_forecast_counts_promotions_seeds_and_fresh_runs(found: Stored) -> None:
    cfg = settings({"trials": 9, "seeds": 2, "prune.eta": 3, "winners": 1, "fresh_seeds": 5, "workers": 2})
    trials = Trials(["HalfCheetah"], 2, 2)
    start = forecast(trials, cfg, COURSES, 9)
    searched = 9 * 2 * STEPS[0] + 3 * 2 * (STEPS[1] - STEPS[0]) + 1 * 2 * (STEPS[2] - STEPS[1])
    assert start.left == pytest.approx(searched + 5 * STEPS[2])
    assert start.left_s() is None and start.fraction_done() == 0
    trials.apply({"event": "asked", "points": [[]] * 9, "values": [{}] * 9})
    which = {"trial": 0, "rung": 0, "env": "HalfCheetah", "seed": 0, "branch": 0}
    trials.apply({"event": "scored", **which, "score": 1.0, "evaluations": [1.0], "seconds": 100.0, "step": 100})
    later = forecast(trials, cfg, COURSES, 9)
    assert later.left == pytest.approx(start.left - STEPS[0]) and later.speed == STEPS[0] / 100
    assert later.left_s() == pytest.approx(later.left / later.speed / 2)
    assert later.left_s(ahead=600.0) == pytest.approx((later.left - 600) / later.speed / 2)
    assert later.fraction_done() == pytest.approx(STEPS[0] / start.left)
    ended = forecast(found.trials, found.cfg, COURSES, 27)
    assert (ended.left, ended.left_s(), ended.fraction_done()) == (0, 0, 1)


def test_job_steps_are_those_after_the_last_rung(found: Stored) -> None:
    trials = until(found, "measured_again")
    best = trials.best()[0].number
    assert job_steps(RungJob(best, 2, "HalfCheetah", 0), trials, COURSES) == STEPS[2] - STEPS[1]
    assert job_steps(RungJob(best, 2, "HalfCheetah", 1000), trials, COURSES) == STEPS[2]


def test_table_counts_the_seeds_that_a_trial_has_done(found: Stored) -> None:
    trials = until(found, "another_seed")
    trials.apply({"event": "another_seed", "trials": [0]})
    view = view_of(found, trials)
    header, first, *_ = table(view.standings, trials, view.names, {0})
    shown = dict(zip(header, first, strict=True))
    assert (shown["trial"], shown["rung"], shown["seeds"], shown["state"]) == ("0", "1/3", "1/2", "training")


def test_status_shows_table_best_and_time_left(
    found: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "status", str(found.path)]) == 0
    said = capsys.readouterr().out
    assert "27 of 27 trials, 0 runs open, done" in said and "over 5 fresh seeds" in said
    assert len(said.splitlines()) == 27 + 3
    events = (found.path / "journal.jsonl").read_text().splitlines(keepends=True)
    for name in ("sweep.yaml", "journal.jsonl"):
        (tmp_path / name).write_text((found.path / name).read_text())
    (tmp_path / "journal.jsonl").write_text("".join(events[:9]))
    assert main(["sweep", "status", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"27 of 27 trials, 19 runs open, about [\d:]+ left, interrupted: the same command", said)


def test_status_counts_the_trials_that_the_search_will_ask_for(
    found: Stored, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A grid may have fewer points than `trials` allows."""
    monkeypatch.setattr(Stored, "planned", 29)
    assert main(["sweep", "status", str(found.path)]) == 0
    assert "27 of 29 trials" in capsys.readouterr().out


def test_status_ranks_the_trials_once(
    found: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sweep.yaml", "journal.jsonl"):
        (tmp_path / name).write_text((found.path / name).read_text())
    lines = (tmp_path / "journal.jsonl").read_text().splitlines(keepends=True)
    end = next(number for number, line in enumerate(lines) if "measured_again" in line)  # whose check ranks them too
    (tmp_path / "journal.jsonl").write_text("".join(lines[:end]))
    compared: list[int] = []
    tie_break = Trial.tie_break
    monkeypatch.setattr(Trial, "tie_break", lambda trial, rung: compared.append(trial.number) or tie_break(trial, rung))
    assert main(["sweep", "status", str(tmp_path)]) == 0
    assert "best so far: trial" in capsys.readouterr().out
    assert len(compared) == len({*compared}) > 20


def test_best_trials_follow_every_event(found: Stored) -> None:
    asked, unasked = (Trials(found.described.envs, found.cfg.seeds, 2) for _ in range(2))
    for event in journal.read(found.path / "journal.jsonl"):
        asked.apply(event)
        unasked.apply(event)
        assert asked.best() == copy.deepcopy(unasked).best()


@pytest.mark.parametrize("count", range(1, 14))
def test_score_is_the_interquartile_mean_over_seeds(count: int) -> None:
    rng = np.random.default_rng(count)
    trial = Trial(0, [], {}, ["E"], count)
    jobs = trial.jobs_with(range(count), 0)
    for job in jobs:
        trial.results[job] = Result(float(rng.normal()), [0.0], 1.0, 100)
    assert trial.score_of(jobs) == pytest.approx(float(iqm([trial.results[job].score for job in jobs])), rel=1e-12)


def status_of(path: Path, *, code: str = "") -> str:
    environment = os.environ | {"PYTHONPATH": str(Path(rlrun.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    text = f"import sys\nfrom rlrun.cli import main\nmain(['sweep', 'status', {str(path)!r}])\n{code}"
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status_imports_no_package_that_takes_long(found: Stored) -> None:
    said = status_of(found.path, code="print({'torch', 'hydra', 'scipy', 'numpy', 'rich'} & sys.modules.keys())")
    assert said.endswith("set()\n")


@pytest.mark.slow
def test_status_of_1000_trials_takes_half_a_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_sweep(tmp_path / "s", 1000)
    spent = []
    for _ in range(3):
        began = time.process_time()
        assert main(["sweep", "status", str(path)]) == 0
        spent.append(time.process_time() - began)
    assert "1000 of 1000 trials" in capsys.readouterr().out
    assert min(spent) < 0.5, "seconds of one core, without the start of Python"
