"""The end of a sweep: the best trials train again with fresh seeds, which the search has not used."""

from rlrun.sweep.journal import Event
from rlrun.sweep.settings import SweepConfig
from rlrun.sweep.trials import WORST, Trials


def finals(trials: Trials, cfg: SweepConfig) -> Event | None:
    """Returns the next event after the search: the one that starts the best trials on fresh seeds, then the one that
    names the winner. Returns None if there is no winner."""
    if trials.finals_have_begun:
        return winner(trials)
    best = trials.best()
    if not best:
        return None
    if not cfg.winners:
        return {"event": "won", "trial": best[0].number}
    numbers = [trial.number for trial in best[: cfg.winners]]
    return {"event": "measured_again", "trials": numbers, "seeds": cfg.fresh_seeds}


def winner(trials: Trials) -> Event | None:
    """Returns the event that names the winner, the trial with the best score on fresh seeds.

    Returns None if a run on fresh seeds failed in every trial that was measured again.
    """
    scores = []
    for trial in trials.trials:
        score = trial.fresh_score()
        if score is not None and score > WORST:
            scores.append((score, -trial.number))  # of trials with equal scores, the first wins
    if not scores:
        return None
    return {"event": "won", "trial": -max(scores)[1]}


def without_winner(trials: Trials) -> str:
    """Returns why a sweep that has ended has no winner."""
    if not trials.finals_have_begun:
        return "no trial has a score"
    run, why = next(failure for trial in trials.trials if trial.fresh_seeds for failure in trial.failures.items())
    return f"no winner, because runs of all the best trials failed on fresh seeds ({run}: {why})"
