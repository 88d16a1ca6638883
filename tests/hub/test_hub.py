"""Sharing runs: what is uploaded, what is refused on download, and that nothing half-written stays."""

import hashlib
import inspect
import json
import shutil
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import rlrun
from rlrun import imports
from rlrun.cli import main
from rlrun.errors import ConfigError
from rlrun.formats.history import FIRST, format_fault
from rlrun.hub import card, listing
from rlrun.hub.folder import one_run
from rlrun.report.runs import read
from rlrun.rundir import LISTING

SMALL = ["algo=dqn", "env=CartPole", "preset=none", "env.num_envs=1", "network.hidden=[8]", "algo.buffer.capacity=64",
         "algo.loop.warmup_steps=4", "algo.loop.batch_size=4", "trainer.total_steps=60", "trainer.eval_every=30",
         "trainer.eval_episodes=3", "trainer.eval_max_steps=10", "env.selftest=off", "logger=[]"]  # fmt: skip
REPO = "someone/cart-pole"
INSTALLED = find_spec("huggingface_hub") is not None


class Hub:
    """The part of `huggingface_hub.HfApi` that is used, with one repository in a folder. Records every call."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.deliver: Callable[[Path, Path], object] = shutil.copyfile

    def create_repo(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append(("create_repo", args, kwargs))
        self.folder.mkdir()
        return f"https://huggingface.co/{args[0]}"

    def upload_folder(self, **kwargs: Any) -> None:
        self.calls.append(("upload_folder", (), kwargs))
        shutil.copytree(kwargs["folder_path"], self.folder, dirs_exist_ok=True)

    def repo_info(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(("repo_info", args, kwargs))
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        names = [(str(path.relative_to(self.folder)), path.stat().st_size) for path in files]
        return SimpleNamespace(sha="c0ffee", siblings=[SimpleNamespace(rfilename=n, size=size) for n, size in names])

    def hf_hub_download(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append(("hf_hub_download", args, kwargs))
        assert kwargs["revision"] == "c0ffee"
        place = Path(kwargs["local_dir"]) / args[1]
        place.parent.mkdir(parents=True, exist_ok=True)
        self.deliver(self.folder / args[1], place)
        return str(place)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path / "repository")
    module: Any = ModuleType("huggingface_hub")
    module.__spec__ = ModuleSpec("huggingface_hub", None)
    module.HfApi = lambda: made
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = rlrun.train(*SMALL, run_dir=str(tmp_path_factory.mktemp("shared") / "run")).path
    (path / "videos").mkdir()
    (path / "videos/step_000000060-1.mp4").write_bytes(b"a film")
    return path


@pytest.fixture(scope="module")
def folder(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is uploaded of the run."""
    into = tmp_path_factory.mktemp("dry") / "folder"
    assert main(["push", str(run), f"repo={REPO}", "dry_run=true", f"into={into}"]) == 0
    return into


@pytest.fixture
def shared(hub: Hub, folder: Path) -> Hub:
    """A hub that holds the run."""
    shutil.copytree(folder, hub.folder)
    return hub


def relist(repository: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads((repository / LISTING).read_text())
    change(values)
    (repository / LISTING).write_text(json.dumps(values))


def refused(words: list[str], place: Path, capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """The one line of a command that leaves its folder empty."""
    place.mkdir(exist_ok=True)
    capsys.readouterr()
    assert main(words) == code
    assert not list(place.iterdir())
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_pulled_policy_behind_a_shared_encoder_acts_and_exports_as_the_one_that_was_pushed(
    hub: Hub, tmp_path: Path
) -> None:
    shared = ["algo.representation=encoding", "algo.representation.trained_by=both"]
    words = ["algo=sac", "env=Pendulum", *SMALL[2:], *shared]
    run = rlrun.train(*words, run_dir=str(tmp_path / "run")).path
    assert main(["push", str(run), f"repo={REPO}", "private=true"]) == 0
    assert main(["pull", REPO, f"into={tmp_path / 'pulled'}"]) == 0
    obs = np.random.randn(100, 3).astype(np.float32)
    actions = rlrun.load(run).act(obs)
    assert np.array_equal(rlrun.load(tmp_path / "pulled").act(obs), actions) and len(np.unique(actions)) > 50
    assert main(["export", str(tmp_path / "pulled"), "format=torch"]) == 0
    program: Any = torch.export.load(tmp_path / "pulled/policy.pt2").module()
    with torch.no_grad():
        exported = program({"obs": torch.as_tensor(obs)})["action"].numpy()
    np.testing.assert_allclose(exported, actions, atol=1e-5)


def test_pulled_run_acts_and_evaluates_as_the_one_that_was_pushed(
    run: Path, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(run), f"repo={REPO}", "private=true"]) == 0
    assert hub.calls[0] == ("create_repo", (REPO,), {"private": True, "exist_ok": True})
    pulled = tmp_path / "new/pulled"
    assert main(["pull", REPO, f"into={pulled}"]) == 0
    obs = np.random.randn(100, 4)
    assert np.array_equal(rlrun.load(pulled).act(obs), rlrun.load(run).act(obs))
    lines = []
    for path in (run, pulled):
        capsys.readouterr()
        assert main(["eval", str(path), "episodes=2"]) == 0
        lines.append(json.loads(capsys.readouterr().out.splitlines()[-1]) | {"run": ""})
    assert lines[0] == lines[1]
    assert {path.name for path in pulled.parent.iterdir()} == {"pulled"}


@pytest.mark.skipif(not INSTALLED, reason="needs pip install rlrun[hub]")
def test_calls_of_the_hub_fit_the_library(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    real, made = huggingface_hub.HfApi, Hub(tmp_path / "repository")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
    assert main(["push", str(run), f"repo={REPO}"]) == 0
    assert main(["pull", REPO, f"into={tmp_path / 'pulled'}"]) == 0
    assert len({name for name, *_ in made.calls}) == 4
    for name, args, kwargs in made.calls:
        inspect.signature(getattr(real, name)).bind(None, *args, **kwargs)


def test_shared_folder_has_weights_and_no_replay_nor_host(run: Path, folder: Path) -> None:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    snapshot = {f"snapshots/best/{name}" for name in
                ("manifest.json", "state.json", "agent.safetensors", "state.safetensors")}  # fmt: skip
    assert names == snapshot | {"config.yaml", "overrides.yaml", "meta.json", "metrics.jsonl", "summary.json",
                                "README.md", "curves.png", "replay.mp4", LISTING}  # fmt: skip
    listed = json.loads((folder / LISTING).read_text())["files"]
    assert listed.keys() == names - {LISTING}
    for name, entry in listed.items():
        assert entry["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert {"host", "pid", "selftest"} & json.loads((run / "meta.json").read_text()).keys()
    assert not {"host", "pid", "selftest"} & json.loads((folder / "meta.json").read_text()).keys()
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "replay.mp4").read_bytes() == b"a film"


def test_model_card_has_the_evaluations_of_the_run(run: Path, folder: Path) -> None:
    rows = [row for row in rlrun.python.Run(run).rows if "eval/return_mean" in row]
    best = max(rows, key=lambda row: row["eval/return_mean"])
    text = (folder / "README.md").read_text()
    figures = f"{best['eval/return_mean']:,.2f} | {best['eval/return_std']:,.2f}"
    assert f"| these weights | {best['step']} | 3 | {figures} |" in text
    front = yaml.safe_load(text.split("---\n")[1])
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"]["name"] == "CartPole-v1"
    assert result["metrics"][0]["value"] == f"{best['eval/return_mean']:.2f} +/- {best['eval/return_std']:.2f}"
    assert "![Return of the evaluations over environment steps](curves.png)" in text


def test_run_without_evaluations_shares_its_latest_snapshot(hub: Hub, tmp_path: Path) -> None:
    path = rlrun.train(*SMALL, "trainer.eval_episodes=0", run_dir=str(tmp_path / "run")).path
    assert main(["push", str(path), f"repo={REPO}"]) == 0
    assert main(["pull", REPO, f"into={tmp_path / 'pulled'}"]) == 0
    text = (tmp_path / "pulled/README.md").read_text()
    assert "The run has no evaluation." in text and "curves.png" not in text and "replay.mp4" not in text
    obs = np.random.randn(100, 4)
    assert np.array_equal(rlrun.load(tmp_path / "pulled").act(obs), rlrun.load(path).act(obs))


def test_model_card_shows_names_of_untrusted_runs_as_text(run: Path) -> None:
    (one,), _ = read([run])
    one.typed["algo"] = "<script>[a](b)\n# c|"
    heading = card.card(one, REPO, 30, set()).split("---\n", 2)[2].splitlines()[1]
    assert heading.startswith(r"# \<script\>\[a\](b)") and r"\# c\|" in heading
    plain = card.card(one, REPO, 30, set())
    one.config["trainer"]["eval_episodes"] = "2 | 1 |\n\n# Notice\n\n<img src=x> \x1b[31m\u202e"
    forged = card.card(one, REPO, 30, set())
    assert len(forged.splitlines()) == len(plain.splitlines()), "one line of the table"
    assert r"| 2 \| 1 \|" in forged and r"\<img src=x\>" in forged and "\x1b" not in forged and "\u202e" not in forged


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "README.md", "snapshots/best/agent.safetensors"])
def test_pull_refuses_a_changed_byte(
    name: str, shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((shared.folder / name).read_bytes())
    content[-2] ^= 1
    (shared.folder / name).write_bytes(content)
    line = refused(["pull", REPO, f"into={tmp_path}/place/deep/run"], tmp_path / "place", capsys)
    assert line == f"error: {REPO}: {name}: is not the file that {LISTING} lists (its SHA-256 differs)"


def test_pull_verifies_the_snapshot_if_the_list_was_forged(
    shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "snapshots/best/agent.safetensors"
    content = bytearray((shared.folder / name).read_bytes())
    content[-2] ^= 1
    (shared.folder / name).write_bytes(content)
    relist(shared.folder, lambda values: values["files"][name].update(sha256=hashlib.sha256(content).hexdigest()))
    line = refused(["pull", REPO, f"into={tmp_path}/place/run"], tmp_path / "place", capsys, code=3)
    assert "best: agent.safetensors: hash differs" in line


@pytest.mark.parametrize("count", [0, 2])
def test_pull_refuses_another_number_of_snapshots(
    count: int, shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best, second = shared.folder / "snapshots/best", shared.folder / "snapshots/step_000000030"
    if count == 2:
        shutil.copytree(best, second)
    else:
        shutil.rmtree(best)
    listing.write(shared.folder)
    relist(shared.folder, lambda values: values["files"].pop(LISTING))
    line = refused(["pull", REPO, f"into={tmp_path}/place/run"], tmp_path / "place", capsys)
    assert line == f"error: {REPO}: has {count} snapshots; a shared run has one"


@pytest.mark.parametrize(
    "name",
    ["../evil", "/tmp/evil", "snapshots/../../evil", "snapshots/best/evil.py", "evil.py", ".git/config", "a\nb", "",
     "snapshots/best/../best/state.json", LISTING],
)  # fmt: skip
def test_pull_refuses_names_that_no_run_has(
    name: str, shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relist(shared.folder, lambda values: values["files"].update({name: {"size": 1, "sha256": "0" * 64}}))
    line = refused(["pull", REPO, f"into={tmp_path}/place/run"], tmp_path / "place", capsys)
    assert line.startswith(f"error: {LISTING}: names ") and line.endswith(", which is not a file of a shared run")
    assert [call for call, *_ in shared.calls] == ["repo_info", "hf_hub_download"], "the list alone"


def test_pull_follows_no_symbolic_link(shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared.deliver = lambda source, place: place.symlink_to(source)
    line = refused(["pull", REPO, f"into={tmp_path}/place/run"], tmp_path / "place", capsys)
    assert "is a symbolic link" in line


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda values: values.update(format=2), "format 2 is newer than this version of rlrun, which reads 1"),
        (lambda values: values.update(files=[]), "not a list of files"),
        (lambda values: values.update(format=True), "not a list of files"),
        (lambda values: values["files"].pop("config.yaml"), "lacks config.yaml"),
        (lambda values: values["files"]["README.md"].update(size=-1), "README.md: has no size and SHA-256"),
        (lambda values: values["files"]["README.md"].update(sha256="../x"), "README.md: has no size and SHA-256"),
    ],
)
def test_pull_refuses_a_malformed_list(
    change: Any, line: str, shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relist(shared.folder, change)
    words = ["pull", REPO, f"into={tmp_path}/place/run"]
    assert refused(words, tmp_path / "place", capsys) == f"error: {LISTING}: {line}"


def test_pull_downloads_nothing_whose_size_differs(
    shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (shared.folder / "metrics.jsonl").open("ab") as file:
        file.write(b"more")
    line = refused(["pull", REPO, f"into={tmp_path}/place/run"], tmp_path / "place", capsys)
    assert line == f"error: {REPO}: metrics.jsonl: is not the file that {LISTING} lists (its size differs)"
    assert len(shared.calls) == 2


def test_repository_without_a_run_is_refused(shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shared.folder / LISTING).unlink()
    line = refused(["pull", REPO, f"into={tmp_path}/place/run"], tmp_path / "place", capsys)
    assert line == f"error: {REPO}: is not a run of rlrun (it has no {LISTING})"


@pytest.mark.parametrize("size", [None, "a"])
def test_hub_without_file_sizes_is_refused(
    size: Any, shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = SimpleNamespace(sha="c0ffee", siblings=[SimpleNamespace(rfilename=LISTING, size=size)])
    monkeypatch.setattr(shared, "repo_info", lambda *_, **__: info)
    line = refused(["pull", REPO, f"into={tmp_path}/place/run"], tmp_path / "place", capsys, code=1)
    assert line == f"error: {REPO}: the hub failed (it states no size of a file)"


@pytest.mark.parametrize("stored", [999, FIRST - 1, None])
def test_format_of_a_pulled_config_is_refused_with_the_repository(
    stored: int | None, shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shared.folder / "config.yaml").write_text(yaml.safe_dump({"format": stored}))
    (shared.folder / LISTING).unlink()
    listing.write(shared.folder)
    line = refused(["pull", REPO, f"into={tmp_path}/place/run"], tmp_path / "place", capsys)
    assert line == f"error: {REPO}/config.yaml: {format_fault(stored)}"


def test_folder_of_runs_is_not_pushed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/config.yaml").write_text("format: 1\n")
    with pytest.raises(ConfigError, match="holds several runs; name one of them"):
        one_run(tmp_path)


@pytest.mark.parametrize(("fault", "code"), [(ValueError("no\nnetwork"), 1), (KeyboardInterrupt(), 130)])
def test_download_that_breaks_off_leaves_nothing(
    fault: BaseException, code: int, shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def deliver(source: Path, place: Path) -> None:
        if source.name == "summary.json":
            raise fault
        shutil.copyfile(source, place)

    shared.deliver = deliver
    place = tmp_path / "place"
    place.mkdir()
    assert main(["pull", REPO, f"into={place}/deep/run"]) == code
    assert not list(place.iterdir())
    if code == 1:
        line = f"error: {REPO}: the hub failed (ValueError: no network)\n"
        assert capsys.readouterr().err == line


def test_pull_refuses_a_target_that_exists(shared: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", REPO, f"into={tmp_path}"]) == 2
    assert capsys.readouterr().err == f"error: into={tmp_path}: exists already\n"
    assert not shared.calls


def test_shared_weights_start_runs_and_resume_none(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pulled = tmp_path / "pulled"
    shutil.copytree(folder, pulled)
    before = sorted(pulled.rglob("*"))
    assert main(["resume", str(pulled), "total_steps=120"]) == 3
    line = "holds weights alone; a new run starts from them with init_from=RUN\n"
    assert capsys.readouterr().err.endswith(line)
    assert [path for path in sorted(pulled.rglob("*")) if path.name != ".lock"] == before
    rlrun.train(*SMALL, "trainer.total_steps=4", f"init_from={pulled}", run_dir=str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["push", "RUN"], "no repository given; usage: rlrun push RUN repo=owner/name"),
        (["push", "RUN", "repo=../x"], "repo=../x: must be owner/name"),
        (["push", "RUN", "repo=a/b", "into=x"], "into=x: needs dry_run=true"),
        (["push", "RUN", "repo=a/b"], "rlrun push: needs no_such_module; pip install 'rlrun[hub]'"),
        (["pull", "a/b", "into=INTO"], "rlrun pull: needs no_such_module; pip install 'rlrun[hub]'"),
        (["pull", "../b"], "../b: must be owner/name"),
    ],
)
def test_bad_words_are_refused(
    words: list[str],
    line: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(imports.EXTRAS, "hub", ("no_such_module",))
    words = [word.replace("RUN", str(run)).replace("INTO", f"{tmp_path}/place/run") for word in words]
    assert line in refused(words, tmp_path / "place", capsys)


def test_dry_run_of_a_damaged_run_leaves_nothing(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    weights = damaged / "snapshots/best/agent.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    words = ["push", str(damaged), f"repo={REPO}", "dry_run=true", f"into={tmp_path}/place/folder"]
    assert "best: agent.safetensors: size differs" in refused(words, tmp_path / "place", capsys, code=3)
