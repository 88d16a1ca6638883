"""Compares the regret of the multi-armed bandit agents with theory: `python scripts/bandit_regret.py [OUT]`.

Plays 100 Bernoulli bandits with arms (0.1, 0.3, 0.5, 0.7, 0.9) for 10,000 pulls each, and draws the picture OUT
(default: docs/bandit_regret.png). The exit code is 1 if the regret of UCB1 exceeds its bound, or that of Thompson
sampling is at least twice the Lai-Robbins rate.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

import matplotlib

from rlrun.cli import main

ARMS = (0.1, 0.3, 0.5, 0.7, 0.9)
SEEDS, PULLS = 100, 10_000
ALGOS = ("epsilon_greedy", "ucb", "bayesian_ucb", "thompson", "gradient_bandit")
GAPS = [max(ARMS) - arm for arm in ARMS if arm < max(ARMS)]


def ucb1_bound(t: int) -> float:
    """Returns the upper bound of UCB1's regret after t pulls (Auer, Cesa-Bianchi and Fischer 2002, theorem 1)."""
    return 8 * math.log(t) * sum(1 / gap for gap in GAPS) + (1 + math.pi**2 / 3) * sum(GAPS)


def lai_robbins(t: int) -> float:
    """Returns the asymptotic lower bound of any consistent policy's regret after t pulls (Lai and Robbins 1985)."""
    return math.log(t) * sum(gap / divergence(max(ARMS) - gap, max(ARMS)) for gap in GAPS)


def divergence(p: float, q: float) -> float:
    """Returns the KL divergence of two Bernoulli distributions."""
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def curve(algo: str, folder: Path) -> tuple[list[int], list[float], float]:
    """Trains an agent. Returns numbers of pulls, the mean regret after each of them, and the seconds of training."""
    words = ["train", f"algo={algo}", "env=BernoulliBandit", f"env.kwargs.reward_probs={list(ARMS)}".replace(" ", "")]
    words += [f"env.kwargs.bandits={SEEDS}", "env.kwargs.contexts=own", f"env.num_envs={SEEDS}"]
    words += [f"trainer.total_steps={SEEDS * PULLS}", f"trainer.log_every={SEEDS * 50}", f"run_dir={folder / algo}"]
    if main([*words, "logger=[]"]):
        raise SystemExit(f"{algo}: the run failed")
    rows = [json.loads(line) for line in (folder / algo / "metrics.jsonl").read_text().splitlines()]
    wall = json.loads((folder / algo / "summary.json").read_text())["wall_s"]
    return [row["step"] // SEEDS for row in rows], [row["train/regret_total"] for row in rows], wall


def draw(curves: dict[str, tuple[list[int], list[float], float]], out: Path) -> None:
    """Writes the picture: the regret of every algorithm, and the two bounds."""
    matplotlib.use("svg" if out.suffix == ".svg" else "agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for algo, (pulls, regret, _) in curves.items():
        axes.plot(pulls, regret, label=algo)
    pulls = curves["ucb"][0]
    axes.plot(pulls, [ucb1_bound(t) for t in pulls], "k--", lw=1, label="UCB1's bound")
    axes.plot(pulls, [lai_robbins(t) for t in pulls], "k:", lw=1, label="Lai-Robbins rate")
    axes.set(xscale="log", yscale="log", xlabel="pulls", ylabel=f"regret, mean of {SEEDS} runs")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out, dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        curves = {algo: curve(algo, Path(folder)) for algo in ALGOS}
    for algo, (_, regret, wall) in curves.items():
        print(f"{algo:16} regret {regret[-1]:7.1f}   {SEEDS} x {PULLS:,} pulls in {wall:.1f} s")
    print(f"UCB1's bound {ucb1_bound(PULLS):.1f}, Lai-Robbins rate {lai_robbins(PULLS):.1f}")
    draw(curves, Path(sys.argv[1] if len(sys.argv) > 1 else "docs/bandit_regret.png"))
    kept = all(regret < ucb1_bound(t) for t, regret in zip(*curves["ucb"][:2], strict=True))
    sys.exit(not (kept and curves["thompson"][1][-1] < 2 * lai_robbins(PULLS)))
