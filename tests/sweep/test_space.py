"""Spaces from YAML and from words."""

from typing import Any

import pytest

from rlrun.cli import main
from rlrun.config import sources
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.errors import ConfigError
from rlrun.run.assemble import check_ranges
from rlrun.sweep import space
from rlrun.sweep.ends import faults_of
from rlrun.sweep.ranges import Log, Logit

NAMES = list(sources.options(space.GROUP, [sources.CONF]))
ENVS = {"sac": "Pendulum", "td3": "Pendulum", "iql": "Pendulum"}


@pytest.mark.parametrize("name", NAMES)
def test_algorithm_accepts_both_ends_of_its_space(name: str) -> None:
    words = [f"algo={name}", f"env={ENVS.get(name, 'CartPole')}", "preset=none"]
    (job,) = jobs(words)
    found = space.named(name, [sources.CONF])
    assert space.faults(found, job.values) == []
    for end in (0.0, 0.5, 1 - 1e-9):
        values = found.values([end] * len(found), job.values)
        changed = [f"{key}={space_word(value)}" for key, value in values.items()]
        (tuned,) = jobs([*words, *changed])
        check_ranges(run_config(tuned.values))


def space_word(value: Any) -> str:
    from rlrun.config.compose import literal

    return literal(value)


def test_space_of_yaml_with_a_condition() -> None:
    found = space.from_yaml(
        {
            "algo.buffer.name": {"choice": ["replay", "prioritized"]},
            "algo.buffer.alpha": {"uniform": [0.2, 0.8], "if": {"algo.buffer.name": "prioritized"}},
            "algo.tau": {"log": ["1e-3", 1e-1], "if": {"algo.gamma": [0.9, 0.99]}},
        },
        "my.yaml",
    )
    fixed = {"algo": {"gamma": 0.99}}
    assert found.values([0.9, 0.5, 0.5], fixed) == {
        "algo.buffer.name": "prioritized", "algo.buffer.alpha": 0.5, "algo.tau": 0.01,
    }  # fmt: skip
    assert found.values([0.1, 0.5, 0.5], fixed) == {"algo.buffer.name": "replay", "algo.tau": 0.01}
    assert found.values([0.1, 0.5, 0.5], {"algo": {"gamma": 0.5}}) == {"algo.buffer.name": "replay"}
    assert found.dimensions[1].text == "uniform(0.2,0.8) if algo.buffer.name=prioritized"


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ([], "my.yaml: must be a mapping"),
        ({"a.b": 3}, "my.yaml: a.b: must be a range such as"),
        ({"a.b": {"log": [1, 2], "int": [1, 2]}}, "my.yaml: a.b: must be a range such as"),
        ({"a.b": {"log": [2, 1]}}, r"my.yaml: a.b: log\(2,1\): the first bound"),
        (
            {"a.b": {"int": [1, 2], "if": {"c.d": 1}}, "c.d": {"int": [1, 2]}},
            "a.b: its condition depends on c.d, which",
        ),
    ],
)
def test_faulty_space_has_one_line(values: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=f"^{fault}"):
        space.from_yaml(values, "my.yaml")


def test_ranges_among_words() -> None:
    dimensions, others = space.from_words(["algo=sac", "algo.gamma=logit(0.9,0.999)", "algo.tau=0.01"])
    assert dimensions == [space.Dimension("algo.gamma", Logit(0.9, 0.999), {})]
    assert others == ["algo=sac", "algo.tau=0.01"]
    with pytest.raises(ConfigError, match="searched twice"):
        space.Space([*dimensions, space.Dimension("algo.gamma", Log(0.1, 0.2), {})])


def test_show_prints_a_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "space=sac"]) == 0
    shown = capsys.readouterr().out
    assert "logit(0.9,0.9999)" in shown and "discount per step" in shown
    assert main(["show", "space=sacc"]) == 2
    assert "space=sacc: unknown name; did you mean sac?" in capsys.readouterr().err
    assert main(["show", "space=cem", "algo=sac"]) == 2
    assert "algo.population: unknown key" in capsys.readouterr().err


def test_a_run_takes_no_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "algo=sac", "env=Pendulum", "space=sac"]) == 2
    assert (
        capsys.readouterr().err
        == "error: space=sac: a space is searched by `rlrun sweep`; `rlrun show space=sac` prints it\n"
    )


def test_ends_that_a_run_would_refuse_have_one_line() -> None:
    words = ["algo=sac", "env=Pendulum"]
    assert faults_of([[*words, "algo.gamma=0.5"], [*words, "algo.gamma=0.9"]]) == []
    lines = [[*words, "algo.gamma=2.0"], [*words, "algo.tau=0.0"], [*words, "algo.tau=0.0"]]
    assert faults_of(lines) == [
        "algo.gamma=2.0: must be less than or equal to 1",
        "algo.tau=0.0: must be greater than 0",
    ]
