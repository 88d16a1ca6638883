"""Every entry of a run's or a sweep's folder is replaced by every kind of file system object, and commands are run.

The entries are those of a real run and a real sweep, and the commands those of the command line, so what is added later
is tested automatically.
"""

import contextlib
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from forks import forked

from rlrun import cli
from rlrun.cli import main
from rlrun.cli import sweep as sweeps
from rlrun.config.schema import run_config
from rlrun.config.stored import read_config
from rlrun.hub.folder import build
from rlrun.run import postmortem
from rlrun.run.assemble import build_loop
from rlrun.rundir import RunDir

SECONDS = 10
# Commands that read no run, apart from `train init_from=RUN`; `board` starts TensorBoard.
READ_NO_RUN = {"train", "pull", "board", "list", "show", "new", "bench", "completion", "doctor"}
SMALL = ["preset=none", "env.num_envs=1", "network.hidden=[8]", "algo.buffer.capacity=64", "algo.loop.warmup_steps=4",
         "algo.loop.batch_size=4", "trainer.total_steps=48", "trainer.eval_episodes=1",
         "trainer.snapshot_every=24", "trainer.eval_every=24", "env.max_episode_steps=10"]  # fmt: skip

SWEEP = ["name=s", "algo=q_learning", "env=FrozenLake", "trainer.total_steps=200", "trainer.eval_every=100",
         "trainer.eval_episodes=1", "trainer.snapshot_every=100", "algo.learning_rate=log(1e-2,1)", "trials=1",
         "seeds=1", "winners=0", "rungs=[0.5,1]"]  # fmt: skip
HOME = Path("runs/sweeps/s")

NOT_OURS = (".lock",)  # of the run that is copied
NEW = ("new", "trials/new", "trials/STOP")  # entries that a sweep may get


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a run with all files that a run can have."""
    run = tmp_path_factory.mktemp("original") / "run"
    assert main(["train", "algo=dqn", "env=CartPole", *SMALL, f"run_dir={run}"]) == 0
    assert main(["eval", str(run), "episodes=1", "video=true"]) == 0
    folder = RunDir.open(run)
    folder.error_log("something went wrong")
    loop = build_loop(run_config(read_config(run / "config.yaml")))
    loop.begin()
    postmortem.write(folder, loop, "a test", {})
    loop.env.close()
    folder.release()
    return run


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a sweep that has ended, with all files that a sweep can have."""
    place = tmp_path_factory.mktemp("ended")
    with contextlib.chdir(place), forked():
        assert main(["sweep", *SWEEP]) == 0
        assert main(["sweep", "replay", str(HOME)]) == 0
        assert main(["report", str(HOME)]) == 0
    return place / HOME


@pytest.fixture(scope="module")
def interrupted(ended: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the same sweep before its first result: a driver would start runs, and then remove their snapshots."""
    sweep = Path(shutil.copytree(ended, tmp_path_factory.mktemp("interrupted") / "s"))
    journal = sweep / "journal.jsonl"
    journal.write_text(journal.read_text().partition("\n")[0] + "\n")
    settings = sweep / "sweep.yaml"
    settings.write_text(settings.read_text().replace("disk: null", "disk: 1"))
    return sweep


@pytest.fixture(scope="module")
def shared(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a run that `rlrun pull` has downloaded."""
    folder = tmp_path_factory.mktemp("shared")
    build(original, "someone/cart-pole", folder)
    return folder


@pytest.fixture(scope="module")
def presets(ended: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the preset that a sweep has written."""
    folder = tmp_path_factory.mktemp("presets")
    shutil.copy(ended / "best.yaml", folder)
    return folder


def test_every_command_that_reads_runs_or_sweeps_is_tested(original: Path) -> None:
    ours = {words[0] for words in commands(original, original).values()} - {"train"}
    assert ours == {*cli.COMMANDS} - READ_NO_RUN - {"sweep"}
    assert {*sweep_commands(original, original)} == {*sweeps.ACTIONS, "again", "report"}


def test_the_sweep_has_every_kind_of_entry(ended: Path) -> None:
    names = {Path(name).parts[0] for name in entries(ended)}
    assert names == {"sweep.yaml", "journal.jsonl", "best.yaml", "report.html", "trials", "replay"}
    assert any(name.endswith("/snapshots/LATEST") for name in entries(ended)), "runs with snapshots"


def entries(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.name not in NOT_OURS)


def test_the_run_has_every_kind_of_entry(original: Path) -> None:
    names = {Path(name).parts[0] for name in entries(original)}
    assert names == {"config.yaml", "overrides.yaml", "meta.json", "metrics.jsonl", "summary.json", "error.log", "tb",
                     "snapshots", "videos", "postmortem"}  # fmt: skip
    assert any(name.endswith(".bin") for name in entries(original)), "rows of a replay buffer"


# Each function receives the path of an entry that was just removed, and a file and a folder outside of the run.


def a_link(entry: Path, outside: Path) -> None:
    entry.symlink_to(outside / "victim")


def a_link_to_a_folder(entry: Path, outside: Path) -> None:
    entry.symlink_to(outside)


def a_dangling_link(entry: Path, outside: Path) -> None:
    entry.symlink_to(outside / "made_by_whoever_follows")


def a_link_to_an_endless_file(entry: Path, outside: Path) -> None:
    entry.symlink_to("/dev/zero")


def a_pipe(entry: Path, outside: Path) -> None:
    os.mkfifo(entry)


def a_folder(entry: Path, outside: Path) -> None:
    entry.mkdir()
    (entry / "inside").write_text("x")


def a_huge_file(entry: Path, outside: Path) -> None:
    with entry.open("wb") as file:
        file.truncate(1 << 40)


def nothing_at_all(entry: Path, outside: Path) -> None:
    entry.write_bytes(b"")


def noise(entry: Path, outside: Path) -> None:
    entry.write_bytes(bytes(range(256)) * 50)


def nesting(entry: Path, outside: Path) -> None:
    entry.write_bytes(b"[" * 100_000)


def other_types(entry: Path, outside: Path) -> None:
    entry.write_bytes(b'{"step": {"a": []}, "versions": 3, "resumed": 5, "status": [1], "name": null, "1": 2}\n')


REFUSED = (a_link, a_link_to_a_folder, a_dangling_link, a_link_to_an_endless_file, a_pipe)
CONTENT = (a_folder, a_huge_file, nothing_at_all, noise, nesting, other_types)
Kind = Callable[[Path, Path], None]


def commands(run: Path, clean: Path) -> dict[str, list[str]]:
    weights = ["algo=dqn", "env=CartPole", *SMALL, f"init_from={run}", f"run_dir={run.parent / 'new'}"]
    return {
        "resume": ["resume", str(run), "total_steps=72"],
        "eval": ["eval", str(run), "episodes=1"],
        "branch": ["resume", str(run), "total_steps=72", f"into={run.parent / 'new'}"],
        "reset": ["reset", str(run), f"into={run.parent / 'new'}"],
        "init_from": ["train", *weights],
        "status": ["status", str(run)],
        "report": ["report", str(run), f"out={run.parent / 'out'}"],
        "tail": ["tail", str(run)],
        "clean": ["clean", str(run), "--yes"],
        "export": ["export", str(run), "format=torch", f"output={run.parent / 'out.pt2'}"],
        "watch": ["watch", str(run), "episodes=1"],
        "diff": ["diff", str(run), str(clean)],
        "push": ["push", str(run), "repo=a/b", "dry_run=true", f"into={run.parent / 'out'}"],
    }


def sweep_commands(sweep: Path, _: Path) -> dict[str, list[str]]:
    """Returns every command about a sweep: its actions, its own command again, and its page."""
    actions = {name: ["sweep", name, str(sweep)] for name in sweeps.ACTIONS}
    return actions | {"again": ["sweep", *SWEEP], "report": ["report", str(sweep)]}


def preset_commands(folder: Path, _: Path) -> dict[str, list[str]]:
    """Returns every command that composes a config."""
    words = ["algo=q_learning", "env=FrozenLake", f"preset={folder / 'best.yaml'}"]
    return {
        "train": ["train", *words],
        "multirun": ["train", "-m", *words, "seed=0,1"],
        "show": ["show", *words],
        "sweep": ["sweep", *words, "algo.gamma=uniform(0.9,0.99)", "trials=1"],
    }


class Subject(NamedTuple):
    """What is attacked."""

    original: Path
    place: Path  # where it is copied to, below the current folder
    commands: Callable[[Path, Path], dict[str, list[str]]]


def a_run(original: Path) -> Subject:
    return Subject(original, Path("run"), commands)


def a_sweep(original: Path) -> Subject:
    return Subject(original, HOME, sweep_commands)


def a_preset(folder: Path) -> Subject:
    return Subject(folder, Path("presets"), preset_commands)


@pytest.fixture(autouse=True)
def window_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"no answer in {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def attack(subject: Subject, place: Path, name: str, kind: Kind, command: str) -> int:
    """Replaces one entry of a copy and runs the command. Returns its exit code. Nothing outside may change, and a
    folder that must be refused does not change either."""
    run, outside = place / subject.place, place / "outside"
    shutil.rmtree(place, ignore_errors=True)
    outside.mkdir(parents=True)
    (outside / "victim").write_text('{"step": 1, "wall_s": 1.0}\n')
    shutil.copytree(subject.original, run)
    entry = run / name
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
    kind(entry, outside)
    kept = [outside]
    if kind in REFUSED:
        kept.append(run)
    before = list(map(contents, kept))
    with in_time(), contextlib.chdir(place):
        code = main(subject.commands(run, subject.original)[command])
    assert list(map(contents, kept)) == before, (name, kind.__name__, command)
    return code


def judged(kind: Kind, command: str, code: int, output: str, errors: str) -> str:
    """Returns what is wrong with the output of a command, or ""."""
    if "Traceback" in output + errors:
        return "a traceback"
    if code not in (0, 2, 3):
        return f"exit code {code}"
    if code and len(errors.splitlines()) != 1:
        return f"{len(errors.splitlines())} lines for an error"
    if kind in REFUSED and code == 0 and not (command in ("status", "clean") and "skipped" in output + errors):
        return "taken"
    return ""


Cases = Iterable[tuple[str, Kind, str]]  # entry, kind, command


def faults(cases: Cases, subject: Subject, place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    wrong = []
    for name, kind, command in cases:
        code = attack(subject, place, name, kind, command)
        captured = capsys.readouterr()
        if fault := judged(kind, command, code, captured.out, captured.err):
            wrong.append(f"{command}, {name} is {kind.__name__}: {fault}: {captured.err[-300:]}")
    return "\n".join(wrong)


def in_turn(names: Iterable[str], kinds: Iterable[Kind], words: Iterable[str]) -> list[tuple[str, Kind, str]]:
    """Returns a case for each entry, with the next kind and the next command."""
    return list(zip(names, itertools.cycle(kinds), itertools.cycle(words), strict=False))


def test_every_hostile_entry_is_answered_in_one_line(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests each entry with two kinds and two commands, in turn; the slow test below tests all combinations."""
    turn = itertools.cycle(commands(original, original))
    kinds = zip(itertools.cycle(REFUSED), itertools.cycle(CONTENT), strict=False)
    pairs = zip(entries(original), kinds, strict=False)
    cases = [(name, kind, next(turn)) for name, both in pairs for kind in both]
    assert {command for *_, command in cases} == {*commands(original, original)}
    assert {kind for _, kind, _ in cases} == {*REFUSED, *CONTENT}
    assert faults(cases, a_run(original), tmp_path / "a", capsys) == ""


def test_links_pipes_and_devices_in_a_sweep_are_refused_before_anything_is_written(
    interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests each entry once; the slow test below tests all combinations."""
    cases = in_turn([*NEW, *entries(interrupted)], REFUSED, sweep_commands(interrupted, interrupted))
    assert faults(cases, a_sweep(interrupted), tmp_path / "a", capsys) == ""


@pytest.mark.usefixtures("forks")
def test_hostile_content_of_a_sweep_is_answered_in_one_line(
    ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the entries that are not deep in a run; the slow test below tests all."""
    names = [name for name in entries(ended) if len(Path(name).parts) <= 2]
    cases = in_turn(names, CONTENT, sweep_commands(ended, ended))
    assert faults(cases, a_sweep(ended), tmp_path / "a", capsys) == ""


def test_hostile_entries_of_a_pulled_run_are_answered_in_one_line(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests each entry once; the slow test below tests all combinations."""
    cases = in_turn(entries(shared), (*REFUSED, *CONTENT), commands(shared, shared))
    assert faults(cases, a_run(shared), tmp_path / "a", capsys) == ""


def test_hostile_preset_is_refused_by_every_command(
    presets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests each kind once; the slow test below tests all combinations."""
    kinds = (*REFUSED, *CONTENT)
    cases = in_turn(["best.yaml"] * len(kinds), kinds, preset_commands(presets, presets))
    assert faults(cases, a_preset(presets), tmp_path / "a", capsys) == ""


@pytest.mark.slow
def test_every_hostile_entry_under_every_command(
    original: Path, shared: Path, presets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (original, shared):
        cases = itertools.product(entries(folder), (*REFUSED, *CONTENT), commands(folder, folder))
        assert faults(cases, a_run(folder), tmp_path / "a", capsys) == ""
    cases = itertools.product(["best.yaml"], (*REFUSED, *CONTENT), preset_commands(presets, presets))
    assert faults(cases, a_preset(presets), tmp_path / "a", capsys) == ""


@pytest.mark.slow
def test_every_hostile_entry_of_a_sweep_under_every_command(
    ended: Path, interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests all combinations; with hostile content, which is read more slowly, each under one command."""
    words = sweep_commands(ended, ended)
    refused = itertools.product([*NEW, *entries(interrupted)], REFUSED, words)
    assert faults(refused, a_sweep(interrupted), tmp_path / "a", capsys) == ""
    pairs = zip(itertools.product(entries(ended), CONTENT), itertools.cycle(words), strict=False)
    content = [(name, kind, command) for (name, kind), command in pairs]
    assert faults(content, a_sweep(ended), tmp_path / "a", capsys) == ""
