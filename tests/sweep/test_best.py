"""The preset file that a sweep writes."""

from pathlib import Path

import pytest

from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError
from rlrun.sweep.best import preset_text

WORDS = ["algo=dqn", "env=CartPole", "algo.buffer=prioritized", "network=mlp", "network.hidden=[32]", "env.num_envs=2",
         "trainer='quick'", "algo.buffer.alpha=0.5", "seed=7", "device=cpu"]  # fmt: skip
VALUES = {"algo.gamma": 0.9, "algo.epsilon.end": 0.02}


@pytest.mark.parametrize("more", [[], ["preset=none"]])
def test_preset_gives_a_run_the_settings_of_the_winner(more: list[str], tmp_path: Path) -> None:
    words = [*WORDS, *more]
    file = tmp_path / "best.yaml"
    file.write_text(preset_text(words, VALUES, "best of 3 trials"))
    (preset,) = jobs(["algo=dqn", "env=CartPole", f"preset={file}"])
    (trial,) = jobs([*words, *(f"{key}={value}" for key, value in VALUES.items())])
    for section in ("algo", "network", "env", "trainer"):
        assert preset.values[section] == trial.values[section]
    assert preset.values["seed"] == 0 and preset.values["preset"] == str(file)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("plugins: [./mine.py]", "sets plugins, but may set only defaults, trainer, env, network, algo"),
        ("env: {id: ./mine.py:Env}", "sets env.id; choose the environment with env=..."),
        ("- 3", "must be a mapping"),
        ("algo: {_target_: os.system}", "_target_ is not allowed"),
    ],
)
def test_untrusted_preset_cannot_name_code(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"# @package _global_\n{text}\n")
    with pytest.raises(ConfigError, match=fault):
        jobs(["algo=dqn", "env=CartPole", f"preset={file}"])


def test_preset_file_that_does_not_exist_has_one_line() -> None:
    with pytest.raises(ConfigError, match=r"preset=no/best.yaml: no such file"):
        jobs(["algo=dqn", "env=CartPole", "preset=no/best.yaml"])
