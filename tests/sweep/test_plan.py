"""What is checked before a sweep starts or is continued."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rlrun.config.compose import literal
from rlrun.config.jobs import jobs
from rlrun.config.stored import SWEEP
from rlrun.envs.config import EnvConfig
from rlrun.errors import ConfigError
from rlrun.sweep import untrusted
from rlrun.sweep.best import preset_text
from rlrun.sweep.ends import faults_of
from rlrun.sweep.folder import Description, begin, read
from rlrun.sweep.plan import Plan, plan, stored
from rlrun.sweep.runs import Runs
from rlrun.sweep.settings import settings
from rlrun.sweep.trials import RungJob, Trial
from rlrun.sweep.untrusted import Confirmed

WORDS = ["algo=q_learning", "env=FrozenLake", "algo.gamma=uniform(0.9,0.99)"]


@cache
def typed() -> Plan:
    return plan(WORDS)


def swept(folder: Path, *words: str) -> Path:
    """Writes the sweep.yaml of a sweep, with these words for all runs, and returns its folder."""
    planned = typed()
    runs = {
        env: {"words": [*one.words, *words], "steps": list(one.rung_steps)} for env, one in planned.templates.items()
    }
    described = Description.of(planned.cfg, planned.space, planned.templates)
    folder.mkdir()
    begin(folder, Description(described.sweep, described.space, runs))
    return folder


def test_stored_sweep_has_the_plan_of_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    again, before = stored(swept(tmp_path / "a"), ["workers=3"]), typed()
    assert again.cfg == replace(before.cfg, workers=3)
    assert (again.templates, again.values) == (before.templates, before.values)
    assert again.space.dimensions == before.space.dimensions and again.path == tmp_path / "a"


CODE = "imports code; if you trust it, add"
FILE = "names a file, which the environment may read; if you trust it, add"
REFERS = "refers to settings that differ between trials, and may name code or files; if you trust it, add"
SOURCE = "{url: 'https://example.org/a', sha256: " + "0" * 64 + "}"
REACHING = [
    ("plugins=[./evil.py]", f"plugins: {CODE} 'plugins=[./evil.py]'"),
    ("+plugins=[evil]", f"plugins: {CODE} 'plugins=[evil]'"),
    ("++plugins=['./evil.py']", f"plugins: {CODE} 'plugins=[./evil.py]'"),
    ("plugins@algo=[./evil.py]", "packages (@) are not used here"),
    ("plugins=[./evil.py],[b]", "several values; a sweep accepts only one"),
    ("env.id=evil:Env", f"env: {CODE} env=evil:Env"),
    ("++env.id='./evil.py:Env'", f"env: {CODE} env=./evil.py:Env"),
    ("network=./evil.py", f"plugins: {CODE} 'plugins=[./evil.py]'"),
    ("algo.buffer=./evil.py", f"plugins: {CODE} 'plugins=[./evil.py]'"),
    ("logger=[wandb]", "logger: sends data out of the run's folder; if you trust it, add 'logger=[wandb]'"),
    ("logger=[console,mlflow]", "add 'logger=[console, mlflow]'"),
    ("init_from=runs/a", "init_from: reads weights from files; if you trust it, add init_from=runs/a"),
    ("env.kwargs.render_mode=human", "opens a window; if you trust it, add env.kwargs.render_mode=human"),
    ("env.eval_kwargs={render_mode: human}", "add env.eval_kwargs.render_mode=human"),
    ("env.kwargs.map_name=/etc/passwd", f"env.kwargs.map_name: {FILE} env.kwargs.map_name=/etc/passwd"),
    ("env.wrappers={a: {model: '~/b'}}", f"env.wrappers.a.model: {FILE} 'env.wrappers.a.model=~/b'"),
    ("env.id=${env.log_info.0}", f"env.id: {REFERS} 'env.id=${{env.log_info.0}}'"),
    (r"env.id=$\{env.log_info.0\}", f"env.id: {REFERS} 'env.id=${{env.log_info.0}}'"),
    (r"plugins=[$\{env.log_info.0\}]", f"plugins: {REFERS} 'plugins=[${{env.log_info.0}}]'"),
    ("init_from='${run_dir}'", f"init_from: {REFERS} 'init_from=${{run_dir}}'"),
    ("env={id: '${env.log_info.0}'}", f"env: {REFERS}"),
    ("plugins=['${env.log_info.0}']", f"plugins: {REFERS}"),
    (f"env.kwargs.source={SOURCE}", f"env.kwargs.source.url: {FILE} env.kwargs.source.url=https://example.org/a"),
]


@pytest.mark.parametrize(("word", "fault"), REACHING)
def test_settings_of_a_stored_sweep_that_reach_outside_must_be_typed_again(
    word: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('RAN', 'w')\n")
    folder = swept(tmp_path / "a", word)
    with pytest.raises(ConfigError) as refused:
        stored(folder, [])
    assert fault in str(refused.value) and not (tmp_path / "RAN").exists()


def test_settings_of_loggers_of_a_stored_sweep_must_be_typed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = swept(tmp_path / "a", "logger=[mlflow]", "logger.mlflow.tracking_uri=http://there")
    with pytest.raises(ConfigError, match="says where a logger sends data") as refused:
        stored(folder, ["logger=[mlflow]"])
    (line,) = refused.value.faults
    stored(folder, ["logger=[mlflow]", line.partition("add ")[2].strip("'")])


@pytest.mark.parametrize(
    ("word", "again"),
    [
        ("+plugins=[./mine.py]", "plugins=[./mine.py]"),
        ("logger=[csv,mlflow]", "logger=[csv, mlflow]"),
        ("env.kwargs={map_name: a/b}", "env.kwargs.map_name=a/b"),
        ("algo.learning_rate=${algo.epsilon.end}", "algo.learning_rate=${algo.epsilon.end}"),
    ],
)
def test_settings_of_a_stored_sweep_hold_once_they_are_typed_again(
    word: str, again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlrun.run.untrusted.try_environments", lambda *_: None)
    (tmp_path / "mine.py").write_text("")
    folder = swept(tmp_path / "a", word)
    assert word in stored(folder, [again]).templates["FrozenLake"].words
    with pytest.raises(ConfigError, match=r"algo\.gamma=0\.5: cannot change in a sweep that has begun"):
        stored(folder, [again, "algo.gamma=0.5"])


@pytest.mark.parametrize(
    ("key", "choices", "fault"),
    [
        ("env.log_info", ["${run_dir}", "b"], "must have a plain key and plain values"),
        ("env.log_info", [["$\\{run_dir\\}"], ["b"]], "must have a plain key and plain values"),
        ("env.kwargs", [{"map_name:4x4,is_slippery": True}, {}], "must have a plain key and plain values"),
        ("env.kwargs", [{"a": {"b:c": 1}}, {}], "must have a plain key and plain values"),
        ("env.log_info", [["a,./evil.py,b"], ["b"]], f"plugins: {CODE} 'plugins=[a,./evil.py,b]'"),
    ],
)
def test_range_of_a_stored_sweep_holds_plain_values(
    key: str, choices: list[object], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = swept(tmp_path / "a")
    content = yaml.safe_load((folder / SWEEP).read_text())
    content["space"] = {key: {"choice": choices}}
    (folder / SWEEP).write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=re.escape(fault)):
        stored(folder, [])


@pytest.mark.parametrize("word", ["algo.loop=[a,./evil.py,b]", "algo.loop={name: 'a,./evil.py,b'}"])
def test_file_within_a_value_of_a_stored_sweep_is_not_imported(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(
        "open('RAN', 'w')\nfrom rlrun.settings import register\n\n@register('loop', 'evil')\nclass Evil: pass\n"
    )
    folder = swept(tmp_path / "a", word)
    (folder / SWEEP).write_text((folder / SWEEP).read_text().replace("env=FrozenLake", "env=Unknown-v0"))
    with pytest.raises(ConfigError):
        stored(folder, [])
    assert not (tmp_path / "RAN").exists()


def check_run(planned: Plan, **values: object) -> None:
    """Checks a run of a sweep, with these values of the searched keys."""
    planned.runs().check(RungJob(0, 0, "FrozenLake", 0), Trial(0, [], values, ["FrozenLake"], 1))


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("++plugins=['./evil.py']", f"plugins: {CODE} 'plugins=[./evil.py]'"),
        ("env.id=./evil.py:Env", f"env: {CODE} env=./evil.py:Env"),
        ("init_from='${run_dir}'", "init_from: reads weights from files; if you trust it, add init_from="),
        ("env.kwargs.map_name=${run_dir}", f"env.kwargs.map_name: {FILE} env.kwargs.map_name="),
        ("preset=p.yaml", "preset: reads settings from a file; if you trust it, add preset=p.yaml"),
    ],
)
def test_run_that_reaches_outside_does_not_start_even_if_the_texts_of_its_sweep_were_not_checked(
    word: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlrun.sweep.untrusted.check_words", lambda *_: [])
    monkeypatch.setattr("rlrun.sweep.untrusted.check_runs", lambda *_: None)
    (tmp_path / "evil.py").write_text("open('RAN', 'w')\n")
    (tmp_path / "p.yaml").write_text("algo: {gamma: 0.5}\n")
    planned = stored(swept(tmp_path / "a", word), [])
    with pytest.raises(ConfigError) as refused:
        check_run(planned)
    assert fault in str(refused.value) and not (tmp_path / "RAN").exists()


@pytest.mark.parametrize("env", ["${name}", "\\${name}", "x\\${env.id}"])
def test_reference_in_the_name_of_an_environment_is_text(
    env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = swept(tmp_path / "a", "name=x/../../../OUTSIDE")
    content = yaml.safe_load((folder / SWEEP).read_text())
    content["runs"] = {env: content["runs"]["FrozenLake"]}
    (folder / SWEEP).write_text(yaml.safe_dump(content))
    runs = stored(folder, []).runs()
    job, trial = RungJob(0, 0, env, 0), Trial(0, [], {}, [env], 1)
    runs.check(job, trial)
    (composed,) = jobs(runs.command(job, trial)[1:])
    assert composed.values["run_dir"] == str(runs.path(job))
    assert "${" in composed.values["run_dir"]


def test_run_of_a_stored_sweep_with_a_folder_elsewhere_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = replace(typed(), confirmed=Confirmed([])).runs()
    monkeypatch.setattr("rlrun.sweep.runs.literal", lambda value: f"'{value}/../../${{name}}'")
    with pytest.raises(ConfigError, match=r"run_dir=.*: must be "):
        runs.check(RungJob(0, 0, "FrozenLake", 0), Trial(0, [], {}, ["FrozenLake"], 1))


VALUES = [
    ("plugins", ["./evil.py"], f"plugins: {CODE} 'plugins=[./evil.py]'"),
    ("env.id", "./evil.py:Env", f"env: {CODE} env=./evil.py:Env"),
    ("env.kwargs.map_name", "/etc/passwd", f"env.kwargs.map_name: {FILE} env.kwargs.map_name=/etc/passwd"),
    ("network", "./evil.py", "network=./evil.py: unknown name"),
]


@pytest.mark.parametrize(("key", "value", "fault"), VALUES)
def test_run_whose_searched_values_reach_outside_does_not_start(
    key: str, value: object, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = replace(typed(), confirmed=Confirmed([]))
    with pytest.raises(ConfigError, match=re.escape(fault)):
        check_run(planned, **{key: value})
    check_run(typed(), **{key: value})  # the user typed this sweep


def test_ends_of_a_stored_sweep_that_reach_outside_are_refused_before_code_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('RAN', 'w')\n")
    lines = [[*WORDS[:2], f"{key}={literal(value)}"] for key, value, _ in VALUES]
    faults = faults_of([*lines, ["algo=q_learning", "env=Unknown-v0", "plugins=[./evil.py]"]], typed=[])
    assert all(fault in line for (*_, fault), line in zip(VALUES, faults, strict=False))
    assert not (tmp_path / "RAN").exists()


def test_run_of_a_stored_sweep_starts_with_what_the_user_typed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlrun.run.untrusted.try_environments", lambda *_: None)
    (tmp_path / "mine/conf/preset").mkdir(parents=True)
    (tmp_path / "mine/__init__.py").write_text("")
    (tmp_path / "mine/conf/preset/ours.yaml").write_text("algo: {gamma: 0.5}\n")
    folder = swept(tmp_path / "a", "+plugins=[./mine]", "preset=ours", "env.kwargs={map_name: a/b}")
    planned = stored(folder, ["plugins=[./mine]", "env.kwargs.map_name=a/b"])
    check_run(planned, **{"algo.gamma": 0.95})
    with pytest.raises(ConfigError, match=r"add env\.kwargs\.map_name=c/d"):
        check_run(planned, **{"env.kwargs.map_name": "c/d"})


def test_plugin_of_a_stored_sweep_is_not_imported_to_find_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('RAN', 'w')\n")
    folder = swept(tmp_path / "a", "++plugins=[./evil.py]")
    (folder / SWEEP).write_text((folder / SWEEP).read_text().replace("env=FrozenLake", "env=Unknown-v0"))
    with pytest.raises(ConfigError, match="imports code"):
        stored(folder, [])
    assert not (tmp_path / "RAN").exists()


def test_preset_file_of_a_stored_sweep_must_be_typed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("algo: {gamma: 0.5}\n")
    folder = swept(tmp_path / "a", "preset=p.yaml")
    with pytest.raises(ConfigError, match=r"preset: reads settings from a file; .* add preset=p\.yaml"):
        stored(folder, [])
    assert stored(folder, ["preset=p.yaml"]).values["algo"]["gamma"] == 0.5
    (tmp_path / "p.yaml").write_text("algo: {gamma: secret}\n")  # not read before it is typed
    with pytest.raises(ConfigError, match="preset: reads settings from a file"):
        stored(folder, [])


def test_folder_of_further_files_of_a_sweep_holds_for_its_runs_and_must_be_typed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlrun.sweep.ends.check_ends", lambda *_: None)
    (tmp_path / "own/preset").mkdir(parents=True)
    (tmp_path / "own/space").mkdir()
    (tmp_path / "own/preset/ours.yaml").write_text("algo: {learning_rate: 0.5}\n")
    (tmp_path / "own/space/mine.yaml").write_text("algo.gamma: {uniform: [0.9, 0.99]}\n")
    planned = plan([*WORDS[:2], "preset=ours", "--config-dir", "own", "space=mine"])
    assert planned.space.keys == ["algo.gamma"] and planned.values["algo"]["learning_rate"] == 0.5  # type: ignore[index]
    command = planned.runs().command(RungJob(0, 0, "FrozenLake", 0), Trial(0, [], {}, ["FrozenLake"], 1))
    assert jobs(command[1:])[0].values["algo"]["learning_rate"] == 0.5
    folder = tmp_path / "a"
    folder.mkdir()
    begin(folder, Description.of(planned.cfg, planned.space, planned.templates))
    again = stored(folder, ["--config-dir=own"])
    line = [*planned.templates["FrozenLake"].words, "algo.gamma=0.95"]
    assert faults_of([WORDS[:2], line], ["--config-dir=own"]) == []  # the first one has no folder
    check_run(again, **{"algo.gamma": 0.95})
    with pytest.raises(ConfigError, match=r"--config-dir: reads settings from a folder; .* add --config-dir=own$"):
        stored(folder, [])
    with pytest.raises(ConfigError, match=r"--config-dir: reads settings from a folder"):
        Confirmed([]).check_run(planned.templates["FrozenLake"].words)
    assert "- /preset/ours\n" in preset_text(planned.templates["FrozenLake"].words, {}, "best of 1 trial")


def test_arguments_of_the_environment_of_a_stored_sweep_are_tried_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    monkeypatch.setattr("rlrun.run.untrusted.check_environment", lambda env, typed: tried.append(env.kwargs))
    stored(swept(tmp_path / "a", "env.kwargs.is_slippery=false"), [])
    assert tried == [{"is_slippery": False}]


def test_environments_of_a_stored_sweep_share_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tried = []

    def check_environment(env: EnvConfig, typed: Mapping[str, Any]) -> None:
        now[0] += 0.4 * untrusted.TRIED_S
        tried.append(env.timeout_s)

    monkeypatch.setattr(untrusted, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("rlrun.run.untrusted.check_environment", check_environment)
    folder = swept(tmp_path / "a", "env.kwargs.is_slippery=false")
    description = yaml.safe_load((folder / SWEEP).read_text())
    (course,) = description["runs"].values()
    description["runs"] = {f"E{number}": course for number in range(10)}
    description["sweep"]["normalize"] = {env: [0.0, 1.0] for env in description["runs"]}
    (folder / SWEEP).write_text(json.dumps(description))
    with pytest.raises(
        ConfigError, match=r"^env: trying all environments takes above 30 s; more with env\.timeout_s=60$"
    ):
        stored(folder, [])
    assert len(tried) == 3
    stored(folder, ["env.timeout_s=60"])
    assert tried[3:] == [60.0] * 10
    with pytest.raises(ConfigError, match=r"env\.timeout_s=-1: must be greater than 0"):
        stored(folder, ["env.timeout_s=-1"])


@pytest.mark.parametrize(
    ("key", "values", "fault"),
    [
        ("env.kwargs.map_name", "[4x4, /etc/passwd]", f"env.kwargs.map_name: {FILE} env.kwargs.map_name=/etc/passwd"),
        ("env.kwargs.render_mode", "[rgb_array, human]", "opens a window"),
        ("env.kwargs", "[{a: 1}, {render_mode: human}]", "opens a window"),
        ("env.wrappers", "[{}, {a: {model: /b}}]", f"env.wrappers.a.model: {FILE} env.wrappers.a.model=/b"),
        ("env.kwargs.a", "['${oc.env:HOME}', b]", "must have a plain key and plain values"),
        ("env.kwargs.a", "['${algo.name}', b]", "must have a plain key and plain values"),
        ("env.kwargs.a@plugins", "[a, b]", "must have a plain key and plain values"),
        ("'env.kwargs.a=1 plugins'", "[a, b]", "must have a plain key and plain values"),
        ("++plugins", "[[a], [b]]", "must have a plain key and plain values"),
    ],
)
def test_values_of_a_stored_space_reach_nowhere(key: str, values: str, fault: str, tmp_path: Path) -> None:
    folder = swept(tmp_path / "a")
    text = (folder / SWEEP).read_text()
    changed = text.replace("algo.gamma:\n    uniform:\n    - 0.9\n    - 0.99", f"{key}:\n    choice: {values}")
    (folder / SWEEP).write_text(changed)
    with pytest.raises(ConfigError) as refused:
        stored(folder, [])
    assert fault in str(refused.value)


@pytest.mark.parametrize("key", ["plugins", "env.id", "env", "logger", "callbacks", "init_from"])
def test_stored_space_cannot_search_keys_that_name_code(key: str, tmp_path: Path) -> None:
    folder = swept(tmp_path / "a")
    text = (folder / SWEEP).read_text()
    (folder / SWEEP).write_text(
        text.replace("algo.gamma:\n    uniform:\n    - 0.9\n    - 0.99", f"{key}:\n    choice: [a:b, c]")
    )
    assert key in (folder / SWEEP).read_text()
    with pytest.raises(ConfigError, match=rf"{key}: cannot be searched; keys of algo, network, env can"):
        stored(folder, [])


def test_environments_in_a_stored_sweep_that_import_a_module_must_be_typed_again(tmp_path: Path) -> None:
    folder = swept(tmp_path / "a")
    text = (folder / SWEEP).read_text()
    (folder / SWEEP).write_text(text.replace("env=FrozenLake", "env=evil:FrozenLake-v0"))
    with pytest.raises(ConfigError, match="env: imports code; if you trust it, add env=evil:FrozenLake-v0"):
        stored(folder, [])


@pytest.mark.parametrize("env", ['"\\0"', '"\\e[2J"', "5", "a" * 300])
def test_stored_sweep_with_an_impossible_name_of_an_environment_is_refused(env: str, tmp_path: Path) -> None:
    folder = swept(tmp_path / "a")
    (folder / SWEEP).write_text((folder / SWEEP).read_text().replace("\n  FrozenLake:", f"\n  ? {env}\n  :"))
    with pytest.raises(ConfigError, match="each of runs must have the name of an environment"):
        read(folder)


@pytest.mark.parametrize("word", ["run_dir=elsewhere", "+run_dir=elsewhere", "++resume=never"])
def test_stored_sweep_chooses_no_folder_for_its_runs(word: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a sweep chooses (run_dir|resume) for each run"):
        stored(swept(tmp_path / "a", word), [])


def test_typed_value_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlrun.sweep.ends.check_ends", lambda *_: None)
    planned = plan(["algo=ppo", "env=CartPole", "algo.gamma=0.95"])
    assert "algo.gamma" not in planned.space.keys and "algo.learning_rate" in planned.space.keys


def test_environments_with_other_numbers_of_rungs_are_refused() -> None:
    with pytest.raises(ConfigError, match="rungs: the environments have different numbers of evaluations"):
        plan(["algo=ppo", "env=CartPole,HalfCheetah", "trainer.eval_every=20000", "rungs=[0.01,0.05,1]",
              "normalize={CartPole: [0,1], HalfCheetah: [0,1]}"])  # fmt: skip


@pytest.mark.parametrize(
    ("word", "advice"),
    [("trainer.period_unit=updates", "set it to steps"), ("trainer.total_updates=9", "set it to null")],
)
def test_rungs_of_a_run_that_is_not_measured_in_steps_are_refused(word: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{word}: rungs are in steps; {advice}, or prune=none$"):
        plan([*WORDS, word])
    plan([*WORDS, word, "prune=none"])


def test_sweep_with_a_limit_of_the_disk_is_stored(tmp_path: Path) -> None:
    planned = replace(typed(), cfg=settings({"disk": "20G"}), path=tmp_path)
    planned.begin()
    assert read(tmp_path).sweep["disk"] == 20 * 10**9


def test_sweep_that_was_killed_while_it_began_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    planned = replace(typed(), path=tmp_path)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "mkdir", killed)
        planned.begin()
    planned.begin()
    assert read(tmp_path) == Description.of(planned.cfg, planned.space, planned.templates)


def test_file_of_a_sweep_with_deep_nesting_is_refused(tmp_path: Path) -> None:
    (tmp_path / SWEEP).write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"sweep\.yaml: not a config"):
        read(tmp_path)


def test_bounds_of_one_environment_can_be_typed_alone() -> None:
    assert settings({"normalize.CartPole": [0, 500]}).normalize == {"CartPole": [0.0, 500.0]}


@pytest.mark.parametrize("name", ["x (1, 2)", "it's"])
def test_folder_of_a_run_may_have_any_letters(name: str, tmp_path: Path) -> None:
    planned = typed()
    runs = Runs(tmp_path / name, planned.templates, planned.cfg.metric, planned.scoring)
    words = runs.command(RungJob(0, 0, "FrozenLake", 0), Trial(0, [], {}, ["FrozenLake"], 1))[1:]
    (job,) = jobs([word for word in words if not word.startswith("resume=")])
    assert job.values["run_dir"] == str(tmp_path / name / "0000-FrozenLake-s0")


@pytest.mark.usefixtures("forks")
def test_a_rung_is_at_least_the_first_evaluation() -> None:
    planned = plan(["algo=ppo", "env=CartPole", "trainer.total_steps=1000", "trainer.eval_every=100", "rungs=[1e-4,1]"])
    assert planned.templates["CartPole"].rung_steps == [100, 1000]


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("algo.gamma=0.9,0.99", "to search them, type 'algo.gamma=choice(0.9,0.99)'"),
        ("network.hidden=[64],[128]", "to search them, type 'network.hidden=choice([64],[128])'"),
        ("network=mlp,lstm", "a sweep accepts only one"),
    ],
)
def test_sweep_refuses_a_key_with_several_values(word: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{word}: several values; {advice}")):
        plan(["algo=ppo", "env=CartPole", word])


@pytest.mark.usefixtures("forks")
def test_population_whose_learning_rate_has_a_schedule_is_refused_before_it_starts() -> None:
    words = ["kind=pbt", "trials=4", "algo=dqn", "env=CartPole", "algo.learning_rate=log(1e-4,1e-2)"]
    constant = "algo.schedule.learning_rate={}"
    fault = f"algo.schedule.learning_rate: one schedule at a time, not linear, piecewise; {constant} removes that of"
    with pytest.raises(ConfigError, match=re.escape(fault)):
        plan(words)
    plan([*words, constant])


@pytest.mark.parametrize("entry", ["&a [1, *a]", "[&b [1, 2], *b]"])
def test_stored_space_with_aliases_is_refused(entry: str, tmp_path: Path) -> None:
    path = swept(tmp_path / "sweep") / SWEEP
    content = yaml.safe_load(path.read_text()) | {"space": {}}
    path.write_text(yaml.safe_dump(content).replace("space: {}", f"space: {{algo.gamma: {{choice: {entry}}}}}"))
    with pytest.raises(ConfigError, match="aliases are not allowed"):
        read(path.parent)


def test_stored_sweep_whose_trials_are_a_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("format: 1\n")
    (tmp_path / "trials").touch()
    with pytest.raises(ConfigError, match=r"not a sweep \(trials is a file\)"):
        stored(tmp_path, [])


@pytest.mark.parametrize("word", ["algo.head=evil.py,5", "+algo.head=evil.py,null", "algo.critic_update=5,evil.py"])
def test_python_file_among_several_values_of_a_stored_sweep_is_not_opened(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("")
    folder = swept(tmp_path / "a", word)
    monkeypatch.setattr("rlrun.config.declared._tree", lambda file: pytest.fail(f"{file} was read"))
    with pytest.raises(ConfigError, match="several values; a sweep accepts only one"):
        stored(folder, [])
