"""The commands, as a user types them, without training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rlrun
from rlrun.cli import COMMANDS, main

HOME = str(Path(rlrun.__file__).parents[1])


def say(capsys, *words):
    """Runs a command. Returns exit code, lines on stdout, lines on stderr."""
    code = main(words)
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


def fresh(*command, cwd):
    """Runs Python in a new process. Returns stdout and stderr."""
    env = os.environ | {"PYTHONPATH": HOME}
    done = subprocess.run([sys.executable, *command], env=env, cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_names_every_command(word, capsys):
    code, out, _ = say(capsys, word)
    assert code == 0
    assert all(any(line.split()[:1] == [command] for line in out) for command in COMMANDS)
    assert say(capsys)[1] == out


def test_version(capsys):
    assert say(capsys, "--version") == (0, [f"rlrun {rlrun.__version__}"], [])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    code, out, err = say(capsys, command, "--help")
    assert (code, err) == (0, [])
    assert out[0].startswith(f"usage: rlrun {command}")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["trian"], "error: unknown command 'trian'; did you mean train? (there are: "),
        (["algo=sac", "seed=1"], "error: no command given; did you mean `rlrun train algo=sac seed=1`?"),
        (["-m", "algo=sac"], "error: no command given; did you mean `rlrun train -m algo=sac`?"),
        (["train", "--fast"], "error: unrecognized arguments: --fast (rlrun train --help)"),
        (["train", "--cfg", "jop"], "error: argument --cfg/-c: invalid choice: 'jop'"),
        (["train", "algo=sac", "env=HalfCheetah", "-c", "job", "-p", "nope"], "error: --package nope: no such section"),
        (["list", "algoo"], "error: no group 'algoo'; did you mean algo? (there are: algo, "),
        (["show", "algo=sacc"], "error: algo=sacc: unknown name; did you mean sac? (there are: "),
        (["show", "algo=sac", "algo.gama=1"], "error: algo.gama: unknown key; did you mean algo.gamma?"),
        (
            ["train", "--algo", "ppo", "env=range(0)"],
            "error: settings are written key=value; did you mean: rlrun train",
        ),
        (["show", "algo=range(0)"], "error: algo=range(0): must have one value, because rlrun show prints one config"),
        (
            ["show", "algo=sac", "seed=0,1"],
            "error: seed=0,1: must have one value, because rlrun show prints one config",
        ),
        (["resume"], "error: no run given; usage: rlrun resume RUN"),
        (["resume", "a", "b"], "error: one run at a time; usage: rlrun resume RUN"),
        (["resume", "nowhere"], "error: nowhere: no such folder"),
        (["resume", "x", "total_step=1"], "error: total_step: unknown key; did you mean total_steps? (there are: "),
        (["resume", "x", "total_steps=1.5"], "error: total_steps=1.5: must be a whole number, at least 1"),
        (["eval", "nowhere"], "error: nowhere: no such folder"),
        (["watch", "nowhere"], "error: nowhere: no such folder"),
        (["export", "nowhere"], "error: nowhere: no such folder"),
        (["push", "nowhere", "repo=me/x"], "error: nowhere: no such folder"),
        (["eval", "x", "episodes=0"], "error: episodes=0: must be a whole number, 1 to 1,000,000"),
        (["eval", "x", "episodes=1e99"], "error: episodes=1e99: must be a whole number, 1 to 1,000,000"),
        (["list", "algo", "extra"], "error: no group 'extra' (there are: algo, "),
        (["eval", "x", "explore=3"], "error: explore=3: must be true or false"),
        (
            ["train", "-m", "algo=ppo", "env=CartPole", "hydra/launcher=joblib"],
            "error: hydra/launcher=joblib: Hydra starts no runs here; write submit=local submit.workers=N",
        ),
        (["train", "algo=ppo", "env=CartPole", "--hydra-help"], "error: unrecognized arguments: --hydra-help"),
        (["doctor", "--now"], "error: --now: rlrun doctor accepts only --learn and --probe"),
        (
            ["train", "-m", "algo=ppo", "env=CartPole", "seed=range(0)"],
            "error: algo=ppo env=CartPole seed=range(0): this grid has no jobs",
        ),
        (
            ["train", "algo=ppo", "env=CartPole", "name=2024", "--dry-run"],
            "error: name=2024: must be text; put it in quotes: \"name='2024'\"",
        ),
        (
            ["train", "algo=ppo", "env=CartPole", "name=nan", "--dry-run"],
            "error: name=nan: must be text; put it in quotes: \"name='nan'\"",
        ),
        (["train", "algo=ppo", "env=CartPole", "run_dir="], "error: run_dir=: must name a folder"),
        (["eval", "x", "--fast"], "error: unknown option --fast"),
        (["tail", "x", ".step=1"], "error: .step: unknown key (this command has no settings)"),
        (["eval", "x", "--episodes", "5"], "error: unknown option --episodes; did you mean episodes=...?"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, (first, *rest) = say(capsys, *words)
    assert (code, out, rest) == (2, [], [])
    assert first.startswith(line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["2024", "nan", "no"])
def test_name_in_quotes_is_text(name, capsys):
    code, out, _ = say(capsys, "show", "algo=ppo", "env=CartPole", f"name='{name}'")
    assert code == 0
    assert any(line.split()[:2] == ["name", name] for line in out)


def test_commands_in_messages_begin_as_the_user_called_rlrun(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.yaml").touch()
    command = [sys.executable, "-m", "rlrun", "train", "algo=ppo", "env=CartPole", "run_dir=old"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "RLRUN_PROGRAM": "./scripts/run"}, capture_output=True, text=True
    )
    assert done.stderr == "error: run_dir=old already holds a run; to continue it: ./scripts/run resume old\n"


def test_every_fault_has_its_line(capsys):
    code, _, err = say(capsys, "train", "algo=sac", "env=HalfCheetah", "algo.gama=1", "seed=x")
    assert code == 2
    assert err == [
        "error: algo.gama: unknown key; did you mean algo.gamma?",
        "error: seed=x: must be a whole number, like 0",
    ]


# --- commands that do not import torch ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], {"torch", "hydra", "yaml", "gymnasium", "rich"}),
        (["list"], {"torch", "hydra", "gymnasium", "pydantic"}),
        (["list", "env"], {"torch", "hydra", "gymnasium", "pydantic"}),
        (["show", "algo=sac", "env=HalfCheetah"], {"torch", "gymnasium", "pydantic"}),
        (["train", "algo=sac", "env=HalfCheetah", "--cfg", "job"], {"torch", "gymnasium"}),
        (["train", "algo=sac", "env=Walker2d-v5", "--cfg", "job"], {"torch"}),
    ],
)
def test_quick_commands_import_little(words, absent, tmp_path):
    program = f"import sys; from rlrun.cli import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
    imported = fresh("-c", program, cwd=tmp_path)[1].split()
    assert absent.isdisjoint(imported)


def test_cfg_job_prints_what_a_run_would_store(capsys):
    code, out, _ = say(capsys, "train", "algo=sac", "env=HalfCheetah", "seed=1e1", "--cfg", "job")
    values = yaml.safe_load("\n".join(out))
    assert code == 0
    assert (values["name"], values["seed"], values["env"]["id"]) == ("sac-HalfCheetah", 10, "HalfCheetah-v5")
    assert say(capsys, "train", "-c", "job", "algo=sac", "-p", "env.id", "env=HalfCheetah")[1] == ["HalfCheetah-v5"]


def test_cfg_job_prints_every_job_of_a_sweep(capsys):
    _, out, _ = say(capsys, "train", "algo=sac", "-m", "env=HalfCheetah", "seed=1,2", "--cfg", "job")
    assert [job["seed"] for job in yaml.safe_load_all("\n".join(out))] == [1, 2]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--info", "searchpath"], "pkg://rlrun.conf"),
        (["--info=defaults"], "algo/loop/offpolicy"),
    ],
)
def test_info_prints_hydras_views_of_the_composition(flags, text, tmp_path):
    words = ["train", "algo=sac", "env=HalfCheetah", "algo.gamma=0.9"]
    out, err = fresh("-m", "rlrun", *words, *flags, cwd=tmp_path)
    assert err == ""
    assert text in out


def test_list_gives_each_name_its_first_comment(capsys):
    _, out, _ = say(capsys, "list", "algo")
    assert "Soft actor-critic (arXiv 1812.05905)." in next(line for line in out if line.startswith("sac "))
    assert out.index("actor_critic:") < next(place for place, line in enumerate(out) if line.startswith("sac "))
    _, out, _ = say(capsys, "list")
    assert {"algo", "env", "network", "trainer", "wrapper", "callback"} <= {line.split()[0] for line in out}
    _, out, _ = say(capsys, "list", "callback")
    assert any(line.split()[:4] == ["episodes", "-", "Writes", "RUN/episodes.csv,"] for line in out)
    _, out, _ = say(capsys, "list", "env")
    assert not any(line.startswith("_") for line in out)
    assert out[-1].startswith("and every id in Gymnasium")


def test_list_says_what_algorithms_and_presets_have_learned(capsys):
    _, out, _ = say(capsys, "list", "algo", "preset")
    rows = {line.split()[0]: line for line in out if line}
    assert "CartPole 500.0" in rows["c51"] and "contract only" in rows["nop"] and "in a test" in rows["oac"]
    assert "500.0 after 50,000 steps, 2 seeds" in rows["c51-CartPole"]
    assert "1e-8 after 1,248 evaluations, 9 seeds" in rows["cem-Sphere"]
    assert "not measured" in rows["dqn-atari"] and "algo.buffer.reward_clip" in rows["dqn-atari"]
    assert "algo.tau" in rows["double_dqn-CartPole"], "keys of the presets in its defaults"


def test_show_gives_every_key_its_value_origin_and_meaning(capsys):
    words = ["algo=sac", "env=HalfCheetah", "trainer=quick", "preset=none", "algo.gamma=0.9", "env.kwargs.x=1"]
    code, out, _ = say(capsys, "show", *words)
    assert code == 0
    assert out[0] == "sac: Soft actor-critic (arXiv 1812.05905)."
    rows = {line.split()[0]: line for line in out}
    for key, value, origin, meaning in [
        ("algo.gamma", "0.9", "command line", "discount per step"),
        ("algo.loop.batch_size", "256", "conf/algo/sac.yaml", "transitions per update"),
        ("algo.loop.name", "offpolicy", "conf/algo/loop/offpolicy.yaml", ""),
        ("trainer.total_steps", "20000", "conf/trainer/quick.yaml", "transitions from all training environments"),
        ("trainer.log_every", "1000", "conf/trainer/", "steps between rows"),
        ("env.id", "HalfCheetah-v5", "conf/env/HalfCheetah.yaml", "what Gymnasium makes"),
        ("env.kwargs.x", "1", "command line", ""),
        ("name", "sac-HalfCheetah", "algo and env", "folder under runs/"),
        ("seed", "0", "conf/train.yaml", "every random number"),
    ]:
        assert f" {value} " in rows[key] and f" {origin}" in rows[key] and meaning in rows[key], rows[key]


def test_show_needs_neither_algorithm_nor_environment(capsys):
    assert say(capsys, "show", "algo=sac")[0] == 0
    code, out, _ = say(capsys, "show", "env=Walker2d-v5")
    rows = {line.split()[0]: line for line in out}
    assert code == 0
    assert "Gymnasium" in rows["env.id"]
    assert not any(key.startswith("algo") for key in rows)


def test_bench_measures_a_piece_and_refuses_what_is_none(capsys, tmp_path):
    results = tmp_path / "bench.jsonl"
    code, out, _ = say(capsys, "bench", "update", "dqn", "repeats=1", "seconds=0.001", f"results={results}")
    assert code == 0 and out[0].startswith("update dqn, batch ") and " us " in out[0]
    assert json.loads(results.read_text())["unit"] == "us"
    code, _, err = say(capsys, "bench", "updat")
    assert code == 2 and "updat: unknown piece; did you mean update? (there are: update, act, " in str(err)
    assert say(capsys, "bench", "act", "sac")[0] == 2
    assert say(capsys, "bench", "seconds=0")[0] == 2


def test_doctor_prints_versions_and_problems(capsys, monkeypatch):
    code, out, _ = say(capsys, "doctor")
    rows = {line.split()[0] for line in out}
    assert {"rlrun", "python", "torch", "cpu", "threads", "products", "atari", "box2d"} <= rows
    assert (code == 0) == (out[-1] == "no problems found")

    from rlrun.cli import doctor

    monkeypatch.setattr(doctor, "_version", lambda name: {"omegaconf": "2.4.0"}.get(name, "1.3.8"))
    monkeypatch.setattr(doctor, "requires", lambda name: ["omegaconf<2.4,>=2.2"] if name == "hydra-core" else [])
    code, out, _ = say(capsys, "doctor")
    assert code == 1
    assert out[-2:] == ["problem: hydra-core needs omegaconf<2.4,>=2.2, found 2.4.0", "1 problem"]
