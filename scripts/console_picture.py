"""Draws the live panel of a run as an SVG picture: `python scripts/console_picture.py RUN [STEP] [OUT]`.

The panel shows the run at STEP (default: its end). OUT is the SVG file (default: docs/console.svg).
"""

import io
import sys
from pathlib import Path

import yaml
from rich.console import Console

from rlrun.telemetry.metrics import read_rows
from rlrun.telemetry.panel import UNICODE, panel
from rlrun.telemetry.view import View


def picture(run: Path, step: int) -> str:
    """Returns the panel of `run` at `step`, as SVG text."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    rows = [row for row in read_rows(run / "metrics.jsonl") if row["step"] <= step]
    algo, _, env = run.resolve().parent.name.partition("-")
    view = View(config["name"] or f"{algo}-{env}", run, config["trainer"]["total_steps"], rows)
    view.speed = view.step / view.elapsed_s
    console = Console(record=True, width=88, file=io.StringIO(), force_terminal=True)
    console.print(panel(view, console.width, UNICODE, colours=True))
    return console.export_svg(title=f"rlrun train algo={algo} env={env}")


if __name__ == "__main__":
    run, step, out, *_ = [*sys.argv[1:], "", ""]
    Path(out or "docs/console.svg").write_text(picture(Path(run), int(step or sys.maxsize)))
