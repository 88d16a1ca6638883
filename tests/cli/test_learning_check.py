"""`rlrun doctor --learn` reports agents that do not learn."""

from pathlib import Path

import pytest

from rlrun.cli import doctor, learning_check, main
from rlrun.cli.learning_check import LearningCheck

TINY = "env=CartPole algo.loop.episodes=1"


def test_doctor_trains_agents_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learning_check, "CHECKS", [LearningCheck(f"algo=cem {TINY}", 100, 5.0)])
    monkeypatch.setattr(doctor, "_unmet", lambda package: [])
    assert main(["doctor", "--learn"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("no problems found; this installation learns\n")
    assert f"algo=cem {TINY}: return " in out and "was expected" not in out
    assert not list(tmp_path.iterdir())


def test_doctor_reports_an_agent_that_does_not_learn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        learning_check,
        "CHECKS",
        [LearningCheck(f"algo=cem {TINY}", 100, 501.0), LearningCheck("algo=nop env=Nothing", 100, 0.0)],
    )
    assert main(["doctor", "--learn"]) == 1
    out = capsys.readouterr().out
    assert f"problem: algo=cem {TINY}: return " in out and "but at least 501 was expected" in out
    assert "problem: algo=nop env=Nothing: env=Nothing: unknown environment" in out


@pytest.mark.slow
def test_agents_of_the_doctor_learn(capsys: pytest.CaptureFixture[str]) -> None:
    assert learning_check.problems() == []
    assert capsys.readouterr().out.count(": return ") == len(learning_check.CHECKS)
