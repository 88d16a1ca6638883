"""Racing: a trial that is significantly worse than the best one gets no further seed.

The evaluations of two trials with the same seed at the same step form a pair (F-Race, Birattari et al. 2002). The pairs
are compared with Wilcoxon's signed-rank test.
"""

from collections.abc import Sequence

from rlrun.sweep.trials import Trial, Trials

LEVEL = 0.05  # of the one-sided test
FEWEST = 5  # pairs; with fewer, no difference is significant at this level


def race(trials: Trials) -> tuple[list[Trial], list[Trial]]:
    """Decides about all trials that need a decision about their next seed. Returns those that get another seed, and
    those that are ruled out."""
    another: list[Trial] = []
    ruled_out: list[Trial] = []
    for trial in trials.trials:
        if not trial.needs_seed_decision:
            continue
        if is_worse(trial, incumbent(trials, trial), trial.rung):
            ruled_out.append(trial)
        else:
            another.append(trial)
    return another, ruled_out


def incumbent(trials: Trials, trial: Trial) -> Trial:
    """Returns the trial with the best score at the rung of `trial`, computed from the seeds that `trial` has."""
    seeds = range(trial.seeds_started)
    best = trial
    best_score = trial.score_of(trial.jobs(trial.rung))
    for candidate in trials.trials:
        jobs = candidate.jobs_with(seeds, trial.rung)
        if candidate.failed or not candidate.has_results(jobs):
            continue
        score = candidate.score_of(jobs)
        if score > best_score:
            best = candidate
            best_score = score
    return best


def is_worse(trial: Trial, best: Trial, rung: int) -> bool:
    """Returns whether the evaluations of a trial are significantly below those of the best one."""
    seeds = range(trial.seeds_started)
    pairs: list[tuple[float, float]] = []
    for job, best_job in zip(trial.jobs(rung), best.jobs_with(seeds, rung), strict=True):
        pairs += zip(trial.results[job].evaluations, best.results[best_job].evaluations, strict=False)
    pairs = [(own, other) for own, other in pairs if own != other]  # equal values say nothing about the order
    return len(pairs) >= FEWEST and p_value(pairs) < LEVEL


def p_value(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns the p-value of Wilcoxon's one-sided test, which is small if the first values tend to be lower."""
    from scipy.stats import wilcoxon

    return float(wilcoxon([own - other for own, other in pairs], alternative="less").pvalue)
