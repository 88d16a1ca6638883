"""Random YAML files of a user, with and without faults: each is used or refused, and what is right is never refused."""

import random
import re
from pathlib import Path

import pytest
from own_files import forget

from rlrun import dotted
from rlrun.config import sources
from rlrun.config.compose import Composer, literal
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.config.stored import to_yaml
from rlrun.errors import ConfigError
from rlrun.run.assemble import check_ranges
from rlrun.settings import registry
from rlrun.sweep import space

PACK = "plugins=[./pack]"
PPO = ["algo=ppo", "env=CartPole"]
SETTINGS = {  # keys of PPO on CartPole, and values other than those that it has there
    "algo.gamma": 0.9,
    "algo.epochs": 3,
    "algo.clip_range": 0.3,
    "algo.loop.rollout_steps": 24,
    "algo.advantage.gae_lambda": 0.85,
    "algo.entropy.ent_coef": 0.02,
    "trainer.total_steps": 3000,
    "trainer.eval_every": 1500,
    "env.num_envs": 3,
    "env.normalize.kind": "obs",
    "network.hidden": [8, 8],
}
CODE = """
from rlrun.agents.policy.ppo import PPO
from rlrun.settings import register


@register("algo", "named_code")
class Mine(PPO):
    pass
"""


def nested(key, value):
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def misspelt(word, draw):
    place = draw.randrange(1, len(word))
    return word[:place] + draw.choice("qxz") + word[place:]


def elsewhere(key, draw):
    """Returns the key in a section that does not have it."""
    name = key.rpartition(".")[2]
    return draw.choice(
        [f"{section}{name}" for section in ("", "algo.", "trainer.", "env.") if f"{section}{name}" != key]
    )


def text_of(fault, key, value, draw, form=nested):
    """Returns the text of a file with one setting and a fault."""
    if fault == "typo":
        section, dot, name = key.rpartition(".")
        key = f"{section}{dot}{misspelt(name, draw)}"
    elif fault == "level":
        key = elsewhere(key, draw)
    elif fault == "type":
        value = draw.choice(["many", {"a": 1}, [["b"]]])
    text = to_yaml(form(key, value))
    if fault == "nothing":
        text = draw.choice(["", "{}\n", "# " + text.replace("\n", "\n# ")])
    return text


def to_range(key, value):
    """Returns the section of a space for a setting."""
    return {key: {"choice": [value, 1]}}


def is_searched(words, key):
    """Returns whether a space searches the key. Raises ConfigError as `rlrun sweep` does."""
    folders = sources.folders(sources.named_plugins(words))
    found = space.named("mine", folders)
    if faults := space.faults(found, Composer(folders).compose(PPO).tree):
        raise ConfigError(*faults)
    return found.keys == [key]


def is_used(words, key, value, config_dirs):
    """Returns whether a run has the value. Raises ConfigError as a command does before it trains."""
    (job,) = jobs([*words, *(f"--config-dir={folder}" for folder in config_dirs)])
    registry.load(job.values["plugins"])
    check_ranges(run_config(job.values))
    return dotted.lookup(key, job.values) == value


FILES = {  # where a file lies, its first lines, and the words that name it
    "path": ("mine.yaml", "", [*PPO, "preset=./mine.yaml"]),
    "preset": ("own/preset/mine.yaml", "", [*PPO, "preset=mine"]),
    "found": ("own/preset/ppo-CartPole-v1.yaml", "", ["algo=ppo", "env=CartPole-v1"]),
    "beside": ("named_code.yaml", "defaults: [ppo, _self_]\n", ["algo=./named_code.py", "env=CartPole", "preset=none"]),
    "package": ("pack/conf/algo/variant.yaml", "defaults: [ppo, _self_]\n", ["algo=variant", "env=CartPole", PACK]),
    "trainer": ("own/trainer/mine.yaml", "defaults: [default, _self_]\n", [*PPO, "trainer=mine"]),
    "space": ("pack/conf/space/mine.yaml", "", [*PPO, PACK]),
}
FAULTS = ("header", "typo", "level", "type", "nothing")  # a header that lacks is none


def is_right(kind: str, fault: str, draw: random.Random) -> bool:
    """Returns whether a random file of this kind is refused for its fault, or used if it has none."""
    file, head, words = FILES[kind]
    sections = {"trainer": "trainer.", "space": "algo."}.get(kind, "")
    key = draw.choice([key for key in SETTINGS if key.startswith(sections)])
    value = SETTINGS[key]
    if kind == "trainer":  # whose keys lie in this section
        text = text_of(fault, key.removeprefix("trainer."), value, draw)
    elif kind == "space":
        text = text_of(fault, key, value, draw, to_range)
    else:
        text = text_of(fault, key, value, draw)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text if fault == "nothing" else head + text)
    try:
        if kind == "space":
            used = is_searched(words, key)
        else:
            used = is_used(words, key, value, ["own"] * file.startswith("own/"))
        return used and fault == "header"
    except ConfigError as error:
        return fault != "header" and error.exit_code == 2 and not any("\n" in line for line in error.faults)
    finally:
        Path(file).unlink()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("named_code.py").write_text(CODE)
    Path("pack").mkdir()
    Path("pack/__init__.py").touch()
    yield
    forget("named_code", "pack")


def test_random_files_are_used_or_refused(folder):
    draw = random.Random(7)
    pairs = [(kind, fault) for kind in FILES for fault in FAULTS]
    pairs += [draw.choice(pairs) for _ in range(60 - len(pairs))]
    wrong = [(place, *pair) for place, pair in enumerate(pairs) if not is_right(*pair, random.Random(place))]
    assert wrong == []


def preset_as_a_file(name: str, file: Path, words: list[str]) -> dict:
    """Returns the config with a copy of a preset of rlrun in a user's file."""
    text = (sources.CONF / "preset" / f"{name}.yaml").read_text()
    for base in sources.options("preset", [sources.CONF]):
        text = re.sub(rf"^defaults: \[{base}\b", f"defaults: [/preset/{base}", text, flags=re.MULTILINE)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (job,) = jobs([*words, *["--config-dir=own"] * (file.parts[0] == "own")])
    file.unlink()
    return job.values


def presets(names):
    return [(name, *name.replace("-atari", "-Pong").split("-", 1)) for name in names]


ALL = presets(sources.options("preset", [sources.CONF]))
SOME = presets(["rainbow-CartPole", "dqn-atari"])


@pytest.mark.parametrize("found", [pytest.param(SOME, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.full)])
def test_presets_of_rlrun_are_no_faults_in_a_users_file(found, folder):
    differing = []
    for name, algo, env in found:
        words = [f"algo={algo}", f"env={env}"]
        (shipped,) = jobs(words)
        for file, typed in (("mine.yaml", "./mine.yaml"), ("own/preset/mine.yaml", "mine")):
            values = preset_as_a_file(name, Path(file), [*words, f"preset={typed}"])
            if values | {"preset": name} != shipped.values:
                differing.append((name, file))
    assert differing == []


def test_values_that_equal_their_defaults_are_no_faults(folder):
    draw = random.Random(7)
    composer = Composer.of([])
    for words in (["algo=ppo", "env=CartPole"], ["algo=sac", "env=Pendulum"]):
        tree = composer.compose([*words, "preset=none"]).tree
        known = [
            (key, value)
            for key, value in dotted.leaves(tree)
            if value is not None
            and key.partition(".")[0] in ("algo", "env", "trainer", "network")
            and not key.endswith((".name", "env.id"))
        ]
        chosen = draw.sample(known, 50)
        file: dict = {}
        for key, value in chosen:
            *sections, name = key.split(".")
            home = file
            for section in sections:
                home = home.setdefault(section, {})
            home[name] = value
        Path("mine.yaml").write_text(to_yaml(file))
        (plain,) = jobs([*words, "preset=none"])
        (typed,) = jobs([*words, "preset=none", *(f"{key}={literal(value)}" for key, value in chosen)])
        (named,) = jobs([*words, "preset=./mine.yaml"])
        assert typed.values == plain.values
        assert named.values | {"preset": None} == plain.values
