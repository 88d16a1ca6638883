"""Learning curves of the runs that are stored in docs/learning, as SVG."""

import io
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlrun.report.statistics import iqm

INK = "#808080"  # readable on light and dark pages
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # colour-blind readers can distinguish them
WIDTH = 4.9  # inches, about the width of a phone, so that text keeps its size there
HEIGHT = 2.7  # without the legend
LEFT, RIGHT, BELOW, ABOVE = 0.95, 0.4, 0.6, 0.3  # around the axes, for their labels
LEGEND_LINE = 0.2  # height of a line of the legend
LEGEND_LETTERS = 46  # in a line of the legend
FONT = 11


def draw(file: Path) -> tuple[str, str]:
    """Returns a caption as Markdown and the SVG of the runs in a file of docs/learning.

    Draws every seed thinly and the interquartile mean over seeds, one colour for each number of steps and settings.
    """
    kept = json.loads(file.read_text())
    sets: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for run in kept["runs"]:
        sets.setdefault((run["settings"], run["steps"]), []).append(run)
    labels = [_label(steps, settings) for settings, steps in sets]
    legend = 0.0
    if len(sets) > 1:
        legend = LEGEND_LINE * sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(WIDTH, HEIGHT + legend))
    axes = figure.add_axes(_place(legend))
    captions = []
    for place, ((settings, steps), runs) in enumerate(sets.items()):
        colour = COLOURS[place % len(COLOURS)]
        for run in runs:
            axes.plot(run["at"], run["returns"], color=colour, linewidth=0.7, alpha=0.4)
        shared = [run["returns"] for run in runs if run["at"] == runs[0]["at"]]
        middle = [float(iqm(np.array(returns))) for returns in zip(*shared, strict=True)]
        axes.plot(runs[0]["at"], middle, color=colour, linewidth=2, label=labels[place])
        final = float(iqm(np.array([run["returns"][-1] for run in runs])))
        words = f" {settings}" if settings else ""
        command = f"rlrun train algo={kept['algo']} env={kept['env']} trainer.total_steps={steps}{words}"
        captions.append(f"- `{command}`: final return {final:,.4g} over {len(runs)} seed{'s' * (len(runs) > 1)}")
    if legend:
        figure.legend(loc="lower left", fontsize=FONT, frameon=False, labelcolor=INK)
    axes.set_title(f"{kept['algo']} on {kept['env']}", color=INK, fontsize=FONT)
    axes.set_xlabel("steps", color=INK, fontsize=FONT)
    axes.set_ylabel("return of an evaluation", color=INK, fontsize=FONT)
    axes.tick_params(colors=INK, labelsize=FONT)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda steps, _: f"{steps:,.0f}")
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
    return "\n".join(captions), _svg(figure, f"Returns of {kept['algo']} on {kept['env']}")


def _place(legend: float) -> tuple[float, float, float, float]:
    """Returns the place of the axes in a figure, as fractions; fitting it to the labels would take most of the time.

    legend: the height of the legend, in inches.
    """
    height = HEIGHT + legend
    return LEFT / WIDTH, (BELOW + legend) / height, 1 - (LEFT + RIGHT) / WIDTH, (HEIGHT - BELOW - ABOVE) / height


def _label(steps: int, settings: str) -> str:
    """Returns the lines of a legend for runs with these settings."""
    return textwrap.fill(f"{steps:,} steps {settings}", LEGEND_LETTERS, break_long_words=False)


def _svg(figure: Figure, title: str) -> str:
    """Returns a figure as an SVG element that scales with the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Title": title})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace("<svg", '<svg style="max-width: 100%; height: auto"', 1)
