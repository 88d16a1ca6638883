"""Whether the next seed of a trial is worth its steps: a trial that is significantly worse than the best one gets none.

Evaluations of the same seed at the same step are compared in pairs (F-Race, Birattari et al. 2002, with the test of
Wilcoxon).
"""

from collections.abc import Sequence

from rlrun.sweep.trials import Trial, Trials

LEVEL = 0.05  # of the one-sided test
FEWEST = 5  # pairs; with fewer, no difference is significant at this level


def undecided(trials: Trials) -> tuple[list[Trial], list[Trial]]:
    """Returns the trials that get another seed, and those that are ruled out, of those whose runs have all ended."""
    another, ruled_out = [], []
    for trial in trials.trials:
        if trial.failed or trial.fresh_seeds or trial.is_complete or not trial.has_ended(trial.jobs(trial.rung)):
            continue
        if is_worse(trial, incumbent(trials, trial), trial.rung):
            ruled_out.append(trial)
        else:
            another.append(trial)
    return another, ruled_out


def incumbent(trials: Trials, other: Trial) -> Trial:
    """Returns the best trial at the rung of `other`, by the seeds that `other` has."""
    seeds = range(other.seeds_started)
    best, score = other, other.score_of(other.jobs(other.rung))
    for trial in trials.trials:
        jobs = trial.jobs(other.rung, seeds)
        if not trial.failed and trial.has_ended(jobs) and trial.score_of(jobs) > score:
            best, score = trial, trial.score_of(jobs)
    return best


def is_worse(trial: Trial, best: Trial, rung: int) -> bool:
    """Returns whether the evaluations of a trial are significantly below those of the best one."""
    seeds = range(trial.seeds_started)
    pairs: list[tuple[float, float]] = []
    for job, other in zip(trial.jobs(rung), best.jobs(rung, seeds), strict=True):
        pairs += zip(trial.results[job].evaluations, best.results[other].evaluations, strict=False)
    pairs = [(one, other) for one, other in pairs if one != other]
    return len(pairs) >= FEWEST and p_value(pairs) < LEVEL


def p_value(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns the probability of such pairs or lower first values, if both sides had the same distribution."""
    from scipy.stats import wilcoxon

    return float(wilcoxon([one - other for one, other in pairs], alternative="less").pvalue)
