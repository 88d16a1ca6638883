"""Output on a terminal, in a pipe, and to a stdout that cannot be written to."""

import os
import pty
import re
import select
import subprocess
import sys
import timeit
from types import SimpleNamespace

import pytest

from rlrun.telemetry import Telemetry
from rlrun.telemetry.live import Live
from rlrun.telemetry.loggers import make_loggers
from rlrun.telemetry.view import View

CONSOLE = {"console": {}}

SCRIPT = """
import sys
from pathlib import Path
from rlrun.telemetry.loggers import make_loggers
from rlrun.telemetry import Telemetry
telemetry = Telemetry(Path(sys.argv[1]), make_loggers({"console": {}}), "sac · é", 100, 0)
for step in range(1, 101):
    telemetry.progress(step)
    if step % 20 == 0:
        telemetry.row({"step": step, "wall_s": 1.0, "eval/return_mean": 12.5, "eval/return_std": 0.25})
telemetry.message("snapshot ü :smile: [bold]")
telemetry.close({"status": "done", "step": 100, "best_return": 12.5, "best_step": 20})
print("after the run", flush=True)
print("alive", file=sys.stderr)
"""


def test_console_lines_are_one_per_row_and_plain(tmp_path, capsys):
    telemetry = Telemetry(tmp_path, make_loggers(CONSOLE), "sac", 20_000, 0)
    telemetry.progress(10)
    telemetry.row({"step": 1000, "wall_s": 2.0, "train/return_mean": 12.25, "time/steps_per_s": 512.4})
    telemetry.row({"step": 10_000, "wall_s": 4.0, "eval/return_mean": 3456.7, "eval/return_std": 21.3})
    assert telemetry.times == {"time/steps_per_s": 512.4}, "for the hint at the end"
    telemetry.message("snapshot step_000010000")
    telemetry.close({"status": "stopped", "step": 10_000, "wall_s": 64.0, "final_return": 3456.7})
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r" 1,000/20,000   5%  train    12\.25     512 steps/s  eta +0:37", first)
    assert re.fullmatch(r"10,000/20,000  50%  train        - +[\d,]+ steps/s  eta +\d+:\d\d  eval 3,457 ± 21", second)
    assert rest[0] == "snapshot step_000010000"
    assert rest[1:] == ["stopped: 10,000 of 20,000 steps in 1:04", "last return 3,457", str(tmp_path)]


def test_console_lines_show_success_and_metrics_of_the_user(tmp_path, capsys):
    telemetry = Telemetry(tmp_path, make_loggers(CONSOLE), "ppo", 20_000, 0)
    telemetry.row({"step": 10, "wall_s": 2.0, "train/success_rate": 0.25, "custom/lifted": 3.0})
    telemetry.row({"step": 20, "wall_s": 4.0, "train/success_rate": 0.25, "eval/success_rate": 0.5})
    telemetry.row({"step": 30, "wall_s": 6.0})
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.endswith("  success 0.250  lifted 3.000")
    assert second.endswith("  success 0.500")
    assert "success" not in third


def test_switched_off_says_nothing(tmp_path, capsys):
    telemetry = Telemetry(tmp_path, {}, "sac", 100, 0)
    telemetry.row({"step": 1, "wall_s": 2.0})
    telemetry.message("hello")
    telemetry.close({"status": "done"})
    assert capsys.readouterr() == ("", "")


def run(tmp_path, **settings):
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path)]
    return {"args": command, "env": environment | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"} | settings}


@pytest.mark.parametrize("settings", [{}, {"FORCE_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}])
def test_console_writes_no_control_codes_to_a_pipe(tmp_path, settings):
    done = subprocess.run(**run(tmp_path, **settings), capture_output=True, check=True)
    assert b"\x1b" not in done.stdout
    assert done.stdout.count(b"\n") == 5 + 1 + 3 + 1
    assert (b"+/-" if settings.get("PYTHONIOENCODING") else "±".encode()) in done.stdout


def test_console_survives_a_closed_pipe(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(**run(tmp_path), stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"alive\n")


def on_terminal(tmp_path, **settings):
    """Returns all output of the run to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(**run(tmp_path, **settings), stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    written = b""
    while select.select([ours], [], [], 20)[0]:
        try:
            written += os.read(ours, 65536)
        except OSError:  # Linux: the other end is closed
            break
    os.close(ours)
    assert process.wait(20) == 0
    return written.decode()


@pytest.mark.parametrize("settings", [{}, {"NO_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}])
def test_console_shows_a_panel_on_a_terminal(tmp_path, settings):
    written = on_terminal(tmp_path, **settings)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", written)) == ("NO_COLOR" not in settings)
    assert ("╭" in text) == ("PYTHONIOENCODING" not in settings)
    first, last = text.split(":smile: [bold]")
    assert " of 100 steps" in first, "drawn at once"
    assert {len(line) for line in re.findall("╭.*╮", text)} <= {80 - len("^C")}
    assert "100 of 100 steps" in last and "100.0%" in last and "best return 12.50 at step 20" in last
    assert "\x1b[?25h" in written.partition(" of ")[0]  # the cursor is visible at once, also after a sudden end
    assert text.count(" of 100 steps") < 12  # not one picture for each of a hundred ticks in some milliseconds


def test_panel_moves_with_the_run_when_it_is_due(tmp_path):
    view, drawn = View("sac", tmp_path, 100, []), []
    surface = SimpleNamespace(is_due=True, draw=lambda _: drawn.append(view.step))
    live = Live(view, surface)
    live.progress(7)
    surface.is_due = False
    live.progress(8)
    assert drawn == [7]


def test_console_prints_lines_on_a_dumb_terminal(tmp_path):
    assert "\x1b" not in on_terminal(tmp_path, TERM="dumb")


def test_console_progress_is_cheap(tmp_path):
    telemetry = Telemetry(tmp_path, make_loggers(CONSOLE), "sac", 100, 0)
    assert min(timeit.repeat(lambda: telemetry.progress(1), number=10_000, repeat=5)) / 10_000 < 2e-6
    telemetry.close({})
