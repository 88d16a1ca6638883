"""Stores evaluations of finished runs in docs/learning/, and writes docs/learning.md and the summary that `rlrun list`
shows from them.

    ./scripts/learning runs/ppo-CartPole     # stores these runs and rewrites the table
    ./scripts/learning                       # rewrites the table

There is one file per algorithm and environment, with one line per run: the command, the machine, and every evaluation.
A run with the same words and seed as a stored run replaces it.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlrun.cli.learning_results import FILE as SUMMARY
from rlrun.report.runs import StoredRun, read
from rlrun.report.statistics import interval, iqm
from rlrun.telemetry.formatting import clock, number

DOCS = Path(__file__).parents[2] / "docs"
PLACES = ("run_dir=", "name=", "logger", "resume=", "device=")  # keys that do not change what is learned
PACKAGES = ("torch", "gymnasium", "mujoco", "ale-py")
SCORE = "eval/return_mean"

HEAD = """\
# What is learned

This page is written by `./scripts/learning` from the evaluations in [learning/](learning); `./scripts/learning RUNS...`
adds runs. Final: the interquartile mean of the last evaluations of all seeds, with a 95 % bootstrap interval over
seeds. Threshold: what `tests/learning` requires of a run of that many steps, with how many seeds reached it. Time: wall
time of the median run; machines differ. Returns under limits leave out the limited components, and the best ones
exceeded their limits: [Rewards under limits](limits.md).

| algorithm | environment | steps | settings | seeds | final | 95 % interval | best | threshold | time |
|---|---|---:|---|---:|---:|---:|---:|---:|---:|
"""
TESTS = """
The tests below, in `tests/`, show what the other algorithms learn, and check that each variant differs from its base
algorithm:

| algorithm | learns | differs |
|---|---|---|
"""


def keep(run: StoredRun, folder: Path) -> Path:
    """Stores a finished run in its file. Raises ValueError if the run is not finished."""
    points = [(row["step"], round(row[SCORE], 4)) for row in run.rows if SCORE in row]
    if run.state != "done" or not points:
        raise ValueError(f"not finished ({run.state} at {run.step:,} of {run.total_steps:,} steps)")
    path = folder / f"{run.algo}-{_env(run).replace('/', '_').replace(':', '_')}.json"
    kept = json.loads(path.read_text())["runs"] if path.exists() else []
    line = _line(run, points)
    kept = [old for old in kept if (old["settings"], old["steps"], old["seed"]) != _key(line)] + [line]
    kept.sort(key=lambda old: (old["settings"], old["steps"], old["seed"]))
    lines = ",\n".join(f"  {json.dumps(old)}" for old in kept)
    head = json.dumps({"algo": run.algo, "env": _env(run)}).removesuffix("}")
    folder.mkdir(exist_ok=True)
    path.write_text(f'{head}, "runs": [\n{lines}\n]}}\n')
    return path


def page(folder: Path, promises: dict[str, tuple[int, float]], learns: dict[str, str], apart: dict[str, str]) -> str:
    """Returns docs/learning.md. promises: "algo env" -> (steps, minimum final return); others: algo -> test."""
    rows = ((algo, learns.get(algo, "above"), apart.get(algo, "")) for algo in sorted(learns | apart))
    return table(folder, promises) + TESTS + "".join(f"| `{algo}` | {one} | {other} |\n" for algo, one, other in rows)


def table(folder: Path, promises: dict[str, tuple[int, float]]) -> str:
    rows = [_row(kept, *about, lines, promises) for kept, sets in _kept(folder) for about, lines in sets.items()]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def summary(folder: Path, learns: dict[str, str], presets: dict[str, str]) -> str:
    """Returns the text of learning_results.json, with the best settings and number of steps for each environment.

    presets: what presets without stored runs reached.
    """
    runs: dict[str, list[dict[str, Any]]] = {}
    for kept, sets in _kept(folder):
        finals = {about: float(iqm(np.array([line["returns"][-1] for line in lines]))) for about, lines in sets.items()}
        settings, steps = max(finals, key=lambda about: (finals[about], not about[0]))
        seeds = len(sets[settings, steps])
        result = {"env": kept["env"], "final": number(finals[settings, steps]), "steps": steps, "seeds": seeds}
        runs.setdefault(kept["algo"], []).append(result | {"settings": settings})
    lines = ",\n".join(f"  {json.dumps(algo)}: {json.dumps(results)}" for algo, results in runs.items())
    tests = json.dumps(sorted(learns))
    return f'{{"runs": {{\n{lines}\n}},\n"tests": {tests},\n"presets": {json.dumps(presets, indent=1)}}}\n'


def _kept(folder: Path) -> Iterable[tuple[dict[str, Any], dict[tuple[str, int], list[dict[str, Any]]]]]:
    """Yields the content of each file in docs/learning, and its runs by settings and steps."""
    for path in sorted(folder.glob("*.json")):
        kept = json.loads(path.read_text())
        sets: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for line in kept["runs"]:
            sets.setdefault((line["settings"], line["steps"]), []).append(line)
        yield kept, sets


def _row(
    kept: dict[str, Any], settings: str, steps: int, lines: list[dict[str, Any]], promises: dict[str, tuple[int, float]]
) -> list[str]:
    final = np.array([line["returns"][-1] for line in lines])
    best = np.array([max(line["returns"]) for line in lines])
    low, high = map(float, interval([final]))
    promised_steps, least = promises.get(f"{kept['algo']} {kept['env']}", (0, 0.0))
    threshold = ""
    if promised_steps == steps and not settings:
        threshold = f"{number(least)}: {int((final >= least).sum())} of {len(final)}"
    span = f"{number(low)} to {number(high)}" if np.isfinite(low) else ""
    shown = f"`{settings}`" if settings else ""
    seconds = clock(float(np.median([line["wall_s"] for line in lines])))
    figures = [str(len(lines)), number(float(iqm(final))), span, number(float(iqm(best))), threshold, seconds]
    return [f"`{kept['algo']}`", kept["env"], f"{steps:,}", shown, *figures]


def _line(run: StoredRun, points: Sequence[tuple[int, float]]) -> dict[str, Any]:
    steps, returns = zip(*points, strict=True)
    versions = run.meta.get("versions", {})
    return {
        "seed": run.seed,
        "steps": run.total_steps,
        "settings": " ".join(_settings(run)),
        "wall_s": round(run.last("wall_s") or 0.0, 1),
        "git": run.meta.get("git"),
        "versions": {name: versions[name] for name in PACKAGES if name in versions},
        "at": [*steps],
        "returns": [*returns],
    }


def _settings(run: StoredRun) -> list[str]:
    """Returns the typed settings, except names, seed and periods of evaluation."""
    own = {"algo", "env", "seed", "trainer"}
    words = [f"{key}={value}" for key, value in run.typed.items() if key not in own]
    settings = [word for word in words if not word.startswith("trainer.") or word.startswith("trainer.precision=")]
    return sorted(word for word in settings if not word.startswith(PLACES))


def _env(run: StoredRun) -> str:
    return run.typed.get("env", run.env)


def _key(line: dict[str, Any]) -> tuple[str, int, int]:
    return line["settings"], line["steps"], line["seed"]


def main(places: Iterable[str], docs: Path = DOCS, short: Path = SUMMARY) -> int:
    from catalogue import APART, ELSEWHERE, PRESETS
    from test_thresholds import PROMISES

    runs, skipped = read(map(Path, places))
    faults = [f"{folder.path}: {folder.reason}" for folder in skipped]
    for run in runs:
        try:
            keep(run, docs / "learning")
        except ValueError as error:
            faults.append(f"{run.path}: {error}")
    (docs / "learning.md").write_text(page(docs / "learning", PROMISES, ELSEWHERE, APART))
    short.write_text(summary(docs / "learning", ELSEWHERE, PRESETS))
    for fault in faults:
        print(f"skipped {fault}", file=sys.stderr)
    print(f"{docs / 'learning.md'}: {len(runs)} runs added" if runs else f"{docs / 'learning.md'} written")
    return 1 if faults else 0


if __name__ == "__main__":
    if {"--help", "-h"} & {*sys.argv}:
        print(__doc__)
    else:
        sys.exit(main(sys.argv[1:]))
