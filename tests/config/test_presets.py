"""With every preset, as `rlrun train algo=... env=...` finds it, a run begins: all values are valid."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toys import put

from rlrun.cli import main
from rlrun.config import sources
from rlrun.config.contents import Contents
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_loop
from rlrun.telemetry import console

CLASS = """\
from rlrun.agents.actor_critic.sac import SAC
from rlrun.settings import register


@register("algo", "mine")
class Mine(SAC):
    pass
"""

PRESETS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "preset").glob("*.yaml"))
EXTRAS = {"atari": "ale_py", "LunarLander": "Box2D", "FetchReach": "gymnasium_robotics"}
FAMILIES = {"atari": "Pong"}  # an environment of each family


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_makes_a_run_that_begins(preset: str) -> None:
    algo, _, env = preset.partition("-")
    if env in EXTRAS:
        pytest.importorskip(EXTRAS[env])
    [job] = jobs([f"algo={algo}", f"env={FAMILIES.get(env, env)}"])
    assert job.values["preset"] == preset
    if job.values["algo"]["loop"].get("data", "") is None:
        pytest.skip("needs data")
    values = job.values
    if env == "atari":  # the presets differ in the number of environments, each of which takes 0.1 s to make
        values = put(values, {"env.num_envs": min(4, values["env"]["num_envs"])})
    build_loop(run_config(values)).begin()


def derived(folder: Path, algo: str) -> dict[str, Any]:
    """Returns the values of a user's algorithm on Pendulum, whose YAML file has these lines below `algo`."""
    (folder / "mine.py").write_text(CLASS)
    (folder / "mine.yaml").write_text(f"defaults: [sac, _self_]\nalgo: {{name: mine, {algo}}}\n")
    [job] = jobs([f"algo={folder / 'mine.py'}", "env=Pendulum-v1"])
    return job.values


def test_algorithm_of_the_user_has_the_preset_of_its_base_below_its_own_values(tmp_path: Path) -> None:
    [base] = jobs(["algo=sac", "env=Pendulum"])
    values = derived(tmp_path, "actor_learning_rate: 5e-4, tau: 0.5")
    assert values["preset"] == "sac-Pendulum" and values["trainer"] == base.values["trainer"]
    own = {"name": "mine", "actor_learning_rate": 5e-4, "tau": 0.5}
    assert values["algo"] == base.values["algo"] | own
    [bare] = jobs([f"algo={tmp_path / 'mine.py'}", "env=Pendulum", "preset=none"])
    assert bare.values["preset"] is None and bare.values["algo"]["loop"] != base.values["algo"]["loop"]


SUBCLASS = """
from rlrun.agents.policy import ppo as shipped
from rlrun.settings import NonNegativeFloat, config, register

class Between(shipped.PPO):
    pass

@register("algo", "mine_spo")
class SPO(Between):
    @config
    class Config(shipped.PPO.Config):
        penalty: NonNegativeFloat = 0.5

@register("algo", "mine_other")
class Other(SPO):
    pass
"""


@pytest.mark.parametrize("name", ["mine_spo", "mine_other"])
def test_subclass_without_yaml_has_the_settings_and_the_presets_of_its_base(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine_spo.py").write_text(SUBCLASS)
    for words in (["env=Pendulum"], ["env=rlrun/Platform-v0"], ["env=Pendulum", "preset=none"]):
        [base] = jobs(["algo=ppo", *words])
        [job] = jobs([f"plugins=[{tmp_path / 'mine_spo.py'}]", f"algo={name}", *words])
        assert job.values["preset"] == base.values["preset"]
        assert job.values["algo"] == base.values["algo"] | {"name": name, "penalty": 0.5}


@pytest.mark.parametrize("base", ["mine_ppo.PPO", "object", "Mine"])
def test_subclass_without_yaml_of_a_class_without_settings_is_refused(base: str, tmp_path: Path) -> None:
    """The bases are a class of another file of the user, none, and one that the file does not import by its name."""
    (tmp_path / "mine.py").write_text(f"import mine_ppo\n{CLASS.replace('(SAC)', f'({base})')}")
    with pytest.raises(ConfigError, match="needs an inner class Config"):
        jobs([f"algo={tmp_path / 'mine.py'}", "env=Pendulum"])


def test_subclass_that_chooses_its_loop_has_settings_of_its_own(tmp_path: Path) -> None:
    own = "    loop = {'name': 'onpolicy', 'rollout_steps': 7}\n    class Config:\n        size: int = 3"
    (tmp_path / "mine.py").write_text(CLASS.replace("    pass", own))
    [job] = jobs([f"algo={tmp_path / 'mine.py'}", "env=Pendulum"])
    assert job.values["algo"]["size"] == 3 and "gamma" not in job.values["algo"]


def test_subclass_of_a_class_without_yaml_has_the_settings_of_the_next_base(tmp_path: Path) -> None:
    text = CLASS.replace("actor_critic.sac import SAC", "imitation.sac_cloning import SACCloning")
    (tmp_path / "mine.py").write_text(text.replace("(SAC)", "(SACCloning)"))
    [base] = jobs(["algo=sac", "env=Pendulum"])
    [job] = jobs([f"algo={tmp_path / 'mine.py'}", "env=Pendulum"])
    assert job.values["algo"] == base.values["algo"] | {"name": "mine"}


def test_shipped_algorithms_have_only_presets_of_their_own_name() -> None:
    contents = Contents([sources.CONF])
    derived = ("recurrent_sac-Pendulum", "ppo1-Pendulum", "double_dqn-LunarLander", "sac_hold-Pendulum")
    assert not [name for name in derived if contents.preset_file(name) not in (None, name)]


def test_preset_of_a_family_is_that_of_all_its_environments(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/Mine.yaml").write_text("defaults: [_atari, _self_]\nid: ALE/Pong-v5\n")
    (tmp_path / "env/Other.yaml").write_text("defaults: [_base, _self_]\nid: ALE/Pong-v5\n")
    (tmp_path / "mine.py").write_text(CLASS.replace("actor_critic.sac import SAC", "value.dqn import DQN as SAC"))

    def preset(algo: str, env: str) -> object:
        [job] = jobs([f"algo={algo}", f"env={env}", f"--config-dir={tmp_path}"])
        return job.values["preset"]

    assert {preset("dqn", env) for env in ("Pong", "ALE/Breakout-v5", "Mine")} == {"dqn-atari"}
    assert [preset("c51", "Pong"), preset(str(tmp_path / "mine.py"), "Pong")] == ["c51-atari", "dqn-atari"]
    assert [preset("vpg", "Pong"), preset("dqn", "Other"), preset("dqn", "CartPole")] == [None, None, "dqn-CartPole"]


IMAGES = """
import gymnasium as gym
import numpy as np

class Dark(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (3, 36, 36), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros((3, 36, 36), np.uint8), {}

    def step(self, action):
        return np.zeros((3, 36, 36), np.uint8), 0.0, False, False, {}
"""


def test_run_on_images_without_a_preset_names_that_for_images(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "dark.py").write_text(IMAGES)
    size = ["trainer.total_steps=4", "trainer.eval_episodes=0", "algo.buffer.capacity=8", "algo.loop.warmup_steps=2"]
    line = "the defaults of dqn are for vectors; preset=dqn-atari has its paper's values for images"
    dark = f"env={tmp_path / 'dark.py'}:Dark"
    for name, words, count in (
        ("without", [dark], 1),
        ("with", [dark, "preset=dqn-atari"], 0),
        ("vectors", ["env=CartPole", "preset=none"], 0),
    ):
        run = f"run_dir={tmp_path / name}"
        assert main(["train", "algo=dqn", *words, *size, "env.selftest=off", "logger=[console]", run]) == 0
        assert capsys.readouterr().out.count(line) == count


LINE = """
import gymnasium as gym
import numpy as np

class {name}(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
"""


def test_preset_of_the_users_folder_is_found_for_an_environment_in_a_file(tmp_path: Path) -> None:
    """Presets of rlrun are for the environments that it names alone: a class of the same name is another one."""
    (tmp_path / "preset").mkdir()
    for algo in ("ppo", "sac"):
        (tmp_path / f"preset/{algo}-Mine.yaml").write_text("algo: {gamma: 0.5}\n")
    (tmp_path / "mine.py").write_text(CLASS)
    (tmp_path / "mine_env.py").write_text(LINE.format(name="Mine") + LINE.format(name="Pendulum"))
    env = f"env={tmp_path / 'mine_env.py'}:"
    for algo, preset in (("ppo", "ppo-Mine"), ("sac", "sac-Mine"), (f"{tmp_path / 'mine.py'}", "sac-Mine")):
        [job] = jobs([f"algo={algo}", f"{env}Mine", f"--config-dir={tmp_path}"])
        assert (job.values["preset"], job.values["algo"]["gamma"]) == (preset, 0.5)
    [other] = jobs(["algo=a2c", f"{env}Mine", f"--config-dir={tmp_path}"])
    [same] = jobs(["algo=sac", f"{env}Pendulum", f"--config-dir={tmp_path}"])
    [without] = jobs(["algo=ppo", f"{env}Mine"])
    assert other.values["preset"] is same.values["preset"] is without.values["preset"] is None
    faulty = tmp_path / "preset/ppo-Mine.yaml"
    faulty.write_text("algo: {gama: 0.5}\n")
    with pytest.raises(ConfigError, match=r"ppo-Mine.yaml: algo.gama: unknown key; did you mean algo.gamma\?"):
        jobs(["algo=ppo", f"{env}Mine", f"--config-dir={tmp_path}"])


def test_show_and_list_read_the_users_folder(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    (tmp_path / "mine/conf/preset").mkdir(parents=True)
    (tmp_path / "mine/conf/preset/ppo-Blackjack-v1.yaml").write_text("# PPO plays cards.\nalgo: {gamma: 0.5}\n")
    folder = ["--config-dir", str(tmp_path / "mine/conf")]
    preset = "conf/preset/ppo-Blackjack-v1.yaml"
    for here, path in (("", f"mine/{preset}"), ("mine", preset), ("mine/conf/preset", "ppo-Blackjack-v1.yaml")):
        monkeypatch.chdir(tmp_path / here)
        assert main(["show", "algo=ppo", "env=Blackjack-v1", *folder]) == 0
        (gamma,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("algo.gamma")]
        assert gamma[1:3] == ["0.5", path]
    assert sources.label(tmp_path / "mine/conf/x.yaml") == str(tmp_path / "mine/conf/x.yaml")
    (tmp_path / "mine/__init__.py").touch()
    assert sources.label(tmp_path / "mine/conf/x.yaml") == "mine/conf/x.yaml"
    assert sources.label(sources.CONF / "algo/sac.yaml") == "conf/algo/sac.yaml"
    assert main(["list", "preset", *folder]) == 0
    assert "PPO plays cards." in capsys.readouterr().out
    assert main(["show", "algo=ppo", "--config-dir"]) == 2
    assert "error: --config-dir: needs a folder" in capsys.readouterr().err


def test_run_says_at_its_start_that_its_preset_is_the_users(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset/icy.yaml").write_text("algo: {gamma: 0.5}\n")
    words = ["algo=q_learning", "env=FrozenLake", "trainer.total_steps=16", "trainer.eval_episodes=0"]
    folder = ["--config-dir", str(tmp_path)]
    (tmp_path / "mine.yaml").write_text("algo: {gamma: 0.5}\n")
    for chosen, line in (
        ("preset=icy", "preset icy (of your own); preset=none trains"),
        (f"preset={tmp_path / 'mine.yaml'}", "mine.yaml; preset=none trains"),
    ):
        run = tmp_path / f"{len(line)}"
        assert main(["train", *words, chosen, *folder, "logger=[console]", f"run_dir={run}"]) == 0
        assert line in capsys.readouterr().out


@pytest.mark.parametrize(("word", "count"), [("seed=0", 1), ("preset=none", 0)])
def test_run_says_at_its_start_which_preset_it_has(word: str, count: int, tmp_path: Path, capsys: Any) -> None:
    words = ["algo=q_learning", "env=FrozenLake", "trainer.total_steps=16", "trainer.eval_episodes=0", word]
    assert main(["train", *words, "env.selftest=off", "logger=[console]", f"run_dir={tmp_path / 'run'}"]) == 0
    assert capsys.readouterr().out.count("preset q_learning-FrozenLake; preset=none trains with the defaults") == count


def test_title_of_the_panel_names_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    titles = []
    monkeypatch.setattr(console, "open_display", lambda title, *_: titles.append(title))
    for config in ({"preset": "ppo-Pendulum"}, {"preset": None}):
        start = SimpleNamespace(
            keys=None, rows=[], title="mine", run=Path(), total_steps=9, total_updates=None, config=config
        )
        console.Console(None).open(start)
    assert titles == ["mine, preset ppo-Pendulum", "mine"]
