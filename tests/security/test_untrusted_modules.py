"""No module is imported because a stored config names it, or because it is in the current folder."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from faults.rows.processes import Child

from rlrun import imports
from rlrun.cli import main

SMALL = ["preset=none", "env.num_envs=1", "network.hidden=[8]", "algo.loop.rollout_steps=10", "trainer.total_steps=20",
         "trainer.eval_episodes=1", "env.max_episode_steps=10", "logger=[console]"]  # fmt: skip

MODULE = """
from pathlib import Path
Path(__file__).with_name("IMPORTED").touch()
import gymnasium
gymnasium.register("Mine-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
"""


RLRUN = Path(sys.executable).with_name("rlrun")


def rlrun(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command like a user, in a new process, in this folder."""
    return subprocess.run([RLRUN, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a stored run with an environment of a neighbouring module, which must not be imported."""
    folder = tmp_path_factory.mktemp("untrusted")
    assert main(["train", "algo=ppo", "env=CartPole", *SMALL, f"run_dir={folder / 'run'}"]) == 0
    (folder / "evil.py").write_text(MODULE)
    return folder / "run"


def rename_env(run: Path, env_id: str) -> None:
    """Gives the run another environment, in its config and in its snapshots, as an attacker can."""
    values = yaml.safe_load((run / "config.yaml").read_text())
    values["env"]["id"] = env_id
    (run / "config.yaml").write_text(yaml.safe_dump(values))


UNTRUSTED = [["eval", "run", "episodes=1"], ["export", "run", "format=torch"], ["resume", "run", "total_steps=40"]]


@pytest.mark.parametrize("command", UNTRUSTED)
@pytest.mark.parametrize("module", ["evil", "run.evil", "antigravity"])
def test_stored_env_ids_import_no_module(
    run: Path, command: list[str], module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rename_env(run, f"{module}:Mine-v0")
    monkeypatch.chdir(run.parent)
    assert main(command) == 2
    refusal = f"error: run: needs code of its own; if you trust it, add 'plugins=[{module}]'"
    assert capsys.readouterr().err.splitlines() == [refusal]
    assert not (run.parent / "IMPORTED").exists() and module not in sys.modules


@pytest.mark.parametrize(
    "env_id", [":CartPole-v1", ":evil:Mine-v0", " evil:Mine-v0", "evil.py:Mine-v0", "gymnasium:make", ":"]
)
def test_malformed_env_ids_are_refused_in_one_line(
    run: Path, env_id: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rename_env(run, env_id)
    (run.parent / "None.py").write_text(MODULE)
    monkeypatch.chdir(run.parent)
    assert main(["eval", "run", "episodes=1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: run") or line.startswith("error: env.id='gymnasium:make'"), line
    assert not (run.parent / "IMPORTED").exists() and "None" not in sys.modules


@pytest.mark.parametrize("key", ["env", "plugins"])
@pytest.mark.parametrize("module", ["json", "gymnasium", "__main__", "cython_runtime"])
def test_module_that_only_a_library_imported_does_not_count_as_typed(
    run: Path, tmp_path: Path, module: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers would import it again, from the current folder if it cannot be found elsewhere."""
    assert module in sys.modules
    hostile = tmp_path / "run"  # without snapshots, so that a resume begins at step 0
    hostile.mkdir()
    for entry in ("config.yaml", "overrides.yaml", "meta.json"):
        (hostile / entry).write_bytes((run / entry).read_bytes())
    rename_env(hostile, "CartPole-v1")
    if key == "env":
        rename_env(hostile, f"{module}:CartPole-v1")
    else:
        text = (hostile / "config.yaml").read_text()
        (hostile / "config.yaml").write_text(text.replace("plugins: []", f"plugins: [{module}]"))
    assert main(["resume", str(hostile), "total_steps=40"]) == 2
    refusal = f"error: {hostile}: needs code of its own; if you trust it, add 'plugins=[{module}]'"
    assert capsys.readouterr().err.splitlines() == [refusal]


def test_modules_of_installed_plugins_count_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = EntryPoint("mine", "json.decoder:JSONDecoder", imports.PLUGINS)
    monkeypatch.setattr(imports, "installed_plugins", lambda: EntryPoints([plugin]))
    assert imports.typed_again("json.decoder") == "json.decoder"
    assert imports.typed_again("json.not_imported") is None and imports.typed_again("gymnasium") is None


def test_a_branch_imports_no_module_either(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rename_env(run, "evil:Mine-v0")
    monkeypatch.chdir(run.parent)
    assert main(["resume", "run", f"into={tmp_path / 'new'}"]) == 2
    assert "plugins=[evil]" in capsys.readouterr().err
    assert not (run.parent / "IMPORTED").exists() and not (tmp_path / "new").exists()


def test_a_module_that_the_user_typed_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    train = ["train", "algo=ppo", "env=mine:Mine-v0", *SMALL, "run_dir=run"]
    done = rlrun(tmp_path, *train)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    for number, words in enumerate((["resume", "run", "total_steps=40", "plugins=[mine]"], [*train, "resume=auto"])):
        fork = Child(words, tmp_path / f"{number}.log")
        assert fork.finish() == 0, fork.said()


OPTIONAL = ("msvcrt", "dill", "charset_normalizer", "brotli", "zstandard", "h5py", "minari", "jax", "envpool",
            "sklearn", "IPython", "xxhash", "pandas", "usercustomize", "sitecustomize", "hydra_plugins", "tensorflow",
            "triton", "cv2", "wandb", "lz4", "simplejson", "colorama", "curl_cffi", "numba")  # fmt: skip


COMMANDS = [("eval", ".", "episodes=1"), ("train", "algo=ppo", "env=CartPole", *SMALL, "env.backend=async")]
LONGER = [("resume", ".", "total_steps=40"), ("report", "."), ("status", "."), ("doctor",), ("list", "algo"),
          ("show", "algo=sac")]  # fmt: skip
LONGER = [pytest.param(words, marks=pytest.mark.slow) for words in LONGER]


@pytest.mark.parametrize("command", [*COMMANDS, *LONGER], ids=lambda words: words[0])
def test_nothing_is_imported_from_the_current_folder(run: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    rename_env(run, "CartPole-v1")
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for entry in ("config.yaml", "overrides.yaml", "meta.json", "metrics.jsonl", "summary.json"):
        (hostile / entry).write_bytes((run / entry).read_bytes())
    os.rename(run / "snapshots", hostile / "snapshots")
    try:
        missing = [name for name in OPTIONAL if not find_spec(name)]
        for name in [*missing, *sys.stdlib_module_names]:
            (hostile / f"{name}.py").write_text(MODULE.partition("import gymnasium")[0])
        metadata = hostile / "evil-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: evil\nVersion: 1.0\n")
        groups = ("rlrun.plugins", "gymnasium.envs", "hydra.plugins")
        (metadata / "entry_points.txt").write_text("".join(f"[{group}]\nevil = msvcrt\n" for group in groups))
        done = rlrun(hostile, *command)
        assert done.returncode == 0, done.stderr
        assert not (hostile / "IMPORTED").exists()
    finally:
        os.rename(hostile / "snapshots", run / "snapshots")


@pytest.mark.parametrize("words", [
    ("algo=ppo", "env=InvertedPendulum", *SMALL),  # whose renderer asks a Python of its own for a version
    pytest.param(("algo=ppo", "env=CartPole", *SMALL, "trainer.engine=compile"), marks=pytest.mark.slow),
], ids=["mujoco", "compile"])  # fmt: skip
def test_programs_that_libraries_start_import_nothing_from_the_current_folder(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    for name in sys.stdlib_module_names:
        (tmp_path / f"{name}.py").write_text(MODULE.partition("import gymnasium")[0])
    done = rlrun(tmp_path, "train", *words)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "IMPORTED").exists()


def test_a_matplotlibrc_of_the_current_folder_is_not_read(tmp_path: Path, run: Path) -> None:
    (tmp_path / "matplotlibrc").symlink_to("/dev/zero")
    done = rlrun(tmp_path, "report", str(run))
    assert done.returncode == 0, done.stderr
