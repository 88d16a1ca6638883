"""The callbacks `code` and `empty_cache`."""

from pathlib import Path

import pytest
import torch

import rlrun
from rlrun.cli import main

WORDS = ["algo=ppo", "env=CartPole", "preset=none", "trainer.eval_every=0", "trainer.eval_episodes=0", "logger=[]",
         "env.num_envs=4", "algo.loop.rollout_steps=5", "algo.epochs=1", "algo.minibatch_size=20",
         "trainer.total_steps=40", "network.hidden=[8]"]  # fmt: skip
CALLBACK = '''
from rlrun.core.callback import Callback
from rlrun.settings import register

@register("callback", "kept_plugin")
class Kept(Callback):
    """Does nothing."""
'''


def tree(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def test_code_is_kept_with_the_run_and_again_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "pkg" / "inner").mkdir(parents=True)
    for name in ("train.py", "pkg/model.py", "pkg/inner/part.py", "pkg/notes.txt", "other.py"):
        (home / name).write_text(f"# {name}")
    (home / "kept_plugin.py").write_text(CALLBACK)
    monkeypatch.chdir(home)
    chosen = 'callbacks=[{name: code, files: [train.py, "pkg/**/*.py"]}]'
    run = rlrun.train(*WORDS, "plugins=[./kept_plugin.py]", chosen, "trainer.stop_at=20", run_dir=str(tmp_path / "run"))
    kept = {name: f"# {name}" for name in ("train.py", "pkg/model.py", "pkg/inner/part.py")}
    at_first = tree(run.path / "code" / "step_000000000")  # with what earlier tests of this process have imported
    assert kept.items() | {("kept_plugin.py", CALLBACK)} <= at_first.items()
    assert not {"pkg/notes.txt", "other.py"} & at_first.keys()
    run.resume("plugins=[./kept_plugin.py]")
    resumed = tree(run.path / "code" / "step_000000020")
    assert resumed["kept_plugin.py"] == CALLBACK and not kept.keys() & resumed.keys(), "no files of the stored config"
    assert tree(run.path / "code" / "step_000000000") == at_first


@pytest.mark.parametrize(
    "pattern, message",
    [
        ("train.pi", "files=train.pi: matches no file below"),
        ("../secret", "files=../secret: must be below the current folder"),
        ("/etc/passwd", "files=/etc/passwd: must be below the current folder"),
        ("link", "files=link: link leads out of the current folder"),
    ],
)
def test_code_outside_of_the_current_folder_is_refused(
    pattern: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("secret")
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(tmp_path / "secret")
    monkeypatch.chdir(home)
    words = [*WORDS, f'callbacks=[{{name: code, files: ["{pattern}"]}}]', f"run_dir={tmp_path / 'run'}"]
    assert main(["train", *words]) == 2
    assert f"error: callbacks: code: {message}" in capsys.readouterr().err
    assert not (tmp_path / "run" / "code").exists()


def test_memory_is_given_back_before_every_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(True))
    rlrun.train(*WORDS, "callbacks=[empty_cache]", run_dir=str(tmp_path / "run"))
    assert len(calls) == 2
