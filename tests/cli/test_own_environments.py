"""Environments, wrappers and networks of a user or of other packages work as typed, or give a one-line error."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from own_files import LINE

import rlrun
from rlrun.cli import main
from rlrun.errors import ConfigError

QUIET = ["trainer.total_steps=64", "trainer.eval_episodes=1", "trainer.eval_max_steps=20", "logger=[]"]  # fmt: skip

OWN_ENV = (
    LINE
    + """
class Broken(Line):
    def __init__(self):
        assert self.action_space.n == 3

class Strange(Line):
    def __init__(self):
        raise KeyError("port")

class Jax(Line):
    def __init__(self):
        import jax

class Texts(Line):
    observation_space = gym.spaces.Dict({"at": gym.spaces.Discrete(5), "task": gym.spaces.Text(9)})

    def reset(self, **given):
        return {"at": 0, "task": "walk"}, {}

    def step(self, action):
        return {"at": 1, "task": "walk"}, 1.0, True, False, {}

gym.register("OwnLine-v0", "own_env:Line")
"""
)

OWN_PARTS = '''
import gymnasium as gym
import torch
from rlrun.settings import config
from rlrun.settings import register

@register("wrapper", "own_doubled")
class Doubled(gym.RewardWrapper):
    """Rewards times a number."""

    @config
    class Config:
        factor: float | None
        parts: list[int]

    def __init__(self, cfg, env):
        super().__init__(env)

@register("wrapper", "own_unset")
class Unset(gym.Wrapper):
    def __init__(self, cfg, env):
        super().__init__(env)

@register("network", "own_unset")
class Net(torch.nn.Module):
    class Config:  # no @config
        width: int
'''

SUITE = """
import gymnasium

def register_envs():
    gymnasium.register("OwnSuite/Line-v1", "own_env:Line")
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: Any) -> Iterator[Path]:
    """An empty working directory, next to modules that can be imported."""
    files = {
        "own_env.py": OWN_ENV,
        "own_parts.py": OWN_PARTS,
        "own_fault.py": "raise RuntimeError('no licence')",
        "own_needs.py": "import minigrid",
        "own_suite/__init__.py": "",
        "own_suite/gym.py": SUITE,
        "conf/network/own_unset.yaml": "# mine\nname: own_unset\nwidth: 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    """Removes the modules and registrations of earlier tests."""
    for names in (sys.modules, gym.registry):
        for name in [name for name in names if name.lower().startswith("own")]:
            del names[name]


@pytest.mark.parametrize(
    "words",
    [
        ["plugins=[own_env]", "env=OwnLine-v0"],
        ["env=own_env:Line", "env.kwargs.limit=5"],
        ["env=own_suite:OwnSuite/Line-v1"],
        ["env=own_env:Texts", "env.wrappers.hide.entries=[task]"],
    ],
    ids=" ".join,
)
def test_env_from_a_module_trains(words: list[str], workplace: Path) -> None:
    assert main(["train", "algo=ppo", *words, *QUIET]) == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["env=OwnLin-v0", "plugins=[own_env]"], "env=OwnLin-v0: unknown environment; did you mean OwnLine-v0?"),
        (["env=OwnLine-v0", "plugins=[own_fault]"],
         "plugins: cannot import 'own_fault' (RuntimeError: no licence in own_fault, line 1)"),
        (["env=CartPole", "plugins=[own_fault]"], "plugins: cannot import 'own_fault' (RuntimeError: no licence"),
        (["env=own_needs:X"], "cannot import 'own_needs' (import of minigrid halted; None in sys.modules; pip install"),
        (["env=own_env.py:Line"], "env=own_env.py: no such file"),
        (["env=own_env:Broken"], "env: own_env:Broken cannot be made (AssertionError in own_env, line 23)"),
        (["env=own_env:Strange"], "env: own_env:Strange cannot be made (KeyError: 'port' in own_env, line 27)"),
        (["env=own_env:Jax"], "; pip install 'rlrun[jax]'"),
        (["env=own_env:Line", "env.kwargs.limits=5"], "env.kwargs={'limits': 5}: own_env:Line cannot be made (Line"),
        (["env=own_env:Texts"], "env: Text observations are not supported: they have no fixed shape; env.wrappers.hide"
         ".entries=[task] leaves this one out"),
        (["env=CartPole", "plugins=[own_parts]", "env.wrappers.own_unset={}"],
         "env.wrappers.own_unset: own_parts.Unset needs a Config: an inner class"),
        (["env=CartPole", "plugins=[own_parts]", "network=own_unset", "--config-dir=../conf"],
         "network: own_parts.Net needs a Config: an inner class"),
        (["env=own_env:bsuite/catch-v0"], "Have you installed the proper package for bsuite?; pip install bsuite"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_env_that_cannot_be_made_is_one_line_and_leaves_no_folder(
    words: list[str], line: str, workplace: Path, capsys: Any, monkeypatch: Any
) -> None:
    for module in ("jax", "minigrid", "bsuite"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["train", "algo=ppo", *words, *QUIET]) == 2
    errors = capsys.readouterr().err
    assert line in errors and errors.count("\n") == 1
    assert not any(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["algo=sarsa", "env=Blackjack-v1"], "this environment has Tuple(Discrete(32), Discrete(11), Discrete(2)),"),
        (["algo=q_learning", "env=Taxi-v4"], "has Discrete(500) with action masks (env.action_mask=false leaves these"),
        (["algo=dqn", "env=Pendulum"], "this environment has Box(-2.0, 2.0, (1,), float32),"),
    ],
)
def test_env_errors_show_its_spaces(words: list[str], own: str, workplace: Path, capsys: Any) -> None:
    assert main(["train", *words, *QUIET]) == 2
    assert own in capsys.readouterr().err


def test_wrappers_are_listed_with_settings_and_meaning(workplace: Path, capsys: Any) -> None:
    assert main(["list", "wrappers", "plugins=[own_parts]"]) == 0
    rows = {line.split()[0]: " ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert rows["own_doubled"] == "own_doubled factor: float | null, parts: list[int] Rewards times a number."
    assert rows["own_unset"] == "own_unset -"
    assert rows["hide"].startswith("hide entries: list[int | str] Removes `entries` from observations")
    assert main(["list"]) == 0
    assert "wrapper" in capsys.readouterr().out.splitlines()[-2]


def test_environments_of_a_plugin_are_listed(workplace: Path, capsys: Any) -> None:
    assert main(["list", "env", "plugins=[own_env]"]) == 0
    assert "OwnLine-v0" in capsys.readouterr().out.splitlines()


SIZED = """
import gymnasium as gym
import numpy as np

class Sized(gym.Env):
    def __init__(self, size=3, low=-1.0):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (size,))
        self.action_space = gym.spaces.Box(low, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        return self.observation_space.low, float(action[0]), True, False, {}
"""


def test_other_spaces_than_in_training_are_refused_before_anything_is_played(
    tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sized.py").write_text(SIZED)
    words = ["train", "algo=ppo", "env=./sized.py:Sized", "preset=none", "env.num_envs=1", "algo.loop.rollout_steps=8"]
    words += ["network.hidden=[4]", "trainer.total_steps=8", "trainer.eval_episodes=1", "logger=[]"]

    def refused(*typed: str) -> str:
        assert main(list(typed)) == 2
        out, error = capfd.readouterr()
        assert (out, error.count("\n")) == ("", 1)
        return error

    assert main([*words, "run_dir=run"]) == 0
    others = "actions are Box(-9, 1, (1,), float), but Box(-1, 1, (1,), float) in training"
    for typed, key in (
        (["eval", "run", "plugins=[./sized.py]", "env.kwargs.low=-9"], "run"),
        ([*words, "env.eval_kwargs.low=-9"], "env.eval_kwargs={'low': -9}"),
        ([*words, "env.kwargs.low=-9", "init_from=run"], "init_from=run"),
    ):
        assert refused(*typed) == f"error: {key}: {others}\n"
    assert main([*words, "env.kwargs.low=-9", "init_from=run", "init_modules=[policy]", "run_dir=moved"]) == 0
    capfd.readouterr()
    line = "observations are Box(4,) of float32, but Box(3,) of float32 in training"
    assert line in refused(*words, "env.eval_kwargs.size=4")
    assert not Path("runs").exists()
    meta = json.loads(Path("run/meta.json").read_text())
    meta["spaces"]["actions"] = "Box(-9, 1, (1,), float)"  # as if the file has changed
    Path("run/meta.json").write_text(json.dumps(meta))
    with pytest.raises(ConfigError, match="actions are Box"):
        rlrun.load("run", plugins=["./sized.py"])
    assert main(["resume", "run", "plugins=[./sized.py]", "total_steps=16"]) == 0
    assert "not exact, because actions are Box" in capfd.readouterr().err
