"""`rlrun completion`: the words that complete a line, and the scripts that ask for them."""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from made_runs import make_run

import rlrun
from rlrun import dotted
from rlrun.cli import COMMANDS, main
from rlrun.cli.completion import candidates
from rlrun.config import environments, schema, sources
from rlrun.config.compose import Composer
from rlrun.config.jobs import composed
from rlrun.config.keys import keys
from rlrun.settings import registry

HOME = str(Path(rlrun.__file__).parents[1])


def test_completion_completes_commands_groups_keys_and_values() -> None:
    assert candidates("rlrun ") == [*COMMANDS]
    assert candidates("time rlrun st") == ["status"]
    assert candidates("/usr/bin/rlrun nonsense ") == []
    assert {"algo=", "env=", "network=", "preset=", "seed=", "trainer.", "total_steps="} <= {
        *candidates("rlrun train ")
    }
    assert candidates("rlrun train algo=sac_l") == ["algo=sac_lagrangian"]
    assert candidates("rlrun train algo=ppo algo.clip_r") == ["algo.clip_range="]
    assert candidates("rlrun train algo=sac algo.clip") == []
    assert candidates("rlrun show algo=sac algo.bu") == ["algo.buffer=", "algo.buffer."]
    assert candidates("rlrun train algo=sac algo.buffer=prioritized algo.buffer.al") == ["algo.buffer.alpha="]
    assert candidates("rlrun train algo=sac algo.buffer.al") == []
    assert candidates("rlrun train algo=sac algo.entropy=f") == ["algo.entropy=fixed"]
    assert candidates("rlrun train network=lstm network.start=") == ["network.start=stored", "network.start=zero"]
    assert candidates("rlrun train device=") == ["device=auto", "device=cpu", "device=cuda", "device=cuda:1"]
    assert "logger=" in candidates("rlrun train logg")
    assert candidates("rlrun train env=CartPole env.kw") == ["env.kwargs=", "env.kwargs."]
    assert candidates("rlrun train -m env=CartPole,Acr") == ["env=CartPole,Acrobot", "env=CartPole,Acrobot-v1"]
    assert candidates("rlrun list wr") == ["wrapper"]
    assert candidates("rlrun completion z") == ["zsh"]
    assert candidates("rlrun new ") == [
        "algo",
        "buffer",
        "callback",
        "critic",
        "env",
        "head",
        "intrinsic",
        "loop",
        "network",
        "representation",
        "wrapper",
    ]
    assert candidates("rlrun new algo ") == []
    assert candidates("rlrun export r format=") == ["format=onnx", "format=torch"]
    assert candidates("rlrun eval r video=") == ["video=true", "video=false"]
    assert candidates("rlrun eval r seed=") == candidates("rlrun export r output=") == []


def test_completion_of_options_names_options_that_exist(capsys: Any) -> None:
    numbers = {"train": 7, "clean": 2, "doctor": 3, "list": 2, "show": 2, "sweep": 2}
    for command in COMMANDS:
        found = candidates(f"rlrun {command} --")
        assert found[-1] == "--help" and len(found) == numbers.get(command, 1)
        assert main(["help", command]) == 0
        text = capsys.readouterr().out
        assert not [option for option in found[:-1] if option not in text]
    assert main(["help", "tial"]) == 2 and "did you mean tail?" in capsys.readouterr().err


def test_completion_completes_settings_of_one_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    grid = "rlrun train -m algo=ppo,sac"
    assert candidates(f"{grid} sa") == ["sac."]
    assert candidates(f"{grid} sac.algo.alp") == candidates(f"{grid} sac=") == []
    assert candidates(f"{grid} sac.algo.entropy=f") == ["sac.algo.entropy=fixed"]
    assert candidates(f"{grid} ppo.algo.clip_r") == ["ppo.algo.clip_range="]
    assert candidates("rlrun train algo=ppo ppo.algo.clip_r") == []
    (tmp_path / "file_mine.py").write_text(
        "class Mine:\n    loop = {'name': 'onpolicy'}\n    class Config:\n        own: int = 1\n".replace(
            "class Mine", "@register('algo', 'file_mine')\nclass Mine"
        )
    )
    assert candidates("rlrun train -m algo=ppo,./file_mine.py file_mine.algo.ow") == ["file_mine.algo.own="]
    assert candidates("rlrun train algo=./no.py see") == ["seed="]


def test_completion_completes_runs_latest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old_runs").mkdir()
    assert candidates("rlrun resume o") == ["old_runs/"]
    runs = [f"runs/{name}" for name in ("ppo/20260102-s1", "sac/20260101-s0", "mine")]
    for run in runs:
        make_run(tmp_path / run, {100: 1.0})
    without = {"train", "pull", "show", "list", "bench", "new", "doctor", "completion"}
    for command in COMMANDS:
        assert ({*runs} <= {*candidates(f"rlrun {command} ")}) == (command not in without)
    assert candidates("rlrun train init_from=runs/m") == ["init_from=runs/mine"]
    assert candidates("rlrun resume runs/") == ["runs/mine", runs[0], runs[1]]
    assert candidates("rlrun eval runs/mine ep") == ["episodes="]
    (tmp_path / "runs/mine/snapshots/best").mkdir()
    assert candidates("rlrun eval runs/mine/snapshots/b") == ["runs/mine/snapshots/best/"]
    (tmp_path / "my file.py").touch()
    assert candidates("rlrun train algo=./m") == ["algo=./my file.py"]
    assert candidates("rlrun train plugins=[x,./o") == ["plugins=[x,./old_runs/"]
    (tmp_path / "a b/c").mkdir(parents=True)
    assert candidates("rlrun eval a\\ b/") == ["a b/c/"], "a space that the user has escaped"


def test_completion_reads_the_ids_of_gymnasium_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []
    real = environments.registered_ids
    monkeypatch.setattr(environments, "registered_ids", lambda: calls.append(1) or real())
    for _ in range(2):
        assert candidates("rlrun train env=Blackj") == ["env=Blackjack-v1"]
    (tmp_path / "rlrun" / "environments.json").write_text('{"versions": ["0"], "names": ["Blackjoke-v0"]}')
    assert candidates("rlrun train env=Blackj") == ["env=Blackjack-v1"], "of another version"
    assert len(calls) == 2


@pytest.mark.parametrize(
    "words", [["algo=sac"], ["algo=ppo_rnd", "env=CartPole"], ["algo=svpg"], ["algo=dqn", "network=lstm"], ["algo=bc"]]
)
def test_keys_are_those_of_the_composed_config(words: list[str]) -> None:
    composer = Composer(sources.folders())
    tree = composed(composer, [composer.read(word) for word in words], required=())[0].tree
    expected = {key for key, _ in dotted.leaves(tree)}
    found = {key for key in keys(dict(word.split("=") for word in words), composer.folders) if "=" not in key}
    missing = {key for key in expected - found if not any(key.startswith(f"{known}.") for known in found)}
    assert not missing
    assert not {key for key in found - expected if not any(known.startswith(f"{key}.") for known in expected)}


def literals(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return list(map(str, get_args(hint)))
    return [value for part in get_args(hint) for value in literals(part)]


def configs() -> Iterator[tuple[dict[str, str], str, Any]]:
    """Yields the choices that lead to each config class, its section and the class."""
    for section, cls in (("env", schema.EnvConfig), ("trainer", schema.TrainerConfig)):
        yield {}, section, cls
    for group in ("algo", "network"):
        for name in sources.options(group, [sources.CONF]):
            values = keys({group: name}, [sources.CONF])
            yield {group: name}, group, registry.lookup(group, values[f"{group}.name"].value).Config


def test_the_comment_of_every_literal_lists_its_values() -> None:
    checked = 0
    for chosen, section, cls in configs():
        assert dataclasses.is_dataclass(cls)
        found = keys(chosen, [sources.CONF])
        for field, hint in get_type_hints(cls, include_extras=True).items():
            values = literals(hint)
            if values and f"{section}.{field}" in found:
                checked += 1
                assert {*found[f"{section}.{field}"].choices} >= {*values}, (chosen, field)
    assert checked > 50


def test_completion_imports_neither_torch_nor_hydra() -> None:
    program = (
        "import sys\nfrom rlrun.cli import main\nmain(['completion', 'words', 'rlrun train algo=sac algo.'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    env = os.environ | {"PYTHONPATH": HOME}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert "algo.gamma=" in done.stdout.split()
    assert {"torch", "hydra", "pydantic", "gymnasium", "numpy"}.isdisjoint(done.stderr.split())


def test_completion_prints_a_script_for_each_shell(capsys: Any) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert "rlrun completion words" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err == "error: tcsh: must be one of bash, zsh, fish\n"


ASK = """
eval "$(rlrun completion bash)"
ask() {
    COMP_LINE="$1"; COMP_POINT=${#1}; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    _rlrun; echo "${COMPREPLY[*]}"
}
compopt() { echo "no space"; }
ask "rlrun tra" rlrun tra
ask "rlrun train algo=sac_l" rlrun train algo = sac_l
ask "rlrun train env=" rlrun train env = | grep -c CartPole
ask "rlrun train device=cuda:" rlrun train device = cuda :
ask "rlrun train seed=1 algo=sac algo.gam" rlrun train seed = 1 algo = sac algo.gam
ask "rlrun tail x/" rlrun tail x/
ask "rlrun train env=./" rlrun train env = ./
"""


SAFE = r"x/\$\(touch\ pwned\)/ x/a\ b/ x/st\*r/ x/star/"  # what bash reads as the names of these folders


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_words_that_it_splits_at_equals_signs_and_colons(tmp_path: Path) -> None:
    program = tmp_path / "rlrun"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rlrun "$@"\n')
    program.chmod(0o755)
    env = os.environ | {"PYTHONPATH": HOME, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    for name in ("$(touch pwned)", "a b", "st*r", "star"):
        (tmp_path / "x" / name).mkdir(parents=True)
    command = ["bash", "--norc", "-c", ASK]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    expected = ["train", "sac_lagrangian", "1", "1", "no space", "algo.gamma=", SAFE, "no space", "./x/"]
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")
