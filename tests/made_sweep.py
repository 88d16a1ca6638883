"""Writes the folder of a sweep without training, for tests of code that shows sweeps."""

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rlrun.sweep import folder
from rlrun.sweep.folder import Description
from rlrun.sweep.journal import Event, Journal
from rlrun.sweep.pruning import pruning
from rlrun.sweep.runs import RunTemplate
from rlrun.sweep.search import Random
from rlrun.sweep.settings import settings
from rlrun.sweep.space import Space, from_yaml
from rlrun.sweep.trials import RungJob, Trials

STEPS = [30_000, 90_000, 300_000]
EVERY = 3_000
SPACE: dict[str, Any] = {
    "algo.actor_learning_rate": {"log": [1e-5, 3e-3]},
    "algo.critic_learning_rate": {"log": [1e-5, 3e-3]},
    "algo.gamma": {"logit": [0.9, 0.9999]},
    "algo.tau": {"uniform": [0.0, 0.05]},
    "algo.buffer.name": {"choice": ["replay", "prioritized"]},
    "algo.buffer.alpha": {"uniform": [0.3, 0.9], "if": {"algo.buffer.name": "prioritized"}},
    "algo.loop.batch_size": {"pow2": [64, 1024]},
    "network.hidden": {"choice": [[64, 64], [256, 256], [400, 300]]},
}


def make_sweep(
    path: Path,
    trials: int,
    envs: tuple[str, ...] = ("HalfCheetah",),
    space: dict[str, Any] = SPACE,
    seeds: int = 2,
    failing: str = "",
    **changes: Any,
) -> Path:
    """Writes a sweep whose score depends on the first learning rate and on gamma alone, and on noise.

    failing: why every 20th trial fails. changes: of the settings.
    """
    searched = from_yaml(space, "space")
    cfg = settings({"trials": trials, "seeds": seeds, "winners": 3, "fresh_seeds": 5} | changes)
    templates = {env: RunTemplate(["algo=sac", f"env={env}"], STEPS) for env in envs}
    path.mkdir(parents=True)
    folder.begin(path, Description.of(cfg, searched, templates))
    book, found = Journal(path / "journal.jsonl"), Trials([*envs], cfg.seeds, len(STEPS) - 1)

    def record(event: Event) -> None:
        book.append(event)
        found.apply(event)

    search = Random(searched, 0, trials)
    fixed = {"algo": {"buffer": {"name": "replay"}}}
    points = [search.ask(number, found) for number in range(trials)]
    record({"event": "asked", "points": points, "values": [searched.values(point, fixed) for point in points]})
    _train(found, searched, record, failing)
    while promoted := pruning(cfg.prune).promoted(found):
        record({"event": "promoted", "trials": [trial.number for trial in promoted]})
        _train(found, searched, record, failing)
    numbers = [trial.number for trial in found.best()[: cfg.winners]]
    record({"event": "measured_again", "trials": numbers, "seeds": cfg.fresh_seeds})
    _train(found, searched, record, failing)
    best = max(numbers, key=lambda number: found.trials[number].fresh_score() or 0.0)
    record({"event": "won", "trial": best})
    book.close()
    return path


def _train(found: Trials, space: Space, record: Callable[[Event], None], failing: str) -> None:
    """Ends all open jobs. The worse half of the trials gets no second seed."""
    while found.open_jobs():
        for job in found.open_jobs():
            if failing and job.trial % 20 == 7:
                record({"event": "failed", **asdict(job), "why": failing})
            else:
                record(_result(job, found, space))
        waiting = [trial for trial in found.trials if not trial.failed and not trial.has_final_seeds]
        waiting.sort(key=lambda trial: -trial.score_of(trial.jobs(0)))
        better = (len(waiting) + 1) // 2
        for name, trials in (("another_seed", waiting[:better]), ("ruled_out", waiting[better:])):
            if trials:
                record({"event": name, "trials": [trial.number for trial in trials]})


def _result(job: RungJob, found: Trials, space: Space) -> Event:
    values = found.trials[job.trial].values
    dimension = space.dimensions[0]
    rate = dimension.range.position(values[dimension.key])
    gamma = next((one.range.position(values[one.key]) for one in space.dimensions if one.key == "algo.gamma"), 0.5)
    quality = math.exp(-8 * (rate - 0.6) ** 2 - 2 * (gamma - 0.7) ** 2)
    steps = np.arange(EVERY, STEPS[job.rung] + 1, EVERY)
    rng = np.random.default_rng([job.trial, job.seed])
    noise = rng.normal(size=STEPS[-1] // EVERY)[: len(steps)]
    rise = -300 + 9000 * quality * (1 - np.exp(-3 * steps / STEPS[-1])) + 250 * noise
    evaluations = [round(float(value), 3) for value in rise]
    seconds = round(float(steps[-1]) / (300 + 500 * rng.random()), 1)
    return {
        "event": "scored", **asdict(job), "step": int(steps[-1]),
        "score": evaluations[-1], "evaluations": evaluations, "seconds": seconds,
    }  # fmt: skip
