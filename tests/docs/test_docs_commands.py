"""The commands on the pages of the documentation run, with few steps.

They run in one process, in a folder with the files and runs that the pages name. Training commands in sentences, in
tables and on the pages of algorithms are composed.
"""

import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from fake_slurm import HOME, FakeSlurm
from forks import forked
from once import filled_once
from pages import PAGES, ROOT, commands, errors, inline
from reader import DATA_SETS, composed, forget_own, furnish, placed, restore, searched, trained

from rlrun import cli
from rlrun.cli import main, sweep
from rlrun.cluster.submission import chosen
from rlrun.errors import ConfigError
from rlrun.sweep.plan import plan

MEASURES = "measures this machine for seconds or minutes"
SERVES = "serves until it is interrupted"
TRAINS = "trains for half a minute; tests/cli/test_learning_check.py"
DISPLAY = "needs a display; tests/cli/test_watch.py"
HUB = "needs a model hub; tests/hub/test_hub.py"
TUTORIAL = "needs the commands before it; tests/cli/test_sweep_command.py runs the tutorial in its order"
NOT_RUN = {  # commands of the pages, and why they do not run here; those that train are composed
    **dict.fromkeys(("bench", "bench update", "bench update sac ppo", "bench tick", "bench simulators"), MEASURES),
    "bench replay repeats=9 seconds=1 results=bench.jsonl": MEASURES,
    "doctor --probe": MEASURES,
    **dict.fromkeys(("board", "board runs/sac-HalfCheetah port=6007", "board port=0"), SERVES),
    "doctor --learn": TRAINS,
    **dict.fromkeys(("watch RUN", "watch RUN episodes=3 seed=7", "watch runs/sac-HalfCheetah/<run>"), DISPLAY),
    "watch RUN/snapshots/step_000050000 explore=true": DISPLAY,
    "watch RUN env.kwargs.sutton_barto_reward=true": DISPLAY,
    **dict.fromkeys(("pull someone/sac-cheetah", "pull someone/sac-cheetah into=cheetah"), HUB),
    **dict.fromkeys(("push RUN repo=me/sac-cheetah", "push RUN repo=me/ppo-hopper"), HUB),
    "push runs/sac-HalfCheetah/<run> repo=me/sac-cheetah private=true": HUB,
    "push RUN/snapshots/step_000050000 repo=me/sac-cheetah": HUB,
    "resume DIR total_steps=2e6": "is refused, as its page says; tests/hub/test_hub.py",
    "sweep name=first algo=q_learning env=FrozenLake algo.learning_rate=log(1e-2,1) trials=4 seeds=2 workers=2 "
    "winners=1 fresh_seeds=2 trainer.total_steps=2000 trainer.eval_every=500 trainer.eval_episodes=5": TUTORIAL,
    **dict.fromkeys(("sweep status runs/sweeps/first", "report runs/sweeps/first"), TUTORIAL),
    **dict.fromkeys(("sweep best runs/sweeps/first", "sweep replay runs/sweeps/first"), TUTORIAL),
    "train algo=q_learning env=FrozenLake preset=runs/sweeps/first/best.yaml": TUTORIAL,
    "train algo=my_algo env=CartPole": "needs an installed package",
    "train algo=iql env=HalfCheetah algo.loop.data=mujoco/halfcheetah/expert-v0": "needs a download of Minari's",
    "train -m algo=ppo env=CartPole seed=range(4) submit=ray submit.cpus=1": "needs Ray; tests/cluster/test_ray.py",
}
NEEDS = {  # packages that a command needs, by a part of it
    "wandb": "wandb", "mlflow": "mlflow", "env.backend=jax": "jax", "env=playground": "mujoco_playground",
    "env=phys2d": "jax", "envpool": "envpool", "FetchReach": "gymnasium_robotics", "minigrid:": "minigrid",
    "minatar:": "minatar", "highway_env:": "highway_env", "shimmy:": "shimmy", "mo_gymnasium:": "mo_gymnasium",
    "submit=slurm": "submitit", "env=ALE": "ale_py", "video=": "imageio_ffmpeg",
    "record=": "minari", "export RUN": "onnx", "export runs/sac-HalfCheetah/<run>": "onnx",
} | dict.fromkeys(DATA_SETS, "minari") | {"env=Digits": "sklearn"}  # fmt: skip
RAY_WORKERS = (
    "train algo=ppo env=HalfCheetah env.num_envs=64 algo.loop.shards=16 cluster=ray",
    "train algo=ppo env=CartPole env.num_envs=4 algo.loop.shards=2 cluster=ray cluster.address=local",
)
RAY_ENVS = (
    "train algo=sac env=HalfCheetah env.num_envs=16 env.backend=ray",
    "train algo=ppo env=CartPole env.num_envs=4 env.backend=ray env.ray.workers=1 env.ray.address=local",
)
NOT_RUN |= dict.fromkeys(RAY_ENVS, "needs Ray; tests/envs/test_ray_pool.py")
NOT_RUN |= dict.fromkeys(RAY_WORKERS, "needs Ray; tests/shards/test_ray_worker.py")
WHOLE_SWEEP = "sweep algo=sac env=Pendulum trainer=quick"  # the others are planned only; the reader has one more
WHOLE_GRIDS = (  # the others are composed only
    "train -m algo=ppo,dqn env=CartPole seed=0,1,2",
    "train -m algo=ppo env=CartPole seed=0,1,2 resume=auto submit=local",
    "train -m algo=ppo env=CartPole seed=range(10) submit=slurm submit.workers=4",
)
pytestmark = pytest.mark.usefixtures("forks")
UNREAD = ROOT / "CHANGELOG.md"  # has commands of the past


def is_mention(words: list[str]) -> bool:
    """Returns whether a text has only the name of a command, or of one of `rlrun sweep`."""
    return (
        len(words) == 1 or words == ["train", "-m"] or (words[0] == "sweep" and len(words) == 2 and words[1].isalpha())
    )


BLOCKS = {" ".join(words): words for page in PAGES for words in commands(page)}
TEXTS = {" ".join(words): words for page in PAGES if page != UNREAD for words in inline(page)}
COMMANDS = {line: words for line, words in BLOCKS.items() if line not in NOT_RUN}
MENTIONS = {line: words for line, words in TEXTS.items() if is_mention(words)}
ERRORS = {command: lines for page in PAGES for command, lines in errors(page)}
SHORT = {line: words for line, words in TEXTS.items() if line not in COMMANDS | NOT_RUN | MENTIONS | ERRORS}


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader, which tests copy before they change it."""

    def fill(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch, forked():
            patch.chdir(folder)
            patch.setenv("OMP_NUM_THREADS", "1")
            furnish(folder)

    return filled_once(tmp_path_factory, "reader", fill)


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this worker's copy of the reader's folder."""
    return tmp_path_factory.mktemp("copy") / "home"


@pytest.fixture
def home(reader: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The copy as the reader's folder is, without what tests before have changed; it is the current folder."""
    folder = copy
    restore(folder, reader)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("rlrun.run.dry_run.MEASURED_S", 0.1)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    forget_own()


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    """A scheduler without free machines."""
    slurm = FakeSlurm(tmp_path / "slurm", slots=0)
    monkeypatch.setenv("PATH", str(slurm.bin), prepend=":")
    monkeypatch.setenv(HOME, str(slurm.folder))
    yield slurm
    slurm.close()


def composable(words: list[str]) -> list[str]:
    """Returns the words of a training command with CartPole in place of an environment whose package is missing."""
    missing = (f"env={part}" for part, package in NEEDS.items() if part.endswith(":") and find_spec(package) is None)
    absent = tuple(missing)
    return ["env=CartPole" if word.startswith(absent) else word for word in words]


def lacking(line: str) -> list[str]:
    """Returns the packages that a command needs and that are not installed."""
    if "format=torch" in line:
        return []
    return [package for part, package in NEEDS.items() if part in line and find_spec(package) is None]


def shortened(words: list[str], home: Path) -> list[str]:
    """Returns the words of a command that ends soon, after removing files that it would refuse to overwrite."""
    if "--help" in words:
        return words
    if words[0] == "train":
        return trained(words)
    if words[0] == "sweep" and "=" in words[1]:
        shutil.rmtree(home / "runs/sweeps")
        return searched(words)
    if words[0] == "resume":
        return [re.sub(r"^total_steps=.*", "total_steps=120", word) for word in words]
    if words[0] == "eval" and words[-1].startswith("record="):
        shutil.rmtree(home / words[-1].removeprefix("record="), ignore_errors=True)
    if words[0] == "new":
        (home / f"{words[2]}.py").unlink(missing_ok=True)
        shutil.rmtree(home / words[2], ignore_errors=True)
    return words


def test_reasons_belong_to_commands_of_the_pages() -> None:
    assert set(NOT_RUN) <= BLOCKS.keys() | TEXTS.keys()
    assert COMMANDS.keys() >= {*WHOLE_GRIDS}
    assert len(COMMANDS) > 140 and len(SHORT) > 90


@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_the_documentation_runs(
    line: str, home: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    words = placed(COMMANDS[line])
    if packages := lacking(line):
        assert words[0] != "train" or composed(composable(words))
        pytest.skip(f"composed only: {', '.join(packages)} is not installed")
    slurm = None
    if "submit=slurm" in words and words[0] == "train":
        slurm = request.getfixturevalue("scheduler")
    if words[0] == "sweep" and "=" in words[1] and not line.startswith(WHOLE_SWEEP):
        _, own = chosen(words[1:], {})
        assert plan(own).templates
        return
    if "-m" in words and line not in WHOLE_GRIDS:
        assert len(composed(words)) > 1
        return
    words = shortened(words, home)
    assert main(words) == 0, capsys.readouterr().err
    assert slurm is None or slurm.jobs()


def test_commands_in_sentences_and_tables_run_or_compose(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults = []
    for line, given in SHORT.items():
        words = placed(given)
        try:
            if words[0] == "train" and "--help" not in words:
                composed(composable(words))
            elif words[0] == "sweep" and "=" in words[1]:
                plan(words[1:])
            elif not lacking(line) and main(shortened(words, home)) != 0:
                faults.append(f"{line}: {capsys.readouterr().err}")
        except ConfigError as error:
            faults.append(f"{line}: {error}")
        forget_own()
    assert not faults, "\n".join(faults)


def test_training_commands_that_are_not_run_compose(home: Path) -> None:
    (home / "runs/sweeps/first").mkdir()
    (home / "runs/sweeps/first/best.yaml").write_text("algo: {learning_rate: 0.1}\n")  # as that of the tutorial
    for line in NOT_RUN:
        words = placed((BLOCKS | TEXTS)[line])
        if words[0] == "train" and words[1] != "algo=my_algo":
            composed(words)


def test_mentioned_commands_exist() -> None:
    for words in MENTIONS.values():
        name, *part = words
        assert name in cli.COMMANDS or name in ("--help", "--version")
        assert name != "sweep" or not part or part[0] in sweep.HELP


@pytest.mark.parametrize(("command", "lines"), ERRORS.items())
def test_errors_on_the_pages_are_those_that_are_printed(
    command: str, lines: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(ERRORS) >= 4
    words = placed(command.split())
    assert main(words) != 0
    said = capsys.readouterr().err.splitlines()
    assert said == [" ".join(placed(line.split(" "))) for line in lines]
