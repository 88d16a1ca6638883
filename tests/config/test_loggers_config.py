"""The section `logger`: chosen as a list, changed by a resume, and read in its earlier form."""

from pathlib import Path
from typing import Any

import pytest

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.loggers import folded, named
from rlrun.config.resumable import setting, word
from rlrun.errors import ConfigError

PAIR = ("algo=sac", "env=Pendulum")
STORED: dict[str, Any] = {"seed": 1, "logger": {"console": {}, "far": {"project": "mine"}}}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["console", "tensorboard"]),
        (["logger=[]"], []),
        (["logger=csv"], ["csv"]),
        (["logger=[csv,console]"], ["csv", "console"]),
        (["logger.console=false"], ["tensorboard"]),
        (["logger.console=false", "logger.tensorboard=false"], []),
        (["logger=[csv]", "logger.tensorboard=true"], ["csv", "tensorboard"]),
    ],
)
def test_loggers_are_chosen_as_a_list_and_by_the_earlier_switches(words: list[str], expected: list[str]) -> None:
    (job,) = jobs([*PAIR, *words])
    assert list(job.values["logger"]) == expected


def test_sweep_over_lists_of_loggers_has_a_job_for_each() -> None:
    found = jobs([*PAIR, "logger=[csv],[console,csv]"], multirun=True)
    assert [list(job.values["logger"]) for job in found] == [["csv"], ["console", "csv"]]


def test_earlier_switch_gives_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *PAIR, "logger.console=false", "--cfg", "job"]) == 0
    assert capsys.readouterr().err == (
        "logger.console=false: valid for one more version; write a list of the loggers that are on, "
        "like logger=[console] or logger=[]\n"
    )


@pytest.mark.parametrize(
    ("words", "section"),
    [
        ({"logger": ["csv", "far"]}, {"csv": {"digits": None}, "far": {"project": "mine"}}),
        ({"logger": "csv"}, {"csv": {"digits": None}}),
        ({"logger": []}, {}),
        ({"logger.far.project": "other"}, {"console": {}, "far": {"project": "other"}}),
        ({"logger.console": False, "logger.tensorboard": True}, {"far": {"project": "mine"}, "tensorboard": {}}),
        ({"logger": {"csv": {}}}, {"csv": {}}),
    ],
)
def test_words_of_a_resume_become_the_new_section(words: dict[str, Any], section: dict[str, Any]) -> None:
    assert folded({"seed": 2, **words}, STORED) == {"seed": 2, "logger": section}
    assert STORED["logger"]["far"] == {"project": "mine"}, "the stored values stay as they are"
    key, value = setting(word("logger", section))
    assert (key, value) == ("logger", section), "as overrides.yaml holds it"


def test_resume_without_words_about_loggers_changes_none() -> None:
    assert folded({"seed": 2}, STORED) == {"seed": 2}
    assert folded({"logger": []}, {"logger": "hostile"}) == {"logger": {}}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"logger": ["cvs"]}, "logger=cvs: unknown name; did you mean csv?"),
        ({"logger.near.project": "x"}, r"logger.near.project: unknown key; .* with logger=\[console,far,near\]"),
        ({"logger.far": 1}, "logger.far: unknown key"),
    ],
)
def test_resume_refuses_unknown_loggers(words: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        folded(words, STORED)


def test_named_are_the_loggers_that_the_user_typed() -> None:
    assert named({"logger": ["a", "b"], "logger.c.d.e": 1, "logger.f": False, "seed": 1}) == {"a", "b", "c", "f"}
    assert named({"logger": {"a": {}}}) == {"a"}
    assert named({"logger": "a"}) == {"a"}
    assert named({"total_steps": 2}) == set()


def test_settings_of_a_logger_are_checked_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "algo=ppo", "env=CartPole", "logger=[csv]", "logger.csv.x=1", f"run_dir={tmp_path / 'run'}"]
    assert main(words) == 2
    assert capsys.readouterr().err == "error: logger.csv.x: unknown key\n"
    assert not (tmp_path / "run").exists()
