"""The self-test runs in a separate process, so whatever an environment does there, the run continues and reports it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import breaking
import numpy as np
import pytest
import torch
from vector_envs import env_config

import rlrun
from rlrun.cli import main
from rlrun.envs.making.make import recipe
from rlrun.envs.saving import examination, verdicts
from rlrun.envs.saving.selftest import EPISODE_END, NATIVE
from rlrun.envs.stepping.pool import SyncPool
from rlrun.envs.stepping.workers import TURN_S, TimedPipe, form_of
from rlrun.errors import RunError
from rlrun.run.trained import evaluate

HERE, SOURCE = Path(__file__).parent, Path(rlrun.__file__).parents[1]
LIMIT = 0.4  # timeout of an environment that hangs, in seconds, at least
PATIENT = 60.0  # timeout of one that answers, also on a busy machine
ID = "breaking:breaking/Breaking-v0"
REASONS = {
    "raise": "RuntimeError: broken on purpose in breaking, line 19",
    "hang": "no answer within env.timeout_s={limit:g}",
    "exit": "its process ended, exit code 7",
    "crash": "its process was ended by SIGSEGV",
}
RUN = ["algo=ppo", "network.hidden=[8]", "algo.loop.rollout_steps=32", "algo.minibatch_size=32", "algo.epochs=1"]
RUN += ["env.num_envs=1", "logger=[console]", "trainer.log_every=32", "preset=none"]


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins without verdicts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verdicts, "_known", {})
    monkeypatch.setattr(verdicts, "_recalled", {})


def limit_of(kind: str) -> float:
    """Returns a timeout that a worker exceeds only if its environment hangs: much longer than its start takes now."""
    if kind != "hang":
        return PATIENT
    for _ in range(2):  # the first one waits for the server from which workers are forked
        began = time.monotonic()
        form_of(recipe(env_config("breaking:breaking/Quiet-v0")), PATIENT)
        spent = time.monotonic() - began
    return max(LIMIT, round(10 * spent, 1))


def product(steps: list[int]) -> Iterator[Any]:
    return ((backend, kind, at) for backend in ("sync", "async") for kind in breaking.KINDS for at in steps)


FEW = [
    ("sync", "exit", 1),
    ("sync", "crash", 200),
    ("async", "raise", 60),
    ("async", "crash", 1),
    ("async", "hang", 150),
]


@pytest.mark.parametrize(
    ("backend", "kind", "at"),
    [*FEW, *(pytest.param(*case, marks=pytest.mark.slow) for case in product(list(range(1, 201, 9))))],
)
def test_self_test_survives_an_environment_that_breaks_in_a_step(make: Any, backend: str, kind: str, at: int) -> None:
    limit = limit_of(kind)
    began = time.monotonic()
    env = make(ID, backend=backend, timeout_s=limit, kwargs={"kind": kind, "at": at})
    assert env.method == EPISODE_END
    assert env.exactness.endswith(f"its self-test failed ({REASONS[kind].format(limit=limit)})")
    if backend == "sync" and kind != "raise":
        return  # further steps would end or block this process
    breaking.Breaking.steps = 0
    env.reset()
    with pytest.raises(RunError) as stopped:
        for _ in range(at):
            env.step(torch.zeros(1, dtype=torch.long))
    assert "\n" not in str(stopped.value) and f"step {at}: " in str(stopped.value)
    assert time.monotonic() - began < max(PATIENT / 2, 10 * limit if kind == "hang" else 0)


@pytest.mark.parametrize("at", ["make", "reset"])
@pytest.mark.parametrize("kind", breaking.KINDS)
@pytest.mark.parametrize("backend", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_an_environment_that_never_begins_gets_one_line_and_leaves_nothing(
    backend: str, kind: str, at: str, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(examination, "QUIET_S", PATIENT)
    limit = limit_of(kind)
    words = [f"env={ID}", f"env.kwargs={{kind: {kind}, at: {at}}}", f"env.timeout_s={limit}", f"env.backend={backend}"]
    code, (said, error) = main(["train", *RUN, *words]), capfd.readouterr()
    if (kind, at) == ("raise", "make"):  # a constructor refuses its arguments
        assert code == 2 and f"{ID} cannot be made ({REASONS[kind]}" in error and error.count("\n") == 1
    else:
        assert code == 1
        why = REASONS[kind].format(limit=limit)
        assert error == f"error: env {ID} cannot be {at}: {why}\n".replace("be make:", "be made:")
    assert said == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("kind", ["crash", pytest.param("hang", marks=pytest.mark.slow)])
def test_an_evaluation_that_breaks_ends_an_async_run_with_one_line(
    kind: str, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f"env={ID}", "env.kwargs={kind: raise, at: never}", f"env.eval_kwargs={{kind: {kind}, at: 5}}"]
    words += ["env.backend=async", "trainer.total_steps=32", "trainer.eval_episodes=1", "run_dir=run"]
    assert main(["train", *RUN, *words, f"env.timeout_s={5 * limit_of(kind)}"]) == 1
    said, trace = capfd.readouterr().err.splitlines()
    assert re.fullmatch(rf"error: env {ID} #0, seed \d+, step 5: its worker \(pid \d+\) .*", said)
    assert trace == "  trace: run/error.log"


def test_watched_evaluation_runs_in_this_process(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["env=breaking:breaking/Quiet-v0", "env.backend=async", "trainer.total_steps=32", "trainer.eval_episodes=0"]
    assert main(["train", *RUN, *words, "run_dir=run"]) == 0
    seen: list[Any] = []
    watch: Any = SimpleNamespace(begin=lambda trained: seen.append(trained.env.pool), acted=lambda extras: None)
    watched = evaluate(Path("run"), 1, watch=watch)
    assert isinstance(seen[0], SyncPool) and watched["returns"] == evaluate(Path("run"), 1)["returns"] == [30.0]


def test_self_test_leaves_a_failing_reset_to_restarts(make: Any, tmp_path: Path) -> None:
    env = make(ID, on_failure="restart", kwargs={"kind": "raise", "at": "reset"}, timeout_s=PATIENT)
    assert "RuntimeError: broken on purpose" in env.exactness
    assert not (tmp_path / "cache/rlrun/selftest").exists()  # unknown which changes would invalidate it


def alive(log: Path) -> tuple[int, int]:
    """Returns the maximum number of simultaneous instances, and the number of created instances."""
    words = [line.split()[0] for line in log.read_text().splitlines()]
    counts = [words[:n].count("made") - words[:n].count("closed") for n in range(1, len(words) + 1)]
    return max(counts), words.count("made")


def test_at_most_two_are_alive_in_a_self_test_and_none_when_training_s_are_made(make: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = make("breaking:breaking/Alone-v0", kwargs={"path": str(log), "most": 2})
    words = [line.split()[:2] for line in log.read_text().splitlines()]
    assert env.method == NATIVE and alive(log)[0] == 2
    *before, last = words
    assert last == ["made", str(os.getpid())] and str(os.getpid()) not in {pid for _, pid in before}
    assert [what for what, _ in before].count("made") == [what for what, _ in before].count("closed")


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_without_self_test_and_evaluation_one_is_ever_made(
    backend: str, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["env=breaking:breaking/Alone-v0", f"env.kwargs.path={tmp_path}/log", f"env.backend={backend}"]
    words += ["env.selftest=off", "trainer.eval_episodes=0", "trainer.total_steps=64", "run_dir=run"]
    assert main(["train", *RUN, *words]) == 0
    assert alive(tmp_path / "log") == (1, 1)
    out, err = capfd.readouterr()
    why = "not exact, because episodes of breaking:breaking/Alone-v0 end at a restore: with env.selftest=off"
    assert err == "" and f"a resume of this run will be {why}" in out
    path = f"env.kwargs.path={tmp_path}/log"  # never tested here, so the user must type it again
    assert main(["resume", "run", "total_steps=128", "env.selftest=off", path]) == 0
    assert alive(tmp_path / "log") == (1, 2)  # by the run and by its resume
    assert f"resumed from step 64, {why}" in capfd.readouterr().out
    summary, rows = json.loads(Path("run/summary.json").read_text()), Path("run/metrics.jsonl").read_text()
    assert (summary["status"], summary["final_return"], summary["best_return"]) == ("done", None, None)
    assert '"step":128' in rows.replace(" ", "") and "eval/" not in rows
    assert not Path("run/snapshots/best").exists()
    assert main(["status", "run"]) == 0 and "done" in capfd.readouterr().out
    assert main(["report", "run"]) == 0
    if backend == "async":
        log = (tmp_path / "log").read_text()
        assert f" {os.getpid()} " not in log  # all instances were created in workers
        assert "safe_path=None" not in log  # as the run's own process has it


def test_a_long_self_test_announces_itself_in_one_line(make: Any, capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(examination, "QUIET_S", 0.05)
    make(ID, timeout_s=limit_of("hang"), kwargs={"kind": "hang", "at": 5})
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and ID in lines[0] and "env.selftest=off" in lines[0]


def no_test(*_: Any) -> None:
    raise AssertionError("tested again")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: Any) -> Iterator[Callable[[str], str]]:
    """Writes a module with an environment class of this body. Returns the id."""

    def write(step: str) -> str:
        text = f"""
            import gymnasium, breaking, numpy as np
            generator = np.random.default_rng()
            class Mine(breaking.Quiet):
                def __init__(self, size=0): super().__init__()
                def step(self, action):
                    obs, *rest = super().step(action)
                    return {step}, *rest
            gymnasium.register("mine/Mine-v0", f"{{__name__}}:Mine")
        """
        (tmp_path / "edited_env.py").write_text(textwrap.dedent(text))
        return "edited_env:mine/Mine-v0"

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    sys.modules.pop("edited_env", None)


def test_self_test_verdicts_are_kept_until_something_changes(make: Any, module: Any, monkeypatch: Any) -> None:
    id = module("obs")
    assert make(id).method == NATIVE
    tested, _ = examination._tested, monkeypatch.setattr(examination, "_tested", no_test)
    assert make(id).method == NATIVE
    verdicts._known.clear()
    assert make(id).method == NATIVE  # from the disk
    for other in (
        {"kwargs": {"size": 1}},
        {"wrappers": {"frame_stack": {"stack": 2}}},
        {"max_episode_steps": 5},
        {"selftest": "full"},
        {"action_mask": False},
    ):
        with pytest.raises(AssertionError, match="tested again"):
            make(id, **other)
    monkeypatch.setattr(examination, "_tested", tested)
    module("obs + generator.random()")  # the generator is nobody's state
    verdict = make(id).verdict
    assert verdict.method == EPISODE_END and "equal seeds do not give equal runs" in verdict.unrepeatable


def kept(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "cache/rlrun/selftest").iterdir()
    return path


def replaced(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_text("{"),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_bytes(b"\xff" * 10),
        lambda path: path.write_text(" " * verdicts.MOST_BYTES + path.read_text()),
        lambda path: replaced(path, method="exact"),
        lambda path: replaced(path, masked=1),
        lambda path: replaced(path, reason="\x1b[31m"),
        lambda path: replaced(path, versions={"gymnasium": "0.1"}),
        lambda path: replaced(path, files={"/dev/zero": "x"}),
        lambda path: replaced(path, about="another"),
        lambda path: replaced(path, more=1),
        a_pipe,
    ],
)
def test_self_test_ignores_invalid_verdict_files(make: Any, tmp_path: Path, harm: Any) -> None:
    make("breaking:breaking/Quiet-v0")
    verdicts._known.clear()
    harm(kept(tmp_path))
    assert verdicts.known(env_subject(), 10.0) is None


def env_subject() -> str | None:
    return verdicts.subject(recipe(env_config("breaking:breaking/Quiet-v0")))


def test_self_test_timeout_is_not_valid_for_longer_limits(make: Any, monkeypatch: Any) -> None:
    given, limit = {"kwargs": {"kind": "hang", "at": 5}}, limit_of("hang")
    make(ID, timeout_s=limit, **given)
    monkeypatch.setattr(examination, "_tested", no_test)
    assert make(ID, timeout_s=limit / 2, **given).method == EPISODE_END
    with pytest.raises(AssertionError, match="tested again"):
        make(ID, timeout_s=2 * limit, **given)


def test_resume_uses_the_self_test_verdict_of_its_run(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["env=breaking:breaking/Quiet-v0", "trainer.eval_episodes=1", "trainer.eval_every=0"]
    assert main(["train", *RUN, *words, "trainer.total_steps=64", "run_dir=run"]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    verdicts._known.clear()
    monkeypatch.setattr(examination, "_tested", no_test)
    assert main(["resume", "run", "total_steps=128"]) == 0
    assert "resumed from step 64, exact" in capfd.readouterr().out
    meta = json.loads(Path("run/meta.json").read_text())
    assert meta["selftest"] == meta["resumed"][0]["selftest"] and meta["selftest"]["method"] == NATIVE
    for facts in (meta, *meta["resumed"]):
        facts["selftest"]["versions"]["gymnasium"] = "0.1"
    Path("run/meta.json").write_text(json.dumps(meta))
    verdicts._known.clear()
    assert main(["resume", "run", "total_steps=192"]) == 2
    assert "tested again" in capfd.readouterr().err


def run_python(program: str, *words: str, cwd: Path, **given: Any) -> Any:
    script = cwd.parent / "script.py"
    script.write_text(textwrap.dedent(program))
    env = os.environ | {"PYTHONPATH": f"{SOURCE}:{HERE}", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, str(script), *words], cwd=cwd, env=env, text=True, stdout=-1, stderr=-1, **given
    )


CLI = "import sys; from rlrun.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_a_self_test_at_once(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    words = [f"env={ID}", "env.kwargs={kind: hang, at: 3}", "env.timeout_s=300"]
    run = run_python(CLI, "train", *RUN, *words, cwd=tmp_path / "here", start_new_session=True)
    assert "testing whether" in run.stderr.readline()  # it waits in there
    os.killpg(run.pid, number)
    began = time.monotonic()
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out, err) == (128 + number, "", "")
    assert time.monotonic() - began < 5 and not (tmp_path / "here" / "runs").exists()
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.killpg(run.pid, 0)
            time.sleep(0.05)


def test_waiting_is_cut_into_turns_for_a_signal_may_come_just_before_a_wait() -> None:
    waits: list[float] = []

    class Slow:
        def fileno(self) -> int:
            return ours.fileno()

        def poll(self, timeout: float) -> bool:
            waits.append(timeout)
            time.sleep(timeout)
            return False

    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not TimedPipe(Slow(), 0, None, 10.0).comes(time.monotonic() + 2.5 * TURN_S)
    assert len(waits) >= 3 and max(waits) <= TURN_S


def test_workers_take_no_module_from_the_current_folder_and_do_not_run_the_script_again(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("selectors", "signal", "socket"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'taken')!r}, 'a').write(__name__)\nraise ImportError\n")
    program = """
        import sys
        from rlrun.cli import main
        print("once", flush=True)
        sys.exit(main(sys.argv[1:]))
    """
    words = ["env=CartPole", "env.backend=async", "trainer.total_steps=32", "trainer.eval_episodes=0", "run_dir=run"]
    quiet = [word.replace("logger=[console]", "logger=[]") for word in RUN]
    run = run_python(program, "train", *quiet, *words, cwd=here)
    assert (*run.communicate(timeout=60), run.returncode) == ("once\n", "", 0)
    assert not (tmp_path / "taken").exists()


def test_verdicts_depend_on_files_that_no_distribution_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, link = tmp_path / "own.py", tmp_path / "link.py"
    own.touch()
    link.symlink_to(np.__file__)
    for path in (own, link):
        module = ModuleType(f"numpy.{path.stem}")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    versions, files = verdicts.needs(verdicts.imported(), {})
    assert str(own) in files and str(link) not in files
    assert versions["numpy"] == np.__version__
