"""Training commands: run folders, failures, signals before the start, sweeps, plug-ins."""

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml
from faults.rows.processes import Board, Child

import rlrun
from rlrun.cli import main
from rlrun.snapshot import atomic

HOME = Path(rlrun.__file__).parents[1]
PLUGIN = Path(__file__).parents[1] / "example_plugin"
SHORT = ["env=CartPole", "trainer.total_steps=300", "trainer.eval_episodes=1", "logger=[console]"]

ENDS = {0: "done", 1: "failed", 2: "done"}  # seeds of a sweep whose second job fails

FRAGILE = '''
from rlrun.settings import register
from rlrun_example import HillClimber

@register("algo", "fragile")
class Fragile(HillClimber):
    """Breaks where it is built for seed 1."""

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        if parts.seed == 1:
            raise ZeroDivisionError("by design")
'''


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty working directory in which the example plug-in, and a fragile one, can be imported."""
    conf = tmp_path / "plugins" / "fragile" / "conf" / "algo"
    conf.mkdir(parents=True)
    (conf / "fragile.yaml").write_text("# @package _global_\ndefaults: [hill_climber]\nalgo: {name: fragile}\n")
    (conf.parents[1] / "__init__.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGIN), str(tmp_path / "plugins")]), prepend=os.pathsep)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_a_plugin_adds_an_algorithm_that_trains_resumes_and_is_measured(workplace, capsys):
    plugins = "plugins=[rlrun_example]"
    assert main(["list", "algo", plugins]) == 0
    assert "Hill climbing: keep the best" in capsys.readouterr().out
    words = ["algo=hill_climber", plugins, *SHORT]
    assert main(["train", *words]) == 0
    (run,) = workplace.glob("runs/hill_climber-CartPole/*")
    assert yaml.safe_load((run / "overrides.yaml").read_text()) == words
    assert yaml.safe_load((run / "config.yaml").read_text())["algo"]["population"] == 16
    assert json.loads((run / "summary.json").read_text())["status"] == "done"
    assert main(["resume", str(run), "total_steps=6e2", plugins]) == 0
    assert json.loads((run / "summary.json").read_text())["step"] >= 600
    capsys.readouterr()
    assert main(["eval", str(run), "episodes=2", "seed=3", plugins]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 2


def test_a_plugin_adds_a_network_for_any_algorithm(workplace, capsys):
    plugins = "plugins=[rlrun_example]"
    assert main(["list", "network", plugins]) == 0
    listed = capsys.readouterr().out
    assert "Random waves" in listed and all(
        name in listed for name in ("linear", "mlp", "cnn", "impala", "lstm", "gru")
    )
    assert main(["train", "algo=ppo", "network=fourier", "network.waves=16", plugins, *SHORT]) == 0
    (run,) = workplace.glob("runs/ppo-CartPole/*")
    assert yaml.safe_load((run / "config.yaml").read_text())["network"] == {
        "name": "fourier",
        "waves": 16,
        "scale": 0.5,
    }


def test_train_refuses_an_action_space_and_leaves_no_directory(workplace, capsys):
    assert main(["train", "algo=sac", *SHORT]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: algo=sac needs Box actions")
    assert list(workplace.glob("runs/*/*")) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["algo=dqn", "algo.loop=onpolicy", "algo.loop.rollout_steps=8"], "algo.loop=onpolicy is not supported by al"),
        (["algo=ppo", "algo.loop=offline"], "algo.loop=offline is not supported by algo=ppo, which has no replay"),
        (["algo=ppo", "init_modules=[policy]"], "init_modules=[policy]: needs init_from=RUN"),
        (["algo=ppo_demos", "algo.target_kl=0.1"], "algo.target_kl=0.1: is not supported by ppo_demos"),
        (["algo=ppo", "env.eval_kwargs={a: 1}"], "env.eval_kwargs: env.kwargs={'a': 1}: CartPole-v1 cannot be made"),
        (
            ["algo=ppo", "trainer.precision=tf32", "device=cpu"],
            "trainer.precision=tf32: needs a CUDA device, but dev",
        ),
        (["-m", "algo=ppo", "trainer.precision=tf32", "device=cpu"], "trainer.precision=tf32: needs a CUDA device"),
    ],
)
def test_train_refuses_settings_that_conflict_and_leaves_no_directory(workplace, capsys, words, line):
    assert main(["train", *SHORT, *words]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {line}")
    assert list(workplace.iterdir()) == []


def test_resume_refuses_total_steps_before_the_snapshot(workplace, capsys):
    assert main(["train", "algo=ppo", *SHORT, "run_dir=r"]) == 0
    stored = (workplace / "r" / "config.yaml").read_text()
    summary = json.loads((workplace / "r" / "summary.json").read_text())
    (workplace / "r" / "summary.json").write_text(json.dumps(summary | {"status": "resumable"}))
    for words in (["total_steps=200"], ["total_steps=300", "into=s"]):
        capsys.readouterr()
        assert main(["resume", "r", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "set a larger number" in line and line.startswith(f"error: {words[0]}: step_")
    assert (workplace / "r" / "config.yaml").read_text() == stored and not (workplace / "s").exists()


@pytest.mark.parametrize("words", [["algo=bc"], ["algo=bc", "algo.loop.data=nowhere-v0"]])
def test_a_data_set_that_is_not_there_is_one_line_and_leaves_no_directory(workplace, capsys, words):
    assert main(["train", *words, *SHORT]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said and said.startswith("error: ") and "data set" in said
    assert not [*workplace.glob("runs/*/*")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_ends_with_the_command_that_resumes_it(workplace, capsys, monkeypatch, number, code):
    from rlrun.loops.onpolicy import OnPolicy

    def interrupted(loop):
        signal.raise_signal(number)
        return collect(loop)

    collect = OnPolicy.collect_rollout
    short = ["algo.loop.rollout_steps=8", "total_steps=1000", "logger=[]"]
    monkeypatch.setattr(OnPolicy, "collect_rollout", interrupted)
    assert main(["train", "algo=ppo", "env=CartPole", *short, "run_dir=my run"]) == code
    assert capsys.readouterr().out.splitlines()[-1] == "rlrun resume 'my run'"
    assert main(["status", "my run"]) == 0
    assert "0 (resumes at 64) " in capsys.readouterr().out
    assert main(["resume", "my run"]) == code
    assert capsys.readouterr().out.splitlines()[-1] == "rlrun resume 'my run'"


def test_an_unexpected_failure_is_one_line_and_a_trace_in_the_run(workplace, capsys):
    assert main(["train", "algo=fragile", "plugins=[rlrun_example,fragile]", "seed=1", "run_dir=here", *SHORT]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: ZeroDivisionError: by design in fragile, line 12 (trace in here/error.log)"
    assert "Traceback" in (workplace / "here" / "error.log").read_text()


def test_a_run_whose_code_calls_sys_exit_fails(workplace, capsys, monkeypatch):
    monkeypatch.setattr("rlrun.agents.tabular.q_learning.QLearning.update", lambda *_: sys.exit(0))
    assert main(["train", "algo=q_learning", "env=FrozenLake", "env.num_envs=1", "run_dir=run"]) == 1
    assert capsys.readouterr().err.startswith("error: SystemExit: 0")


def test_train_on_a_full_disk_is_one_line_and_leaves_no_directory(workplace, capsys, monkeypatch):
    def refuse(path, chunks):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(atomic, "write_new", refuse)
    assert main(["train", "algo=ppo", "env=CartPole", "run_dir=run"]) == 1
    assert capsys.readouterr().err == "error: run: Input/output error\n"
    assert not Path("run").exists()


def test_grid_checks_all_jobs_before_the_first_one(workplace, capsys):
    assert main(["train", "-m", "algo=dqn,sac", "seed=0,1", *SHORT]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: algo=sac needs Box actions")
    assert line.endswith("(algo=sac seed=0)")
    assert list(workplace.glob("runs/*/*")) == []


@pytest.mark.usefixtures("forks")
def test_grid_continues_after_a_failed_job(workplace, capsys, monkeypatch):
    monkeypatch.setattr("rlrun.run.lifecycle.check", lambda config: None)  # the fault occurs only in a job
    words = ["algo=fragile", "plugins=[rlrun_example,fragile]", "seed=0,1,2", *SHORT]
    assert main(["train", "-m", *words]) == 1
    out, err = capsys.readouterr()
    ends = [f"job {seed + 1} of 3: {status}" for seed, status in ENDS.items()]
    assert [line.partition(" at")[0] for line in out.splitlines() if " of 3: " in line][1::2] == ends
    *table, last = out.splitlines()[-5:]
    assert [line.split()[:2] for line in table] == [["job", "status"], *[[f"seed={i}", s] for i, s in ENDS.items()]]
    assert last.startswith("3 jobs, 1 failed")
    (line,) = err.splitlines()
    why = "ZeroDivisionError: by design in fragile, line 12 (trace in runs/fragile-CartPole/"
    assert line.startswith(f"error: job 2 of 3: {why}")
    runs = {run.name.split("-")[2]: run for run in workplace.glob("runs/fragile-CartPole/*/")}
    assert {seed for seed, run in runs.items() if (run / "summary.json").exists()} == {"s0", "s2"}
    assert "plugins=[rlrun_example,fragile]" in yaml.safe_load((runs["s2"] / "overrides.yaml").read_text())


def test_train_interrupted_before_training_leaves_nothing_behind(workplace, monkeypatch):
    """A plug-in with a slow import stands for any slow work before the first step."""
    (workplace / "slow").mkdir()
    (workplace / "slow" / "__init__.py").write_text(
        "import os, time\nopen(f'{os.getpid()}.up', 'w').close()\ntime.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(workplace)

    def prepare(board: Board) -> None:
        # a shell starts background processes with SIGINT ignored; at a terminal it is not ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the log holds only errors

    command = ["train", "algo=sac", "env=HalfCheetah", "plugins=[slow]"]
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 143, signal.SIGUSR2: 143}
    processes = {
        number: Child([*command, f"run_dir={number.name}"], workplace / f"{number.name}.log", prepare)
        for number in codes
    }
    for number, process in processes.items():
        deadline = time.monotonic() + 60
        while not (workplace / f"{process.pid}.up").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (workplace / number.name / "config.yaml").exists()
        process.send(number)
        assert (process.finish(), process.said()) == (codes[number], "")
        assert not (workplace / number.name).exists()
