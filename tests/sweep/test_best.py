"""The preset file that a sweep writes."""

from pathlib import Path

import pytest

from rlrun.cli.new import filled, write
from rlrun.config import sources
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


def test_preset_of_a_network_from_a_file_needs_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("my_net"), filled("network", "my_net"))
    words = sources.by_name(["algo=ppo", "env=CartPole", "network=./my_net/my_net.py"])
    Path("best.yaml").write_text(preset_text(words, {}, "best of 1 trial"))
    chosen = ["algo=ppo", "env=CartPole", "preset=./best.yaml"]
    (preset,) = jobs([*chosen, "plugins=[./my_net/my_net.py]"])
    assert preset.values["network"]["name"] == "my_net"
    with pytest.raises(ConfigError, match=r"network=my_net: unknown name .*; if it is yours, add plugins=\[FILE\]"):
        jobs(chosen)


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
