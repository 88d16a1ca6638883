"""What `rlrun list` says about the returns that algorithms have reached."""

import pytest

from rlrun.cli import learning_results
from rlrun.cli.learning_results import SHOWN, LearningResult, of_algorithm


def test_environments_beyond_those_that_are_shown_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [LearningResult(f"Env{number}", "1.0", 1000, 3, "") for number in range(SHOWN + 2)]
    monkeypatch.setattr(learning_results, "results", lambda: {"ppo": found, "sac": found[:SHOWN]})
    assert of_algorithm("ppo") == "Env0 1.0, Env1 1.0, 2 more"
    assert "more" not in of_algorithm("sac")
