"""The commands on the pages of the documentation run, with few steps.

They run in one process, in a folder with the files and runs that the pages name.
"""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from fake_slurm import HOME, FakeSlurm
from pages import PAGES, commands
from reader import DATA_SETS, composed, forget_own, furnish, placed, searched, trained

from rlrun.cli import main

# commands that other tests run, and why they cannot run here
ELSEWHERE = {
    "push": "tests/hub, with a hub of its own",
    "pull": "tests/hub",
    "watch": "tests/cli/test_watch.py, without a display",
    "board": "tests/telemetry/test_board.py: serves until it is interrupted",
    "bench": "tests/bench: measures for minutes",
    "clean": "tests/cli/test_clean.py: asks",
    "export": "tests/export: needs the extra",
    "new": "tests/cli/test_new.py, in an empty folder",
    "doctor": "tests/cli/test_lessons.py and test_commands.py: prints problems of this machine",
    "train algo=my_algo": "tests/test_plugin.py, with an installed package",
    "sweep replay": "tests/cli/test_sweep_command.py",
    "sweep resume": "tests/cli/test_sweep_command.py",
    "sweep stop": "tests/cli/test_sweep_command.py",
}
FIRST = "the tutorial of docs/sweeps.md, which tests/cli/test_sweep_command.py runs in its order"
PACKAGES = {  # that a command needs, by a part of it
    "wandb": "wandb", "mlflow": "mlflow", "env.backend=jax": "jax", "env=playground": "mujoco_playground",
    "env=phys2d": "jax", "envpool": "envpool", "FetchReach": "gymnasium_robotics", "minigrid:": "minigrid",
    "mo_gymnasium:": "mo_gymnasium", "submit=slurm": "submitit", "submit=ray": "a_ray_cluster", "env=ALE": "ale_py",
    "video=": "imageio_ffmpeg", "record=": "minari", "mujoco/halfcheetah": "a_download_of_the_data_set",
    "...": "words_that_the_page_leaves_out",
} | dict.fromkeys(DATA_SETS, "minari")  # fmt: skip


def elsewhere(words: list[str]) -> bool:
    return words[0] in ELSEWHERE or " ".join(words[:2]) in ELSEWHERE or any("first" in word for word in words)


EVERYWHERE = {" ".join(words): words for page in PAGES for words in commands(page)}
COMMANDS = {line: words for line, words in EVERYWHERE.items() if not elsewhere(words)}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        furnish(home)
    return home


def test_most_commands_of_the_documentation_are_run_here() -> None:
    assert len(COMMANDS) > 100 and len(COMMANDS) > 2 * len(EVERYWHERE) / 3


@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_the_documentation_runs(
    line: str, reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = placed(COMMANDS[line])
    lacking = [package for part, package in PACKAGES.items() if part in line and find_spec(package) is None]
    if lacking:
        assert words[0] != "train" or composed(words)
        pytest.skip(f"composed only: {', '.join(lacking)} is not installed")
    home = tmp_path / "home"
    shutil.copytree(reader, home)
    monkeypatch.chdir(home)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(str(home))
    slurm = None
    if any(word == "submit=slurm" for word in words) and words[0] != "show":
        slurm = FakeSlurm(tmp_path / "slurm", slots=0)
        monkeypatch.setenv("PATH", str(slurm.bin), prepend=":")
        monkeypatch.setenv(HOME, str(slurm.folder))
    try:
        if words[0] == "train":
            words = trained(words)
        elif words[0] == "sweep" and "=" in words[1]:
            words = searched(words)
            shutil.rmtree(home / "runs/sweeps")
        elif words[0] == "resume":
            words = [re.sub(r"^total_steps=.*", "total_steps=120", word) for word in words]
        elif words[0] == "eval" and any(word.startswith("record=") for word in words):
            shutil.rmtree(home / words[-1].removeprefix("record="), ignore_errors=True)
        assert main(words) == 0, capsys.readouterr().err
        assert slurm is None or slurm.jobs()
    finally:
        forget_own()
        if slurm:
            slurm.close()
