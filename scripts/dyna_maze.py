"""Counts the real steps until Dyna-Q and Q-learning find the shortest path: `python scripts/dyna_maze.py [OUT]`.

Uses Sutton and Barto's maze and 3 seeds, and evaluates the greedy policy every 50 steps. Epsilon is 0.5, because with
the book's 0.1 all agents stay on a path of 16 or 18 steps for a long time. Takes a few minutes. OUT is the picture
(default: docs/dyna_maze.png), which shows the length of the greedy path (median over seeds) against real steps.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

import matplotlib

from rlrun.cli import main

SEEDS, EVERY, SHORTEST, CAP = 3, 50, 14, 100
AGENTS = {  # label of the agent: its settings, and the number of real steps
    "q_learning": (["algo=q_learning"], 8000),
    "dyna_q (5 planned)": (["algo=dyna_q", "algo.planning_steps=5"], 3000),
    "dyna_q (20 planned)": (["algo=dyna_q", "algo.planning_steps=20"], 2000),
    "dyna_q (5 planned, prioritized)": (["algo=dyna_q", "algo.planning_steps=5", "algo.prioritized=true"], 3000),
}
SETTINGS = [
    "env=DynaMaze", "algo.gamma=0.95", "algo.epsilon.start=0.5", "algo.epsilon.end=0.5", "algo.learning_rate=0.1",
    f"trainer.eval_every={EVERY}", "trainer.eval_episodes=1", f"trainer.eval_max_steps={CAP}",
    "trainer.snapshot_every=0", "logger=[]",
]  # fmt: skip


def lengths(words: list[str], seed: int, steps: int, folder: Path) -> list[int]:
    """Trains an agent. Returns the length of the greedy path at every `EVERY` steps, `CAP` if it misses the goal."""
    total = [f"trainer.total_steps={steps}", f"seed={seed}", f"run_dir={folder}"]
    if main(["train", *words, *SETTINGS, *total]):
        raise SystemExit(f"{' '.join(words)}: the run failed")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [int(row["eval/length_mean"]) for row in rows]


def settled(way: list[int]) -> float:
    """Returns the real steps after which the greedy path is the shortest for the first time, or infinity."""
    if SHORTEST not in way:
        return float("inf")
    return (way.index(SHORTEST) + 1) * EVERY


def draw(ways: dict[str, list[list[int]]], out: Path) -> None:
    """Writes the picture, with the median over seeds for each agent."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for agent, runs in ways.items():
        median = [statistics.median(column) for column in zip(*runs, strict=True)]
        axes.plot([(i + 1) * EVERY for i in range(len(median))], median, label=agent)
    axes.axhline(SHORTEST, color="k", ls=":", lw=1, label="shortest way")
    axes.set(xlabel="real steps", ylabel=f"greedy way, median of {SEEDS} seeds", xscale="log", yscale="log")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out, dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    ways: dict[str, list[list[int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for agent, (words, steps) in AGENTS.items():
            places = [Path(folder) / f"{len(ways)}-{seed}" for seed in range(SEEDS)]
            ways[agent] = [lengths(words, seed, steps, place) for seed, place in enumerate(places)]
            found = [settled(way) for way in ways[agent]]
            middle, low, high = statistics.median(found), min(found), max(found)
            print(f"{agent:30} {middle:8,.0f} real steps (median), {low:,.0f} to {high:,.0f}", flush=True)
    draw(ways, Path(sys.argv[1] if len(sys.argv) > 1 else "docs/dyna_maze.png"))
