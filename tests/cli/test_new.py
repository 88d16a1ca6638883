"""`rlrun new`: from nothing to a green test and a run, in three commands."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_files import forget

from rlrun.cli import main
from rlrun.cli.new import TEMPLATES
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.run.assemble import build_loop
from rlrun.settings import registry

KINDS = sorted(folder.name for folder in TEMPLATES.iterdir())
QUICK = ["trainer.total_steps=200", "trainer.eval_episodes=1", "trainer.eval_max_steps=20", "logger=[]",
         "env.selftest=off", "preset=none", "trainer.engine=eager", "run_dir=run"]  # fmt: skip
REPLAY = ["algo.loop.warmup_steps=100", "algo.loop.updates_per_step=0.1", "algo.loop.batch_size=16"]
TRAIN = {
    "algo": ["algo=./file_own/file_own.py", "env=CartPole"],
    "env": ["algo=ppo", "env=./file_own/file_own.py:FileOwn", "algo.loop.rollout_steps=20"],
    "network": ["algo=ppo", "env=CartPole", "network=./file_own/file_own.py", "algo.loop.rollout_steps=20"],
    "wrapper": ["algo=ppo", "env=CartPole", "plugins=[./file_own/file_own.py]", "env.wrappers.file_own.repeat=2",
                "algo.loop.rollout_steps=20"],
    "callback": ["algo=ppo", "env=CartPole", "plugins=[./file_own/file_own.py]", "callbacks=[file_own]",
                 "algo.loop.rollout_steps=20"],
    "head": ["algo=ppo", "env=Pendulum", "algo.head=./file_own/file_own.py", "algo.loop.rollout_steps=20"],
    "intrinsic": ["algo=ppo", "env=CartPole", "algo.intrinsic=./file_own/file_own.py", "algo.loop.rollout_steps=20"],
    "representation": ["algo=ppo", "env=CartPole", "algo.representation=./file_own/file_own.py",
                       "algo.loop.rollout_steps=20"],
    "buffer": ["algo=sac", "env=Pendulum", "algo.buffer=./file_own/file_own.py", *REPLAY],
    "critic": ["algo=sac", "env=Pendulum", "algo.critic=./file_own/file_own.py", *REPLAY],
    "loop": ["algo=sac", "env=Pendulum", "algo.loop=./file_own/file_own.py", *REPLAY, "algo.loop.ramp_steps=5"],
}  # fmt: skip
RLRUN = Path(sys.executable).with_name("rlrun")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: Any) -> Iterator[Path]:
    """An empty working folder, in a process that has imported nothing from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "test_file_own", raising=False)
    forget()
    yield tmp_path
    forget()


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_test_and_trains(kind: str, workplace: Path, capsys: Any) -> None:
    assert main(["new", kind, "file_own"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["file_own/file_own.py", "file_own/test_file_own.py", ""]
    assert lines[3] == "pytest file_own/"
    assert all(word in lines[4] for word in TRAIN[kind] if "file_own" in word)
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=.", "-k", "not Pendulum"]
    assert pytest.main([*options, "file_own/"]) == 0
    assert main(["train", *TRAIN[kind], *QUICK]) == 0
    assert "my_" not in Path("file_own/file_own.py").read_text()


def test_new_algorithm_sums_no_rewards_beyond_a_masked_step(workplace: Path) -> None:
    assert main(["new", "algo", "file_own"]) == 0
    (job,) = jobs(["algo=./file_own/file_own.py", "env=CartPole", *QUICK])
    registry.load(job.values["plugins"])
    loop: Any = build_loop(run_config(job.values))
    rollout = {
        "obs": torch.rand(3, 1, 4), "next_obs": torch.rand(3, 1, 4), "reward": torch.ones(3, 1),
        "terminated": torch.zeros(3, 1, dtype=torch.bool), "truncated": torch.tensor([[False], [True], [False]]),
        "weight": torch.tensor([[1.0], [0.0], [1.0]]),
    }  # fmt: skip
    with torch.no_grad():
        value, next_value = (loop.agent.critic(rollout[name][0]) for name in ("obs", "next_obs"))
    advantage = loop.agent.targets(rollout)["advantage"][0]
    loop.env.close()
    torch.testing.assert_close(advantage, 1.0 + loop.agent.cfg.gamma * next_value - value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_three_commands_of_a_new_plugin_work_in_processes_of_their_own(kind: str, tmp_path: Path) -> None:
    pytest_command = [sys.executable, "-m", "pytest", "-q", "file_own/"]
    for command in ([RLRUN, "new", kind, "file_own"], pytest_command, [RLRUN, "train", *TRAIN[kind], *QUICK]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], f"usage: rlrun new KIND NAME (kinds: {', '.join(KINDS)})"),
        (["algos", "mine"], f"no kind 'algos'; did you mean algo? (there are: {', '.join(KINDS)})"),
        (["algo", "my-algo"], "'my-algo': must be a name of small letters, digits and _, such as my_algo"),
        (["algo", "class"], "'class': must be a name of small letters, digits and _"),
        (["algo", "_"], "'_': must be a name of small letters, digits and _"),
        (["algo", "MyAlgo_x"], "'MyAlgo_x': must be a name of small letters, digits and _"),
        (["network", "tensor"], "tensor: the file uses the name Tensor for something else; choose another name"),
        (["algo", "sac"], "sac: there is a registered algo of this name; choose another one"),
        (["env", "random"], "random: there is a module of this name, "),
        (["env", "there"], "there/test_there.py: exists already"),
        (["env", "file"], "file: exists already"),
        (["env", "folder"], "folder/folder.py: exists already"),
        (["env", "dangling"], "dangling: exists already"),
        (["env", "a" * 300], f"{'a' * 300}: cannot be written (File name too long)"),
        (["env", "b" * 250], f"{'b' * 250}/test_{'b' * 250}.py: cannot be written (File name too long)"),
    ],
    ids=lambda value: " ".join(value)[:20] if isinstance(value, list) else "",
)
def test_new_refuses_in_one_line_and_writes_nothing(words: list[str], line: str, workplace: Path, capsys: Any) -> None:
    Path("there").mkdir()
    Path("there/test_there.py").write_text("# mine\n")
    Path("file").touch()
    Path("folder/folder.py").mkdir(parents=True)
    Path("dangling").symlink_to("nowhere")
    before = sorted(Path.cwd().rglob("*"))
    assert main(["new", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {line}") and error.count("\n") == 1
    assert sorted(Path.cwd().rglob("*")) == before
    assert Path("there/test_there.py").read_text() == "# mine\n"
