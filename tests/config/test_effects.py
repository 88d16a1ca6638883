"""YAML files of a user: each value reaches the run, or one line says why not."""

import re
from pathlib import Path

import pytest

from rlrun.cli.catalogue import explained
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
    (job,) = jobs(list(words), config_dirs=config_dirs)
    return job.values


def faults(*words, config_dirs=()):
    with pytest.raises(ConfigError) as caught:
        jobs(list(words), config_dirs=config_dirs)
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
from rlrun.registry import register

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


@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("defaults: [ppo, _self_]\nalgo: {name: ppo}\n", ": its name is ppo, but mine.py registers mine"),
        ("defaults: [_self_, ppo]\nalgo: {name: mine}\n", ": its name is ppo, but mine.py registers mine"),
        ("defaults: [ppo, _self_]\ngamma: 0.9\n", ": gamma: unknown key; did you mean algo.gamma?"),
        (
            "defaults: [ppo, _self_]\nalgo: {loop: {rollout_stps: 9}}\n",
            ": algo.loop.rollout_stps: unknown key; did you mean algo.loop.rollout_steps?",
        ),
        ("defaults: [ppo, _self_]\nenv: {num_env: 9}\n", ": env.num_env: unknown key; did you mean env.num_envs?"),
    ],
)
def test_yaml_beside_an_algorithm_without_effect_is_refused_in_one_line(page, line):
    write_part("algo", page)
    assert faults("algo=./mine.py", "env=CartPole") == [f"mine.yaml{line}"]
