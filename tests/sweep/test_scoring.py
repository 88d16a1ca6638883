"""Scores of runs from their evaluations."""

import pytest

from rlrun.errors import ConfigError
from rlrun.sweep.scoring import Scoring
from rlrun.sweep.settings import settings

STEPS, EVALUATIONS = [100, 200, 300], [10.0, 40.0, 30.0]


@pytest.mark.parametrize(
    ("words", "score"),
    [
        ({}, 30.0),
        ({"score": "mean"}, 80 / 3),
        ({"score": "speed", "score.target": 35.0}, 1 - 200 / 1000),
        ({"score": "speed", "score.target": 50.0}, 0.0),
        ({"cost": 4.0}, 30.0 - 4.0 * 90 / 60),
    ],
)
def test_score_of_a_run(words: dict[str, object], score: float) -> None:
    scoring = Scoring(settings(words), ["CartPole"])
    assert scoring.score(STEPS, EVALUATIONS, seconds=90.0, total_steps=1000) == pytest.approx(score)


def test_normalised_evaluations_are_comparable_between_environments() -> None:
    bounds = {"CartPole": [20, 500], "Acrobot": [-500, -80]}
    scoring = Scoring(settings({"normalize": bounds}), ["CartPole", "Acrobot"])
    assert scoring.normalized("CartPole", 260) == 0.5
    assert scoring.normalized("Acrobot", -80) == 1.0


@pytest.mark.parametrize(
    ("words", "envs", "fault"),
    [
        ({}, ["CartPole", "Acrobot"], r"normalize: .*add normalize=\{CartPole: \[LOW, HIGH\]\}"),
        ({"normalize": {"Cartpole": [0, 1]}}, ["CartPole"], r"normalize.Cartpole: this sweep has no env=Cartpole"),
        ({"normalize": {"CartPole": [1, 0]}}, ["CartPole"], r"must be two rising numbers"),
        ({"score": "speed"}, ["CartPole"], "score.target: missing; give it a value with score.target=..."),
        ({"score.target": 3.0}, ["CartPole"], "score.target: belongs to score=speed"),
    ],
)
def test_settings_that_do_not_fit(words: dict[str, object], envs: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        Scoring(settings(words), envs)
