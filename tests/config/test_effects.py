"""YAML files of a user: each value reaches the run, or one line says why not."""

import re
from pathlib import Path

import pytest

from rlrun.cli.catalogue import explained
from rlrun.config.compose import literal
from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError

DOCS = Path(__file__).parents[2] / "docs"
PPO = ["algo=ppo", "env=CartPole"]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name, text):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def values(*words, config_dirs=()):
    (job,) = jobs([*words, *(f"--config-dir={folder}" for folder in config_dirs)])
    return job.values


def faults(*words, config_dirs=()):
    with pytest.raises(ConfigError) as caught:
        jobs([*words, *(f"--config-dir={folder}" for folder in config_dirs)])
    assert caught.value.exit_code == 2
    return list(caught.value.faults)


@pytest.mark.parametrize("header", ["", "# PPO\n", "# @package _global_\n", "# @package algo\n"])
def test_preset_sets_the_whole_config_whatever_its_first_line_says(header):
    write("mine.yaml", f"{header}env: {{num_envs: 1}}\nalgo: {{gamma: 0.9, loop: {{rollout_steps: 64}}}}\n")
    found = values(*PPO, "preset=./mine.yaml")
    assert (found["env"]["num_envs"], found["algo"]["gamma"], found["algo"]["loop"]["rollout_steps"]) == (1, 0.9, 64)


@pytest.mark.parametrize("name", ["ppo-CartPole-v1", "mine"])
def test_preset_in_a_users_folder_needs_no_header(name):
    write(f"own/preset/{name}.yaml", "algo: {gamma: 0.9}\n")
    words = ["algo=ppo", "env=CartPole-v1"]
    if name == "mine":
        words.append("preset=mine")
    found = values(*words, config_dirs=["own"])
    assert (found["preset"], found["algo"]["gamma"]) == (name, 0.9)


def test_file_of_a_user_is_read_again_when_it_has_changed():
    for gamma in (0.5, 0.6):
        write("mine.yaml", f"algo: {{gamma: {gamma}}}\n")
        assert values(*PPO, "preset=./mine.yaml")["algo"]["gamma"] == gamma
        write("own/preset/other.yaml", f"algo: {{gamma: {gamma}}}\n")
        assert values(*PPO, "preset=other", config_dirs=["own"])["algo"]["gamma"] == gamma


def test_values_of_the_preset_in_the_page_on_tables_reach_the_run():
    page = (DOCS / "reproduce.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    write("my_table.yaml", text)
    found = values("algo=ppo", "env=Hopper", "preset=./my_table.yaml")
    assert found["trainer"]["total_steps"] == 1_000_000
    assert (found["env"]["num_envs"], found["env"]["normalize"]["kind"]) == (1, "both")
    algo = found["algo"]
    assert (algo["learning_rate"], algo["epochs"], algo["minibatch_size"]) == (3e-4, 10, 64)
    assert algo["loop"]["rollout_steps"] == 2048


def test_show_names_the_preset_as_the_source_of_its_values():
    write("mine.yaml", "algo:\n  gamma: 0.9 # short\n  loop: {rollout_steps: 64}\n")
    rows = {row[0]: row[1:] for row in explained([*PPO, "preset=./mine.yaml", "algo.epochs=3"]).rows}
    assert rows["algo.gamma"] == ("0.9", "mine.yaml", "short")
    assert rows["algo.loop.rollout_steps"][:2] == ("64", "mine.yaml")
    assert rows["algo.epochs"][:2] == ("3", "command line")
    assert rows["algo.clip_range"][1] == "conf/algo/ppo.yaml"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("algo: {gama: 0.9}", ": algo.gama: unknown key; did you mean algo.gamma?"),
        ("trainer: {total_step: 9}", ": trainer.total_step: unknown key; did you mean trainer.total_steps?"),
        ("gamma: 0.9", ": sets gamma, but may set only defaults, trainer, env, network, algo"),
        ("trainer: {learning_rate: 0.1}", ": trainer.learning_rate: unknown key; did you mean algo.learning_rate?"),
        ("algo: {rollout_steps: 9}", ": algo.rollout_steps: unknown key; did you mean algo.loop.rollout_steps?"),
        ("algo: {gamma: high}", ": algo.gamma=high: must be a number, like 0.99"),
        (
            "algo: {loop.rollout_steps: 9}",
            ": algo.loop.rollout_steps: a key with a dot has no effect; write a section, algo: {loop: ...}",
        ),
        ("algo: ppo", ": algo=ppo: must be a section of settings; type algo=ppo on the command line"),
        ("algo:", ": algo: has no settings"),
        ("algo: {name: a2c}", ": algo.name=a2c: a preset cannot set it; type algo=..."),
        ("{}", ": sets nothing"),
        ("# algo: {gamma: 0.9}", ": must be a mapping of config keys to values"),
        ("algo:\n\tgamma: 0.9", ": not a config (line 2: found character '\\t' that cannot start any token)"),
        ("algo:\n  gamma: 0.9\n  gamma: 0.8", ": not a config (line 3: found duplicate key gamma)"),
        ("algo: {buffer: {capacity: 9}}", ": algo.buffer: unknown key; did you mean algo.shuffle?"),
    ],
)
def test_preset_without_effect_is_refused_in_one_line(text, line):
    write("mine.yaml", f"{text}\n")
    (found,) = faults(*PPO, "preset=./mine.yaml")
    assert found.removeprefix("preset=./").removeprefix("mine.yaml") == line


PART = """
from rlrun.settings import register

@register("{group}", "{name}")
class Mine:
    pass
"""


def write_part(group, page, name="mine"):
    write("mine.py", PART.format(group=group, name=name))
    write("mine.yaml", page)


@pytest.mark.parametrize(
    ("group", "page"),
    [
        ("algo", "defaults: [ppo, _self_]\nalgo: {epochs: 3}\n"),
        ("algo", "defaults: [ppo]\n"),
        ("network", "defaults: [mlp, _self_]\nhidden: [8]\n"),
        ("algo.entropy", "defaults: [fixed, _self_]\nent_coef: 0.2\n"),
    ],
)
def test_class_of_a_typed_file_is_what_runs(group, page):
    write_part(group.rpartition(".")[2], page)
    words = {"algo": "algo=ppo", "env": "env=CartPole"} | {group: f"{group}=./mine.py"}
    found = values(*words.values())
    for section in group.split("."):
        found = found[section]
    assert found["name"] == "mine"


CLASS = """
from rlrun.settings import register

@register("algo", "mine")
class Mine:
    loop = {"name": "onpolicy", "rollout_steps": 7}

    class Config:
        epochs: int = 3
        own: float = 1.0
"""
PRIORITIZED = "override /algo/buffer@algo.buffer: prioritized"
MINE = PART.format(group="algo", name="mine")


@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("", "mine.yaml: sets nothing"),
        ("defaults: [ppo, _self_]\nalgo: {name: ppo}", "mine.yaml: its name is ppo, but mine.py registers mine"),
        ("defaults: [_self_, ppo]\nenv: {num_envs: 2}", "mine.yaml: its name is ppo, but mine.py registers mine"),
        ("defaults: [ppo, _self_]\ngamma: 0.9", "mine.yaml: gamma: unknown key; did you mean algo.gamma?"),
        (
            "defaults: [ppo, _self_]\nalgo: {loop: {rollout_stps: 9}}",
            "mine.yaml: algo.loop.rollout_stps: algo.loop=onpolicy has no such key; "
            "did you mean algo.loop.rollout_steps?",
        ),
        (
            "defaults: [ppo, _self_]\nenv: {num_env: 9}",
            "mine.yaml: env.num_env: unknown key; did you mean env.num_envs?",
        ),
    ],
)
def test_yaml_beside_an_algorithm_without_effect_is_refused_in_one_line(page, line):
    write_part("algo", f"{page}\n")
    assert faults("algo=./mine.py", "env=CartPole")[0] == line


def test_values_of_a_class_that_a_base_in_its_yaml_replaces_are_refused():
    write("mine.py", CLASS)
    write("mine.yaml", "defaults: [ppo]\n")
    assert faults("algo=./mine.py", "env=CartPole") == [
        "mine.py, line 9: algo.epochs=3 has no effect, because defaults of mine.yaml set 10",
        "mine.py, line 6: algo.loop.rollout_steps=7 has no effect, because defaults of mine.yaml set 256",
    ]
    write("mine.yaml", "defaults: [ppo, _self_]\nalgo: {epochs: 4, loop: {rollout_steps: 7}}\n")
    assert values("algo=./mine.py", "env=CartPole")["algo"]["epochs"] == 4


@pytest.mark.parametrize(
    ("files", "words", "line"),
    [
        (
            {"own/preset/ppo-CartPole.yaml": "algo: {gamma: 0.5}"},
            [],
            "own/preset/ppo-CartPole.yaml: has no effect, because conf/preset/ppo-CartPole.yaml has the same name; "
            "rename it",
        ),
        (
            {"own/trainer/quick.yaml": "total_steps: 5"},
            ["trainer=quick"],
            "own/trainer/quick.yaml: has no effect, because conf/trainer/quick.yaml has the same name; rename it",
        ),
        (
            {"own/env/_base.yaml": "num_envs: 5", "own/env/Mine.yaml": "defaults: [_base]\nid: CartPole-v1"},
            [],
            "own/env/_base.yaml: has no effect, because conf/env/_base.yaml has the same name; rename it",
        ),
        (
            {"own/preset/ppo-CartPole-v1.yml": "algo: {gamma: 0.5}"},
            [],
            "own/preset/ppo-CartPole-v1.yml: the name of the file must end in .yaml",
        ),
        ({"own/presets/a.yaml": "algo: {gamma: 1}"}, [], "own/presets: its files have no effect; did you mean preset?"),
        (
            {"own/conf/preset/a.yaml": "algo: {gamma: 0.5}"},
            [],
            "--config-dir: 'own' has no YAML file in a folder named algo, cluster, env, logger, network, preset, "
            "space, submit, trainer",
        ),
        ({"own/trainer/mine.yaml": "# total_steps: 5"}, ["trainer=mine"], "own/trainer/mine.yaml: sets nothing"),
        ({"own/logger/mine.yaml": ""}, ["logger=[mine]"], "own/logger/mine.yaml: sets nothing"),
        (
            {"own/preset/mine.yaml": "defaults: [_self_, ppo-Pendulum]\nalgo: {gamma: 0.5}"},
            ["preset=mine"],
            "own/preset/mine.yaml: algo.gamma=0.5: has no effect, because defaults set it again; write _self_ last in "
            "them",
        ),
        (
            {"own/preset/mine.yaml": "defaults: [base]", "own/preset/base.yaml": "algo: {gama: 0.5}"},
            ["preset=mine"],
            "own/preset/base.yaml: algo.gama: unknown key; did you mean algo.gamma?",
        ),
        (
            {"own/preset/mine.yaml": "defaults: {algo: ppo}\nalgo: {gamma: 0.5}"},
            ["preset=mine"],
            "own/preset/mine.yaml: defaults: must be a list",
        ),
        (
            {"own/preset/mine.yaml": "defaults: [{a: b, c: d}]\nalgo: {gamma: 0.5}"},
            ["preset=mine"],
            "own/preset/mine.yaml: defaults: {a: b, c: d}: must be a name, or a group: name",
        ),
        (
            {"own/preset/mine.yaml": "env: {kwargs: {when: 2020-01-01}}"},
            ["preset=mine"],
            "own/preset/mine.yaml: env.kwargs.when: 2020-01-01: must be a number, a text, true, false or null",
        ),
        (
            {"own/preset/mine.yaml": "algo: [0.5]"},
            ["preset=mine"],
            "own/preset/mine.yaml: algo=[0.5]: must be a section of settings; type algo=[0.5] on the command line",
        ),
    ],
)
def test_file_of_a_users_folder_without_effect_is_refused_in_one_line(files, words, line):
    for name, text in files.items():
        write(name, f"{text}\n")
    assert faults(*PPO, *words, config_dirs=["own"]) == [line]


@pytest.mark.parametrize(
    ("files", "words", "line"),
    [
        (
            {"pack/__init__.py": "", "pack/conf/algos/mine.yaml": "defaults: [ppo]"},
            ["algo=ppo", "plugins=[./pack]"],
            "pack/conf/algos: its files have no effect; did you mean algo?",
        ),
        (
            {"pack/__init__.py": "", "pack/code.py": MINE, "pack/conf/algo/mine.yaml": "defaults: [ppo]"},
            ["algo=mine", "plugins=[./pack]"],
            "pack/conf/algo/mine.yaml: its name is ppo, but code.py registers mine",
        ),
        (
            {"mine.py": PART.format(group="algo", name="ppo")},
            ["algo=./mine.py"],
            "mine.py: registers ppo, a name of rlrun's own algo; choose another name",
        ),
        (
            {"mine.py": MINE, "mine.yml": "defaults: [ppo]"},
            ["algo=./mine.py"],
            "mine.yml: the name of the file must end in .yaml",
        ),
        (
            {"mine.py": PART.format(group="callback", name="mine"), "mine.yaml": "every: 3"},
            ["algo=ppo", "plugins=[./mine.py]"],
            "mine.yaml: has no effect; write callbacks=[{name: mine, key: value}]",
        ),
        (
            {"mine.yaml": f"defaults: [{PRIORITIZED}, _self_]\nalgo: {{buffer: {{alpha: 0.5}}}}"},
            ["algo=dqn", "preset=./mine.yaml", "algo.buffer=replay"],
            "mine.yaml: algo.buffer.alpha: algo.buffer=replay has no such key",
        ),
    ],
)
def test_named_file_without_effect_is_refused_in_one_line(files, words, line):
    for name, text in files.items():
        write(name, f"{text}\n")
    assert faults(*words, "env=CartPole") == [line]


ENV = """import gymnasium

class Mine(gymnasium.Env):
    pass
"""


def test_settings_beside_an_environment_of_ones_own_are_refused_in_one_line():
    write("mine.py", ENV)
    write("mine.yaml", "num_envs: 4\nkwargs: {size: 3}\n")
    line = "mine.yaml: has no effect beside an environment; type its settings, such as env.kwargs={size: 3}"
    assert faults("algo=ppo", "env=./mine.py:Mine") == [line]


@pytest.mark.parametrize("text", ["num_envs: 4\ngravity: 9.8\n", "- num_envs\n", "", "a: !tag b\n", "a: [\n"])
def test_file_that_an_environment_may_read_itself_is_no_fault(text):
    write("mine.py", ENV)
    write("mine.yaml", text)
    assert values("algo=ppo", "env=./mine.py:Mine")["env"]["num_envs"] == 8


def test_settings_of_a_logger_in_one_file_lie_below_its_name():
    text = PART.format(group="logger", name="mine").replace("    pass", "    class Config:\n        text: str = 'hi'")
    write("mine.py", text)
    words = [*PPO, "plugins=[./mine.py]", "logger=[mine]"]
    assert values(*words)["logger"] == {"mine": {"text": "hi"}}
    write("mine.yaml", "mine: {text: hello}\n")
    assert values(*words)["logger"] == {"mine": {"text": "hello"}}


def test_empty_section_removes_the_schedule_of_a_preset():
    words = ["algo=ppo", "env=Pendulum"]
    falling = {"learning_rate": {"linear": {"end": 0.0}}}
    assert values(*words)["algo"]["schedule"] == falling
    assert values(*words, "algo.schedule={}")["algo"]["schedule"] == {}
    assert values(*words, "algo.schedule.learning_rate={}")["algo"]["schedule"] == {"learning_rate": {}}
    assert values(*words, "~algo.schedule.learning_rate")["algo"]["schedule"] == {}
    write("mine.yaml", "defaults: [/preset/ppo-Pendulum, _self_]\nalgo: {schedule: {}}\n")
    assert values(*words, "preset=./mine.yaml")["algo"]["schedule"] == {}
    assert values(*words, f"algo.schedule={literal(falling)}", "preset=./mine.yaml")["algo"]["schedule"] == falling
    assert faults(*words, "algo.loop={}") == ["algo.loop={}: sets nothing"]


@pytest.mark.parametrize("word", ["algo.schedule={}", "preset=./mine.yaml"])
def test_empty_section_removes_the_schedule_in_jobs_of_several_runs(word):
    write("mine.yaml", "defaults: [/preset/ppo-Pendulum, _self_]\nalgo: {schedule: {}}\n")
    found = jobs(["algo=ppo", "env=Pendulum", "seed=0,1", word], multirun=True)
    assert [job.values["algo"]["schedule"] for job in found] == [{}, {}]
