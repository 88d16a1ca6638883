"""An environment, an algorithm or a network of a user's in one file, by its path; or one line that says why not."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from own_files import LINE, forget

import rlrun
from rlrun import imports
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError

QUIET = ["trainer.total_steps=64", "trainer.eval_episodes=1", "trainer.eval_max_steps=20", "logger=[]",
         "env.selftest=off", "preset=none", "trainer.engine=eager"]  # fmt: skip
PPO = ["algo=ppo", "algo.loop.rollout_steps=16", "algo.epochs=1", "env.num_envs=2"]

ENV = f"""
from file_beside import LIMIT
{LINE.replace("limit=9", "limit=LIMIT")}
gym.register("FileLine-v0", "file_env:Line")
"""

ALGO = '''
"""Gaussian steps around the best weights."""

import torch
from gymnasium.spaces import Discrete

from rlrun.settings import PositiveFloat, PositiveInt, config
from rlrun.core.agent import Agent
from rlrun.networks.heads import Head
from rlrun.networks.stacked import Stacked
from rlrun.settings import register


@register("algo", "file_climber")
class Climber(Agent):
    actions = Discrete
    loop = {"name": "evolution", "episodes": 1}

    @config
    class Config:
        population: PositiveInt = 4  # steps tried per generation
        step_size: PositiveFloat = 0.5

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.policy = Stacked(Head(parts.torso(members=1), int(spec.action.n), members=1))
        self.register_buffer("best", torch.zeros(self.policy.size))
        self.noise = parts.stream("steps")

    def act(self, obs, carry, explore, params=None):
        return self.policy(obs, self.best[None] if params is None else params).argmax(-1), {}

    def ask(self):
        return self.best + self.cfg.step_size * self.noise.normal(self.cfg.population, self.policy.size)

    def update(self, batch, ctx):
        self.best.copy_(batch["params"][batch["fitness"].argmax()])
        return {"loss/best": batch["fitness"].max()}
'''

NETWORK = '''
"""One wide layer."""

import torch

from rlrun.settings import Units, config
from rlrun.networks.linear import Linear
from rlrun.networks.torsos import LinearTorso
from rlrun.settings import register


@register("network", "file_wide")
class Wide(LinearTorso):
    @config
    class Config:
        hidden: list[Units] = [48]  # units of the layer

    def __init__(self, cfg, spaces, members):
        super().__init__(cfg, spaces, members)
        self.layer = Linear(self.features, cfg.hidden[0], members)
        self.features = cfg.hidden[0]

    def forward(self, *inputs):
        return torch.relu(self.layer(super().forward(*inputs)))
'''

ENTROPY = """
from rlrun.agents.entropy.fixed import Fixed
from rlrun.settings import NonNegativeFloat, config
from rlrun.settings import register


@register("entropy", "file_entropy")
class Mine(Fixed):
    @config
    class Config:
        ent_coef: NonNegativeFloat = 0.3
"""

BONUS = """
from rlrun.core.addon import RewardModule
from rlrun.settings import register


@register("intrinsic", "file_bonus")
class Bonus(RewardModule):
    pass
"""

RECENT = """
from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.buffers.replay import Replay
from rlrun.settings import config, register


@register("buffer", "file_recent")
class Recent(Replay):
    @config
    class Config(Replay.Config):
        power: float = 2.0  # of the age


@register("intrinsic", "file_constant_bonus")
class ConstantBonus(Intrinsic):
    pass
"""

PAGE = """\
# @package _global_
# Another page.
defaults:
  - loop@algo.loop: evolution
  - _self_
algo:
  name: file_climber
  population: 6 # of the page
  step_size: 0.1 # of the page
  loop:
    episodes: 1
"""

CONSTANTS = """\
        KINDS = ("a", "b")
        sizes: ClassVar[list[int]] = [1]
"""

FILES = {
    "file_env.py": ENV,
    "file_beside.py": "LIMIT = 9\n",
    "file_algo.py": ALGO,
    "file_net.py": NETWORK,
    "file_shared.py": NETWORK.replace("cfg.hidden[0], members)", "cfg.hidden[0])").replace("file_wide", "file_shared"),
    "file_entropy.py": ENTROPY,
    "file_bonus.py": BONUS,
    "file_recent.py": RECENT,
    "file_pack/__init__.py": NETWORK.replace("file_wide", "file_packed"),
    "file_folder/x.py": "",
    "file_fault.py": "raise RuntimeError('no licence')\n",
    "file_exit.py": "import sys\nimport gymnasium as gym\n\n\nclass E(gym.Env):\n    pass\n\n\nsys.exit(3)\n",
    "file_syntax.py": "x = 1\ndef\n",
    "file_two.py": ALGO + ALGO.split("\n\n\n")[1].replace("file_climber", "file_other"),
    "file_plain.py": ALGO.replace("    @config\n    class Config:", "    class Settings:"),
    "file_loop.py": ALGO.replace("    loop =", "    other ="),
    "file_computed.py": ALGO.replace("PositiveInt = 4", "PositiveInt = 2 + len('ab')"),
    "file_typo.py": ALGO.replace('"episodes": 1', '"episods": 1'),
    "file_elsewhere.py": ALGO.replace('"evolution"', '"evolutio"'),
    "file_untyped.py": ALGO.replace("step_size: PositiveFloat", "step_size"),
    "file_constant.py": ALGO.replace("import torch\n", "from typing import ClassVar\n\nimport torch\n").replace(
        "    class Config:\n", f"    class Config:\n{CONSTANTS}        N: PositiveInt = 5\n"
    ),
    "file_set/__init__.py": ALGO.replace("    loop =", "    other =") + NETWORK,
    "file_set/conf/algo/file_climber.yaml": PAGE,
    "file_number.py": ALGO.replace('"episodes": 1', "1: 1"),
    "file_unhashable.py": ALGO.replace('"episodes": 1', "[1]: 1"),
    "file_set_default.py": ALGO.replace("PositiveInt = 4", "list[int] = {1, 2}"),
    "random.py": "",
    "there/file_env.py": ENV.replace('"file_env:Line"', '"file_env:Line", max_episode_steps=5'),
    "there/file_beside.py": "LIMIT = 9\n",
}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: Any) -> Iterator[Path]:
    """A working folder with these files, in a process that has imported none of them."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    forget()
    yield tmp_path
    forget()


def train(*words: str) -> Path:
    """A run of one job, which must end well."""
    assert main(["train", *words, "run_dir=run", *QUIET]) == 0
    return Path("run")


@pytest.mark.parametrize(
    "words",
    [
        ["env=./file_env.py:Line"],
        ["env=file_env.py:FileLine-v0"],
        ["env=FileLine-v0", "plugins=[./file_env.py]"],
        ["env=./file_env.py:Line", "env.backend=async"],
    ],
    ids=" ".join,
)
def test_env_from_a_file_trains(words: list[str], workplace: Path) -> None:
    run = train(*PPO, *words)
    assert [*json.loads((run / "meta.json").read_text())["code"]] == [
        "file_env.py" if words == ["env=file_env.py:FileLine-v0"] else "./file_env.py"
    ]


def test_part_without_yaml_has_the_settings_of_its_base_class(workplace: Path) -> None:
    (job,) = jobs(["algo=dqn", "env=CartPole", "algo.buffer=./file_recent.py", "algo.intrinsic=file_constant_bonus",
                   "preset=none", "algo.buffer.capacity=500"])  # fmt: skip
    shipped = jobs(["algo=dqn", "env=CartPole", "algo.intrinsic=icm", "preset=none"])[0].values["algo"]
    buffer = job.values["algo"]["buffer"]
    assert buffer == shipped["buffer"] | {"name": "file_recent", "power": 2.0, "capacity": 500}
    bonus = job.values["algo"]["intrinsic"]
    expected = {key: value for key, value in shipped["intrinsic"].items() if key != "forward_coef"}
    assert bonus == expected | {"name": "file_constant_bonus"}


def test_part_with_settings_of_its_own_has_none_of_its_base_class(workplace: Path) -> None:
    Path("file_narrow.py").write_text(NETWORK.replace("LinearTorso", "Mlp").replace("file_wide", "file_narrow"))
    (job,) = jobs(["algo=ppo", "env=CartPole", "network=./file_narrow.py"])
    assert job.values["network"].keys() == {"name", "hidden", "actor", "critic"}


def test_yaml_without_defaults_overrides_the_settings_of_the_base_class(workplace: Path) -> None:
    Path("file_recent.yaml").write_text("power: 3.0\ncapacity: 700\n")
    words = ["algo=dqn", "env=CartPole", "preset=none"]
    (job,) = jobs([*words, "algo.buffer=./file_recent.py"])
    shipped = jobs(words)[0].values["algo"]["buffer"]
    assert job.values["algo"]["buffer"] == shipped | {"name": "file_recent", "power": 3.0, "capacity": 700}


def test_run_of_a_file_is_named_after_its_class(workplace: Path) -> None:
    (job,) = jobs(["algo=./file_algo.py", f"env={workplace}/file_env.py:Line"])
    assert job.values["name"] == "file_climber-Line"


def test_algorithm_and_network_from_files_train_with_the_defaults_of_their_configs(workplace: Path) -> None:
    run = train("algo=./file_algo.py", "network=./file_net.py", "env=CartPole", "algo.step_size=0.3")
    values = yaml.safe_load((run / "config.yaml").read_text())
    assert values["plugins"] == ["./file_algo.py", "./file_net.py"]
    assert values["algo"]["population"] == 4 and values["algo"]["step_size"] == 0.3
    assert values["network"] == {"name": "file_wide", "hidden": [48], "actor": {}, "critic": {}}


def shown(capsys: Any) -> list[str]:
    """The printed lines, with one space between columns."""
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_keys_of_a_file_are_shown_as_its_own(workplace: Path, capsys: Any) -> None:
    assert main(["show", "algo=./file_algo.py"]) == 0
    lines = shown(capsys)
    assert "algo.loop.episodes 1 file_algo.py episodes per member of the population and generation" in lines
    assert "algo.population 4 file_algo.py steps tried per generation" in lines
    assert "algo.name file_climber file_algo.py" in lines


def test_sizes_of_a_run_with_a_file_are_estimated(workplace: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("rlrun.run.dry_run.MEASURED_S", 0.1)
    assert main(["train", "algo=./file_algo.py", "env=CartPole", *QUIET, "--dry-run"]) == 0
    assert "nothing was written" in capsys.readouterr().out


def test_estimate_of_a_faulty_file_ends_in_one_line(workplace: Path, capsys: Any) -> None:
    text = (workplace / "file_algo.py").read_text()
    (workplace / "file_algo.py").write_text(text.replace("].argmax()", "].argmax('x')"))
    assert main(["train", "algo=./file_algo.py", "env=CartPole", *QUIET, "--dry-run"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and " in file_algo, line " in errors


def test_constants_of_a_config_are_no_settings(workplace: Path, capsys: Any) -> None:
    assert main(["show", "algo=./file_constant.py", "algo.N=3"]) == 0
    printed = capsys.readouterr().out
    assert "KINDS" not in printed and "sizes" not in printed
    train("algo=./file_constant.py", "env=CartPole", "algo.N=3")


def test_network_in_a_package_needs_no_yaml_if_the_algorithm_has_one(workplace: Path, capsys: Any) -> None:
    assert main(["show", "algo=file_climber", "network=file_wide", "plugins=[./file_set]"]) == 0
    assert "units of the layer" in capsys.readouterr().out


def test_yaml_beside_a_file_replaces_the_defaults(workplace: Path, capsys: Any) -> None:
    Path("file_algo.yaml").write_text(PAGE)
    (job,) = jobs(["algo=./file_algo.py", "env=CartPole"])
    assert job.values["algo"]["population"] == 6
    assert main(["show", "algo=./file_algo.py"]) == 0
    lines = shown(capsys)
    assert lines[0] == "file_climber: Another page."
    assert "algo.population 6 file_algo.yaml of the page" in lines


def test_comment_in_a_config_is_shown_if_the_yaml_beside_it_sets_the_value_without_one(
    workplace: Path, capsys: Any
) -> None:
    Path("file_algo.yaml").write_text(PAGE.replace("# of the page", ""))
    assert main(["show", "algo=./file_algo.py"]) == 0
    (line,) = (line for line in shown(capsys) if line.startswith("algo.population"))
    assert line == "algo.population 6 file_algo.yaml steps tried per generation"


def test_yaml_beside_a_file_belongs_to_its_algorithm_alone(workplace: Path) -> None:
    Path("file_algo.py").write_text(NETWORK + ALGO)
    Path("file_algo.yaml").write_text(PAGE)
    (job,) = jobs(["algo=./file_algo.py", "network=file_wide", "env=CartPole"])
    assert job.values["algo"]["population"] == 6
    assert job.values["network"]["hidden"] == [48]


def test_algorithm_from_a_file_chooses_its_loop_and_buffer(workplace: Path) -> None:
    loop = """loop = {"name": "offpolicy", "warmup_steps": 9, "updates_per_step": 0.5, "batch_size": 4}
    buffer = {"name": "replay", "capacity": 50}"""
    Path("file_algo.py").write_text(ALGO.replace('loop = {"name": "evolution", "episodes": 1}', loop))
    (job,) = jobs(["algo=./file_algo.py", "env=CartPole", "algo.loop.batch_size=8"])
    assert job.values["algo"]["loop"].items() >= {"name": "offpolicy", "warmup_steps": 9, "batch_size": 8}.items()
    assert job.values["algo"]["buffer"].items() >= {"name": "replay", "capacity": 50}.items()


def test_part_of_an_algorithm_comes_from_a_file(workplace: Path) -> None:
    run = train(*PPO, "env=CartPole", "algo.entropy=./file_entropy.py")
    values = yaml.safe_load((run / "config.yaml").read_text())
    assert values["algo"]["entropy"] == {"name": "file_entropy", "ent_coef": 0.3}


def test_show_explains_the_settings_of_a_file_without_importing_it(workplace: Path, capsys: Any) -> None:
    assert main(["show", "algo=./file_algo.py", "network=./file_pack"]) == 2
    assert main(["show", "algo=./file_algo.py", "network=file_packed", "plugins=[./file_pack]"]) == 0
    lines = shown(capsys)
    assert lines[0] == "file_climber: Gaussian steps around the best weights."
    assert "algo.population 4 file_algo.py steps tried per generation" in lines
    assert "network.hidden [48] file_pack/__init__.py units of the layer" in lines
    assert "file_algo" not in sys.modules


def test_parts_of_a_file_are_listed(workplace: Path, capsys: Any) -> None:
    assert main(["list", "algo", "plugins=[./file_algo.py]"]) == 0
    assert "file_climber" in capsys.readouterr().out


@pytest.mark.usefixtures("forks")
def test_a_sweep_trains_a_file_beside_a_name(workplace: Path) -> None:
    assert main(["train", "-m", "algo=./file_algo.py,cem", "env=./file_env.py:Line", *QUIET]) == 0
    assert sorted(path.name for path in Path("runs").glob("*-*")) == ["cem-Line", "file_climber-Line"]


@pytest.mark.parametrize("is_imported", [False, True])
def test_a_folder_with_the_name_of_its_file_is_no_other_module(
    is_imported: bool, workplace: Path, monkeypatch: Any
) -> None:
    """With the current folder on Python's path, such a folder can be imported, as an empty package."""
    Path("file_own").mkdir()
    Path("file_own/file_own.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(workplace)
    if is_imported:
        importlib.import_module("file_own")
    module = imports.import_named("./file_own/file_own.py", "plugins")
    assert module.Wide.registered == "file_wide"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["env=./no.py:Line"], "env=./no.py: no such file"),
        (["env=./file_env.py"], "env=./file_env.py: name a class or an id in this file: env=./file_env.py:Line"),
        (["env=./file_env.py:Walk"], "has no gymnasium.Env 'Walk' and registers no such id (its classes: Line)"),
        (["env=./file_fault.py:X"], "cannot import './file_fault.py' (RuntimeError: no licence in file_fault, line 1)"),
        (["env=./file_exit.py:E"], "cannot import './file_exit.py' (SystemExit: 3 in file_exit, line 9)"),
        (["env=./file_syntax.py:X"], "file_syntax.py, line 2: invalid syntax"),
        (["env=./random.py:X"], "random.py has the name of another module"),
        (["env=./file_folder:X"], "env=./file_folder: has no __init__.py; name a file in this folder: "),
        (["plugins=[./file_folder]"], "plugins: ./file_folder: has no __init__.py"),
        (["plugins=[./file_pack/__init__.py]"], "./file_pack/__init__.py: name its folder instead: file_pack/"),
        (["plugins=[./no]"], "plugins: ./no: no such file"),
        (["plugins=[./file_env.py]", "env=./there/file_env.py:Line"], "have the same name; rename one of them"),
        (["algo=./no.py"], "algo=./no.py: no such file"),
        (["algo=./file_net.py"], "the file registers no algo; put @register(\"algo\", \"file_net\") above"),
        (["algo=./file_two.py"], "file_climber, file_other; choose plugins=[./file_two.py] algo=file_climber"),
        (["algo=./file_plain.py"], "class Climber in file_plain.py needs an inner class Config whose settings have"),
        (["algo=./file_loop.py"], "class Climber in file_loop.py needs its loop, as the class attribute loop = "),
        (["algo=./file_computed.py"], "file_computed.py, line 21: the value of population must be written out;"),
        (["algo=./file_typo.py"], "file_typo.py: loop: episods: unknown key; did you mean episodes? (there are: "),
        (["algo=./file_elsewhere.py"], "file_elsewhere.py: loop: evolutio: unknown name; did you mean evolution? ("),
        (["algo=./file_number.py"], "line 17: loop must be a section such as {'name': 'onpolicy'}"),
        (["algo=./file_unhashable.py"], "line 17: the value of loop must be written out;"),
        (["algo=./file_set_default.py"], "line 21: the value of population must consist of numbers, strings,"),
        (["algo=./file_untyped.py"], "file_untyped.py, line 22: step_size has no type; write step_size: <type> = 0.5"),
        (["algo=sac", "env=Pendulum", "network=./file_shared.py"], "network=file_shared: ignores members=2, so"),
        (["algo.intrinsic=./file_bonus.py"], "error: algo.intrinsic=file_bonus: Bonus is no Intrinsic (rlrun.addons."),
        (["network=./file_env.py"], "network=./file_env.py: the file registers no network"),
        (["algo=sac", "algo.buffer=./file_env.py"], 'registers no buffer; put @register("buffer", "file_env") above'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_file_that_does_not_fit_is_one_line_and_leaves_no_folder(
    words: list[str], line: str, workplace: Path, capsys: Any
) -> None:
    before = sorted(Path.cwd().iterdir())
    chosen = {word.partition("=")[0] for word in words}
    lacking = [word for word in ("algo=ppo", "env=CartPole") if word.partition("=")[0] not in chosen]
    assert main(["train", *words, *lacking, *QUIET]) == 2
    errors = capsys.readouterr().err
    assert line in errors and errors.count("\n") == 1
    made = [path for path in Path.cwd().iterdir() if path not in before and path.name != "__pycache__"]
    assert not made


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("file_algo.py", "].argmax()", "].argmax('x')", ["algo=./file_algo.py", "env=CartPole"]),
        ("file_env.py", "self.t += 1", "np.add(1, {})", [*PPO, "env=./file_env.py:Line"]),
        ("file_env.py", "self.t += 1", "np.add(1, {})", [*PPO, "env=./file_env.py:Line", "env.backend=async"]),
    ],
    ids=["update", "step", "step in a worker"],
)  # fmt: skip
def test_error_of_a_file_in_training_names_its_line(
    file: str, old: str, new: str, words: list[str], workplace: Path, capsys: Any
) -> None:
    text = (workplace / file).read_text()
    (workplace / file).write_text(text.replace(old, new))
    number = text[: text.index(old)].count("\n") + 1
    assert main(["train", *words, "run_dir=run", *QUIET]) == 1
    errors = capsys.readouterr().err
    assert "TypeError: " in errors and f" in {file.removesuffix('.py')}, line {number}\n" in errors


COMMANDS = (["eval", "run", "episodes=1"], ["resume", "run", "total_steps=128"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("words", "file"),
    [([*PPO, "env=./file_env.py:Line"], "file_env"), (["algo=./file_algo.py", "env=CartPole"], "file_algo")],
    ids=["env", "algo"],
)
def test_a_stored_path_is_imported_only_when_it_is_typed_again(
    words: list[str], file: str, command: list[str], workplace: Path, capsys: Any
) -> None:
    train(*words)
    forget()
    capsys.readouterr()
    assert main(command) == 2
    with pytest.raises(ConfigError, match="needs code of its own"):
        rlrun.load("run")
    line = f"error: run: needs code of its own; if you trust it, add 'plugins=[./{file}.py]'\n"
    assert capsys.readouterr().err == line and file not in sys.modules
    assert main([*command, f"plugins=[./{file}.py]"]) == 0
    assert "has changed" not in capsys.readouterr().err


def test_the_stored_path_itself_is_never_read(workplace: Path) -> None:
    """The file may lie elsewhere by now, and another one in its place."""
    train(*PPO, "env=./file_env.py:Line")
    Path("file_env.py").write_text("raise RuntimeError('imported')\n")
    forget()
    assert main(["eval", "run", "episodes=1", "plugins=[there/file_env.py]"]) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_file_that_has_changed_is_named_and_the_command_goes_on(
    command: list[str], workplace: Path, capsys: Any
) -> None:
    train(*PPO, "env=./file_env.py:Line")
    with Path("file_env.py").open("a") as file:
        file.write("# another line\n")
    forget()
    capsys.readouterr()
    assert main([*command, "plugins=[./file_env.py]"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "./file_env.py has changed" in line


def test_a_file_that_changes_after_its_import_is_not_used(workplace: Path, capsys: Any) -> None:
    train(*PPO, "env=./file_env.py:Line")
    with Path("file_env.py").open("a") as file:
        file.write("# another line\n")
    capsys.readouterr()
    assert main(["eval", "run", "episodes=1", "plugins=[./file_env.py]"]) == 2
    assert "has changed since this process imported it; start a new process" in capsys.readouterr().err


LATE = """
def limit():
    import file_late_beside
    return file_late_beside.limit()
"""
LATE_BESIDE = """
def limit():
    import file_late_far
    return file_late_far.LIMIT
"""


@pytest.mark.parametrize("reference", ["./there/file_late.py", "file_late", "./file_late_package", "file_late_named"])
def test_imports_within_functions_find_the_modules_beside_a_file(
    reference: str, workplace: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(imports, "_named", set())
    folder = (workplace / reference).parent
    if reference == "./file_late_package":
        folder = workplace / reference
        folder.mkdir()
        (folder / "__init__.py").write_text(LATE)
    elif reference == "file_late_named":  # a package whose neighbours lie in the current folder
        (folder / reference).mkdir()
        (folder / reference / "__init__.py").write_text(LATE)
    else:
        (folder / "file_late.py").write_text(LATE)
    (folder / "file_late_beside.py").write_text(LATE_BESIDE)
    (folder / "file_late_far.py").write_text("LIMIT = 7\n")
    (folder / "file_wanted_by_others.py").write_text("")
    module = imports.import_named(reference, "env")
    assert str(folder) not in sys.path
    assert module.limit() == 7
    with pytest.raises(ModuleNotFoundError):
        import file_wanted_by_others  # noqa: F401  (this test is a module of another folder)
    assert imports._spec("file_wanted_by_others") is None


def test_modules_of_other_folders_do_not_find_their_neighbours(workplace: Path) -> None:
    imports.import_named("./there/file_env.py", "env")
    library = workplace / "library"
    library.mkdir()
    (library / "file_library.py").write_text(LATE)
    (library / "file_late_beside.py").write_text(LATE_BESIDE)
    spec = importlib.util.spec_from_file_location("file_library", library / "file_library.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["file_library"] = module
    spec.loader.exec_module(module)
    with pytest.raises(ModuleNotFoundError, match="file_late_beside"):
        module.limit()


@pytest.mark.parametrize("line", ["from .file_world import SPEED", "from file_package.file_world import SPEED"])
def test_a_file_of_a_package_is_advised_to_be_named_as_its_module(line: str, workplace: Path) -> None:
    package = workplace / "file_package" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
        (folder / "file_world.py").write_text("SPEED = 1\n")
    (package / "file_env.py").write_text(line)
    with pytest.raises(ConfigError) as caught:
        imports.import_named("./file_package/inner/file_env.py", "env")
    (fault,) = caught.value.faults
    advice = "name it file_package.inner.file_env in place of ./file_package/inner/file_env.py"
    assert fault.endswith(f"; it is a part of a package: {advice}, in the folder {workplace}")
    assert imports.import_named("file_package.inner.file_env", "env").SPEED == 1
