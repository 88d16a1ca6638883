"""`rlrun list algo env=...`, and the algorithms that a refusal names, are those that support the environment."""

import re
from pathlib import Path
from typing import Any

import pytest

from rlrun.cli import main
from rlrun.cli.fitting import fitting
from rlrun.errors import ConfigError

GRIP = """
import gymnasium as gym, numpy as np
from gymnasium.spaces import Box, Dict, Discrete

class Grip(gym.Env):
    observation_space = Box(-1, 1, (2,), np.float32)

    def __init__(self, mixed=False):
        self.action_space = Discrete(2)
        if mixed:
            self.action_space = Dict({"gripper": Discrete(3), "force": Box(-1, 1, (2,), np.float32)})

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}
"""


def say(capsys: Any, *words: str) -> tuple[int, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out + err


@pytest.mark.parametrize(
    ("name", "words", "fitting", "others"),
    [
        ("plain_grip", (), {"ppo", "dqn", "discrete_sac", "cma_es"}, {"sac", "td3", "q_learning", "thompson"}),
        ("mixed_grip", ("env.kwargs.mixed=true",), {"ppo", "a2c", "sac"}, {"dqn", "td3", "discrete_sac", "cma_es"}),
    ],
)
def test_list_algo_with_an_environment_has_the_algorithms_that_support_its_spaces(
    name: str,
    words: tuple[str, ...],
    fitting: set[str],
    others: set[str],
    tmp_path: Path,
    monkeypatch: Any,
    capsys: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"{name}.py").write_text(GRIP)
    code, out = say(capsys, "list", "algo", f"env=./{name}.py:Grip", *words)
    assert code == 0
    listed = {*re.findall(r"^(\w+) ", out, re.MULTILINE)}
    assert fitting <= listed
    assert not others & listed


def test_fitting_algorithms_have_the_settings_that_are_typed(monkeypatch: Any) -> None:
    """A key that no algorithm has, an unknown environment and a lack of memory are no misfits; nothing is tested."""
    monkeypatch.setattr("rlrun.envs.saving.examination._tested", None)
    words = ["env=CartPole", "env.selftest=full"]
    assert [*fitting(["dqn", "ppo"], [*words, "algo.epochs=3"])] == ["ppo"]
    assert [*fitting(["sac_hold", "td3"], ["env=Pendulum"])] == ["sac_hold", "td3"]  # the first one wraps it
    for typed, line in (
        ([*words, "algo.epoch=3"], "algo.epoch: unknown key; did you mean algo.epochs"),
        (["env=CartPol"], "env=CartPol: "),
        (["env=CartPole", "env.kwargs.size=3"], "CartPole-v1 cannot be made"),
    ):
        with pytest.raises(ConfigError, match=re.escape(line)):
            [*fitting(["ppo", "dqn"], typed)]
    monkeypatch.setattr("rlrun.memory.total", lambda *_: 100)
    with pytest.raises(ConfigError, match="GiB of memory, but the total is"):
        [*fitting(["ppo", "dqn"], words)]


@pytest.mark.parametrize(
    ("algo", "env", "named"),
    [("sac", "CartPole", "ppo, dqn, discrete_sac"), ("dqn", "Pendulum", "ppo, sac, td3")],
)
def test_refusal_of_an_environment_names_algorithms_that_support_it(
    algo: str, env: str, named: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out = say(capsys, "train", f"algo={algo}", f"env={env}", "--dry-run")
    assert code == 2
    end = f"which is not supported; algorithms that do: {named} (rlrun list algo env=... lists all)\n"
    assert out.count("\n") == 1
    assert out.endswith(end)
    for other in named.split(", "):
        assert say(capsys, "show", f"algo={other}", f"env={env}", "weights=true")[0] == 0  # it builds the agent
