"""Environments from ids and presets, and a one-line error for every fault."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import gymnasium as gym
import pytest
import yaml
from toys import put

from rlrun.envs.config import EnvConfig
from rlrun.envs.making.explained import MUJOCO, explained
from rlrun.envs.making.make import find, make
from rlrun.errors import ConfigError
from rlrun.imports import EXTRAS
from rlrun.settings import parse

PRESETS = Path(__file__).parents[2] / "conf" / "env"
NAMES = sorted(path.stem for path in PRESETS.glob("[!_]*.yaml"))


def preset(name):
    """Returns a preset with its defaults, as a dict."""
    values = yaml.safe_load((PRESETS / f"{name}.yaml").read_text())
    for parent in reversed(values.pop("defaults", [])):
        if isinstance(parent, dict):
            [(place, part)] = parent.items()
            folder, _, section = place.partition("@")
            chosen = yaml.safe_load((PRESETS / folder / f"{part}.yaml").read_text())
            values = put(values, {section: chosen})
        elif parent != "_self_":
            values = {**preset(parent), **values}
    return values


@pytest.mark.parametrize("name", NAMES)
def test_presets_hold_what_environments_need(name):
    assert (PRESETS / f"{name}.yaml").read_text().startswith("# ")
    cfg = parse(EnvConfig, preset(name), "env")
    missing = {"ALE/": "ale_py", "LunarLander": "Box2D", "gymnasium_robotics": "gymnasium_robotics"}
    package = next((package for start, package in missing.items() if cfg.id.startswith(start)), "gymnasium")
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    assert find(cfg.id).id == cfg.id.rpartition(":")[2]


@pytest.mark.parametrize(
    ("id", "values", "text"),
    [
        ("CartPool-v1", {}, "env.id='CartPool-v1': Environment `CartPool` doesn't exist."),
        ("CartPole-v9", {}, "env.id='CartPole-v9': "),
        ("no_such_package:Thing-v0", {}, "env.id='no_such_package:Thing-v0': cannot import 'no_such_package'"),
        ("Pendulum-v1", {"kwargs": {"gravity": 1}}, "env.kwargs={'gravity': 1}: Pendulum-v1 cannot be made"),
        ("CartPole-v1", {"wrappers": {"frame_stak": {}}}, "unknown name 'frame_stak'; did you mean frame_stack?"),
        ("CartPole-v1", {"wrappers": {"frame_stack": {"stack": 0}}}, "env.wrappers.frame_stack.stack=0: must be"),
        ("CartPole-v1", {"wrappers": {"frame_stack": {}}}, "env.wrappers.frame_stack.stack: missing"),
        ("FrozenLake-v1", {"wrappers": {"frame_stack": {"stack": 2}}}, "frame_stack needs Box observations"),
        ("CartPole-v1", {"wrappers": {"hide": {"entries": [4]}}}, "hide: entries=[4]: must be among 0 to 3"),
        ("CartPole-v1", {"wrappers": {"hide": {"entries": [0, 1, 2, 3]}}}, "at least one entry must remain"),
        ("FrozenLake-v1", {"wrappers": {"hide": {"entries": [0]}}}, "hide needs Dict, Tuple or one-dimensional Box"),
    ],
)
def test_a_wrong_config_gets_one_line(config, id, values, text):
    with pytest.raises(ConfigError) as caught:
        make(config(id, **values))
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_a_constructor_that_calls_sys_exit_gets_one_line():
    with (
        pytest.raises(ConfigError, match=r"^env: CartPole-v1 cannot be made \(SystemExit: no display"),
        explained(gym.spec("CartPole-v1"), {}, "CartPole-v1"),
    ):
        sys.exit("no display")


def test_a_missing_extra_names_what_to_install(config, monkeypatch):
    monkeypatch.setattr("rlrun.envs.making.make.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'rlrun\[atari\]'"):
        make(config("ALE/Pong-v5"))


def test_a_missing_box2d_names_what_to_install(config):
    if importlib.util.find_spec("Box2D") is not None:
        pytest.skip("Box2D is installed")
    with pytest.raises(ConfigError, match=r"env.id='LunarLander-v3': .*pip install 'rlrun\[box2d\]'"):
        make(config("LunarLander-v3"))


def test_module_ids_import_their_module(config, tmp_path, monkeypatch):
    source = "import gymnasium\ngymnasium.register('their/Env-v0', 'rlrun.envs.builtin.recall:Recall')\n"
    (tmp_path / "their_envs.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert make(config("their_envs:their/Env-v0")).reset(seed=0)[0].tolist() in ([-1.0], [1.0])


def test_kwargs_wrappers_and_time_limit_are_applied(config):
    wrappers = {"flatten": {}, "frame_stack": {"stack": 2}}
    env = make(config("FrozenLake-v1", kwargs={"map_name": "8x8"}, wrappers=wrappers, max_episode_steps=3))
    obs, _ = env.reset(seed=0)
    assert obs.shape == (2, 64) and (obs[0] == obs[1]).all()  # 8 x 8 squares; the first frame twice
    nxt, *_ = env.step(2)
    assert (nxt[0] == obs[1]).all()
    assert [env.step(0)[3] for _ in range(2)] == [False, True]


def test_hidden_entries_are_gone_and_the_others_as_they_were(config):
    whole, masked = make(config("CartPole-v1")), make(config("CartPole-v1", wrappers={"hide": {"entries": [1, 3]}}))
    assert masked.observation_space.shape == (2,)
    assert (masked.observation_space.high == whole.observation_space.high[[0, 2]]).all()
    assert (masked.reset(seed=0)[0] == whole.reset(seed=0)[0][[0, 2]]).all()
    assert (masked.step(1)[0] == whole.step(1)[0][[0, 2]]).all()


def test_mujoco_keeps_quiet_and_writes_no_log(config, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    make(config("HalfCheetah-v5"))
    assert capfd.readouterr().err == "" and list(tmp_path.iterdir()) == []


def test_probes_are_registered():
    assert {"rlrun/ProbeConstant-v0", "rlrun/Faulty-v0"} <= set(gym.registry)


def test_entries_of_dicts_and_tuples_are_hidden_by_name_and_place(config):
    env = make(config("Blackjack-v1", wrappers={"hide": {"entries": [1]}}))
    assert env.observation_space == gym.spaces.Dict({"0": gym.spaces.Discrete(32), "1": gym.spaces.Discrete(2)})
    assert set(env.reset(seed=0)[0]) == {"0", "1"}
    with pytest.raises(ConfigError, match=r"hide: entries=\[3\]: must be among 0 to 2, and at least one entry"):
        make(config("Blackjack-v1", wrappers={"hide": {"entries": [3]}}))


def test_extras_are_those_of_the_package():
    project = tomllib.loads((PRESETS.parents[1] / "pyproject.toml").read_text())["project"]
    offered = project["optional-dependencies"]
    assert set(EXTRAS) <= set(offered)
    for package, (extra, pin) in MUJOCO.items():
        assert package in EXTRAS[extra] and f"mujoco{pin}" in offered[extra]
