"""What `rlrun list` says about the returns that algorithms have reached."""

import pytest

from rlrun.cli import learning_results
from rlrun.cli.learning_results import SHOWN, LearningResult, of_algorithm


def test_returns_learned_from_data_name_the_data_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = LearningResult("Pendulum", "-1,218", 8000, 5, "algo.loop.data=[expert-v0,random-v0] network.hidden=[64,64]")
    one = LearningResult("Pendulum", "-138", 7000, 5, "algo.loop.data=expert-v0")
    monkeypatch.setattr(learning_results, "results", lambda: {"bc": [mixed], "sac_from_data": [one]})
    assert of_algorithm("bc") == "Pendulum -1,218 (from expert-v0 and random-v0)"
    assert of_algorithm("sac_from_data") == "Pendulum -138 (from expert-v0)"


def test_environments_beyond_those_that_are_shown_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [LearningResult(f"Env{number}", "1.0", 1000, 3, "") for number in range(SHOWN + 2)]
    monkeypatch.setattr(learning_results, "results", lambda: {"ppo": found, "sac": found[:SHOWN]})
    assert of_algorithm("ppo") == "Env0 1.0, Env1 1.0, 2 more"
    assert "more" not in of_algorithm("sac")
