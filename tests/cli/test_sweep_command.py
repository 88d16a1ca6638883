"""`rlrun sweep` with real runs."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import rlrun
from rlrun.cli import main, sweep
from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError
from rlrun.snapshot.store import Store
from rlrun.sweep import journal
from rlrun.sweep.folder import Description, begin
from rlrun.sweep.runs import RunTemplate
from rlrun.sweep.settings import settings
from rlrun.sweep.space import from_yaml
from rlrun.sweep.trials import FRESH
from rlrun.sweep.untrusted import Confirmed

RUN = ["algo=q_learning", "env=FrozenLake", "trainer.total_steps=400", "trainer.eval_every=200",
       "trainer.eval_episodes=2"]  # fmt: skip
WORDS = ["sweep", *RUN, "algo.learning_rate=log(1e-2,1)", "trials=2", "seeds=1",
         "order=generation", "order.size=2", "rungs=[0.5,1]", "prune.eta=2", "winners=1", "fresh_seeds=1",
         "workers=2"]  # fmt: skip
HOME = Path("runs/sweeps/q_learning-FrozenLake")
pytestmark = pytest.mark.usefixtures("forks")


def command(*words: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(Path(rlrun.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "rlrun", *words], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip


def test_sweep_is_continued_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    killed = command(*WORDS)
    while len([*journal.read(HOME / "journal.jsonl")]) < 2:  # until one of the first runs has ended
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.01)
    assert main(WORDS) == 2
    assert f"error: {HOME} is in use by pid {killed.pid}" in capsys.readouterr().err
    killed.send_signal(signal.SIGKILL)
    begun, _ = killed.communicate(timeout=60)
    assert main(["sweep", "resume", str(HOME), "workers=1"]) == 0
    output = capsys.readouterr().out
    assert "continues after 2 of 2 trials" in output, output
    assert "best of 2 trials" in output and "measured again with 1 fresh seeds" in begun + output

    events = [*journal.read(HOME / "journal.jsonl")]
    assert [event["event"] for event in events if event["event"] != "scored"] == [
        "asked", "promoted", "measured_again", "won",
    ]  # fmt: skip
    (promoted,) = next(event["trials"] for event in events if event["event"] == "promoted")
    (again,) = next(event["trials"] for event in events if event["event"] == "measured_again")
    scored = [(event["trial"], event["rung"], event["seed"]) for event in events if event["event"] == "scored"]
    assert sorted(scored) == sorted([(0, 0, 0), (1, 0, 0), (promoted, 1, 0), (again, 1, FRESH)])

    values = events[0]["values"][promoted]
    settings = [f"{key}={value}" for key, value in values.items()]
    straight = rlrun.train(*RUN, *settings, "logger=[]", run_dir="straight")
    digests = [Store(path).load().digest for path in (straight.path, HOME / "trials" / f"{promoted:04}-FrozenLake-s0")]
    assert digests[0] == digests[1], "the paused run equals one that never paused"
    best = yaml.safe_load((HOME / "best.yaml").read_text())
    assert best["algo"]["learning_rate"] == events[0]["values"][again]["algo.learning_rate"]
    (preset,) = jobs(["algo=q_learning", "env=FrozenLake", f"preset={HOME / 'best.yaml'}"])
    (typed,) = jobs([*RUN, f"algo.learning_rate={best['algo']['learning_rate']}"])
    assert preset.values["algo"] == typed.values["algo"]
    assert preset.values["trainer"]["total_steps"] == 400

    assert main(["sweep", "best", str(HOME)]) == 0
    assert capsys.readouterr().out == f"algo.learning_rate={best['algo']['learning_rate']}\n"
    assert main(["sweep", "status", str(HOME)]) == 0
    assert "2 trials, 0 runs open, done" in capsys.readouterr().out
    assert main(["sweep", "stop", str(HOME)]) == 0
    assert "is not running" in capsys.readouterr().out
    assert main(["resume", str(HOME)]) == 2
    assert f"{HOME}: a sweep, not a run; see rlrun sweep status {HOME}" in capsys.readouterr().err
    assert main(["sweep", "resume", str(HOME), "prune.eta=3"]) == 2
    assert "eta: cannot change in a sweep that has begun (only workers, hours, disk can)" in capsys.readouterr().err
    assert main([*WORDS, "prune.eta=3"]) == 2
    assert (
        "holds another sweep: prune {name: asha, eta: 2} -> {name: asha, eta: 3}; choose another folder with name=..."
        in capsys.readouterr().err
    )


def test_stored_sweep_with_values_that_its_runs_refuse_starts_no_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = from_yaml({"algo.gamma": {"uniform": [0.9, 7.5]}}, "space")
    template = RunTemplate([*RUN, "algo.learning_rate=-1"], [400])
    begin(tmp_path, Description.of(settings({"prune": "none"}), space, {"FrozenLake": template}))
    assert main(["sweep", "resume", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: algo.learning_rate=-1.0: must be greater than 0",
        "error: algo.gamma=7.5: must be less than or equal to 1",
    ]
    assert not (tmp_path / "journal.jsonl").exists()


def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(rlrun.__file__).parents[2] / "docs" / "sweeps.md"
    if not page.exists():
        pytest.skip("the documents are not part of an installed package")
    text = page.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("    rlrun ")]
    tutorial = [shlex.split(line, comments=True)[1:] for line in lines if "first" in line]
    assert [words[0] for words in tutorial] == ["sweep", "sweep", "report", "sweep", "train", "sweep"]
    monkeypatch.chdir(tmp_path)
    for words in tutorial:
        assert main(words) == 0, words
    said = capsys.readouterr().out
    assert "best of 4 trials" in said and "equal to runs/sweeps/first/trials/" in said
    assert (tmp_path / "runs/sweeps/first/report.html").exists()


def refused(confirmed: Confirmed, words: list[str]) -> None:
    raise ConfigError("plugins: imports code")


def test_replay_of_a_winner_that_paused_ends_at_its_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *RUN, "algo.gamma=uniform(0.9,0.99)", "trials=1", "seeds=1", "winners=0"]) == 0
    assert [*journal.read(HOME / "journal.jsonl")][-1]["event"] == "won"
    with monkeypatch.context() as patches:
        patches.setattr(Confirmed, "check_run", refused)
        assert main(["sweep", "replay", str(HOME)]) == 2
    assert not (HOME / "replay").exists()
    assert main(["sweep", "replay", str(HOME)]) == 0
    assert f"equal to {HOME / 'trials' / '0000-FrozenLake-s0'}" in capsys.readouterr().out
    assert '"status": "paused"' in (HOME / "replay/summary.json").read_text()
    assert main(["sweep", "replay", str(HOME)]) == 2
    assert "replay: is there already; remove it to train the winner again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["algo=q_learning", "env=FrozenLake"], "algo=q_learning has no space; type ranges, such as"),
        (["algo=sac", "env=Pendulum", "algo.gama=log(1,2)"], "algo.gama: unknown key; did you mean algo.gamma?"),
        (["algo=sac", "env=Pendulum", "trials=0"], "trials=0: must be greater than or equal to 1"),
        (
            ["algo=sac", "env=Pendulum", "rungs=[0.5]"],
            "rungs=[0.5]: must be a list of rising fractions that ends with 1",
        ),
        (["algo=sac", "env=Pendulum", "trails=3"], "trails: unknown key; did you mean trials?"),
        (["algo=sac", "env=Pendulum", "name=.."], "name=..: must be the name of a folder"),
        (["algo=sac", "env=Pendulum", "name=a/b"], "name=a/b: must be the name of a folder"),
        (["algo=sac", "env=Pendulum", f"name={'a' * 300}"], "must be the name of a folder, of at most 200 bytes"),
        (["algo=sac", "env=Pendulum,"], "env=Pendulum,: has an empty name"),
        (
            ["algo=ppo", "env=CartPole", "kind=pbt", "kind.perturb=[1e308]"],
            "kind.perturb=[1e+308]: must be a list of positive numbers up to 1e+100",
        ),
        (["algo=sac", "env=Pendulum", "disk=0"], "disk=0: must be a size, like 500M or 20G"),
        (["algo=sac", "env=Pendulum", "trainer.eval_episodes=int(1,9)"], "trainer.eval_episodes: cannot be searched"),
        (["algo=sac", "env=Pendulum", "algo.name=choice(sac,td3)"], "algo.name: cannot be searched"),
        (["algo=sac", "env=Pendulum", "kind=pbt", "kind.perturb=[]"], "kind.perturb=[]: must be a list of positive"),
        (
            ["algo=sac", "env=Pendulum", "algo.gamma=0.9", "algo.gamma=logit(0.9,0.99)"],
            "algo.gamma: has a value and a range; type one of them",
        ),
        (["algo=sac", "env=choice(Pendulum,Ant)"], "env: is not searched; each trial trains in all environments of"),
        (["algo=sac", "env=Pendulum", "run_dir=mine"], "run_dir=mine: a sweep chooses run_dir for each run"),
        (["algo=sac", "env=Pendulum", "disk=20X"], "disk='20X': must be a size, like 500M or 20G"),
        (["algo=sac", "env=Pendulum", "metric=return"], "metric='return': must be a metric of log rows: train/..."),
        (["algo=sac", "env=Pendulum", "search=grid", "trials=1e9"], "trials=1000000000: must be less than or equal to"),
        (["algo=sac", "env=Pendulum", "normalize.Pendulum=[0]"], "normalize.Pendulum=[0]: must be two rising numbers"),
        (["algo=sac", "env=Pendulum", "--config-dir"], "--config-dir: needs a folder"),
        (["algo=sac", "env=Pendulum", "--config-dir", "nope"], "--config-dir: no folder 'nope'"),
        (["stat", "runs"], "sweep stat: unknown action; did you mean status?"),
        (["algo=sac", "env=Pendulum", "trainer.eval_every=0"], "trainer.eval_every=0: rungs need evaluations"),
        (["algo=sac", "env=Pendulum", "search=grid", "algo.nstep=int(1,3)"], "algo.nstep: unknown key"),
    ],
)
def test_faulty_sweep_has_one_line(
    words: list[str], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words]) == 2
    said = capsys.readouterr().err
    assert fault in said and "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_help_lists_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--help"]) == 0
    assert "trials" in capsys.readouterr().out


def test_headline_of_a_winner_without_fresh_seeds_has_its_score_and_rung() -> None:
    winner: Any = SimpleNamespace(
        number=3, results=[SimpleNamespace(rung=0)], fresh_score=lambda: None, score=lambda rung: 0.25
    )
    trials: Any = type("Trials", (), {"last_rung": 1, "__len__": lambda self: 5})()
    assert sweep._headline(winner, trials) == "best of 5 trials: trial 3, score 0.250 at rung 1 of 2"
