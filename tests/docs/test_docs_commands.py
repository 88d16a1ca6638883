"""The commands on the pages of the documentation run, with few steps.

They run in one process, in a folder with small runs that stand for those of the reader.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import PAGES, commands

from rlrun.cli import main
from rlrun.config import check
from rlrun.config.jobs import jobs

# commands that other tests run, and why they cannot run here
ELSEWHERE = {
    "push": "tests/hub, with a hub of its own",
    "pull": "tests/hub",
    "watch": "tests/cli/test_watch.py, without a display",
    "board": "tests/telemetry/test_board.py: serves until it is interrupted",
    "bench": "tests/bench: measures for minutes",
    "clean": "tests/cli/test_clean.py: asks",
    "export": "tests/export: needs the extra",
    "new": "tests/cli/test_new.py",
    "tail": "tests/cli/test_tail.py: waits for rows",
    "doctor": "tests/cli/test_lessons.py and test_commands.py: prints problems of this machine",
}
OUTSIDE = (  # other machines, packages that are not installed, and modules and data of the reader
    "submit=", "wandb", "mlflow", "jax", "my_", "mine", "FetchReach", "mujoco/halfcheetah", "minigrid:",
    "mo_gymnasium:",
    "$", "...", "<another", "theirs", "/data/", "device=cuda", "docs/examples", "sac-*", "teacher", "someone",
    "expert-v0", "record=", "steps=1e5",
)  # fmt: skip
CUTS = {  # applied to trained runs, if their config has the key
    "trainer.total_steps": 60,
    "trainer.eval_every": 60,
    "trainer.eval_episodes": 1,
    "trainer.snapshot_every": 60,
    "trainer.log_every": 60,
    "algo.loop.warmup_steps": 20,
    "algo.loop.rollout_steps": 8,
    "algo.loop.batch_size": 8,
    "env.num_envs": 2,
}


def trained(words: list[str]) -> list[str]:
    """Returns the words of a run with few steps, and of few runs."""
    cut = [re.sub(r"^seed=.*", "seed=0,1" if "-m" in words else "seed=0", word) for word in words]
    if "--dry-run" in cut or any(word.startswith("--cfg") for word in cut):
        return cut
    found = jobs([word for word in cut[1:] if not word.startswith("-")], multirun="-m" in cut)
    for key, value in CUTS.items():
        if all(check.lookup(key, job.values) not in (check.ABSENT, None) for job in found):
            cut.append(f"{key}={value}")
    return [*cut, "logger=[]"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs that the pages name."""
    home = tmp_path_factory.mktemp("reader")
    for algo, env in (("ppo", "CartPole"), ("sac", "Pendulum")):
        words = trained(["train", f"algo={algo}", f"env={env}"])
        assert main([*words, "trainer.snapshot_every=30", "trainer.snapshot_archive_every=30",
                     f"run_dir={home}/runs/{algo}-{env}/first"]) == 0  # fmt: skip
    shutil.copytree(home / "runs/sac-Pendulum", home / "runs/sac-HalfCheetah")
    return home


def placed(words: list[str], home: Path) -> list[str]:
    """Returns the words with the runs of this test in place of those that stand for the reader's."""
    run = "runs/ppo-CartPole/first"
    found = []
    for word in words:
        word = re.sub(r"(runs/[\w-]+)/<run>", r"\1/first", word)
        word = re.sub(r"\bRUN[12]?\b|<run>", run, word).replace("step_000050000", "best")
        found.append(
            word.replace("NEW_DIR", "new").replace("env.kwargs.gravity=-5", "env.kwargs.sutton_barto_reward=true")
        )
    return found


def runnable() -> Iterator[tuple[Path, list[str]]]:
    for page in PAGES:
        for words in commands(page):
            if words[0] not in ELSEWHERE and not any(part in " ".join(words) for part in OUTSIDE):
                yield page, words


COMMANDS = {
    " ".join(words): words for _, words in runnable() if words[0] != "sweep" and "runs/sweeps" not in str(words)
}


def test_most_commands_of_the_documentation_are_run_here() -> None:
    everywhere = {" ".join(words) for page in PAGES for words in commands(page)}
    assert len(COMMANDS) > 45 and len(COMMANDS) > len(everywhere) / 3


@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_the_documentation_runs(
    line: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    shutil.copytree(runs, home)
    monkeypatch.chdir(home)
    words = placed(COMMANDS[line], home)
    if words[0] == "train":
        words = trained(words)
    if words[0] == "resume":
        words = [re.sub(r"^total_steps=.*", "total_steps=120", word) for word in words]
    assert main(words) == 0, capsys.readouterr().err
