"""The preset file that a sweep writes."""

from pathlib import Path

import pytest

from rlrun.cli.new import filled, write
from rlrun.config import preset_files, sources
from rlrun.config.jobs import jobs
from rlrun.config.preset_files import added
from rlrun.errors import ConfigError
from rlrun.sweep.best import preset_text

WORDS = ["algo=dqn", "env=CartPole", "algo.buffer=prioritized", "network=mlp", "network.hidden=[32]", "env.num_envs=2",
         "trainer='quick'", "algo.buffer.alpha=0.5", "seed=7", "device=cpu"]  # fmt: skip
VALUES = {"algo.gamma": 0.9, "algo.epsilon.end": 0.02}


@pytest.mark.parametrize("more", [[], ["preset=none"]])
def test_preset_gives_a_run_the_settings_of_the_winner(more: list[str], tmp_path: Path) -> None:
    words = [*WORDS, *more]
    file = tmp_path / "best.yaml"
    file.write_text(preset_text(words, VALUES, "best of 3 trials"))
    (preset,) = jobs(["algo=dqn", "env=CartPole", f"preset={file}"])
    (trial,) = jobs([*words, *(f"{key}={value}" for key, value in VALUES.items())])
    for section in ("algo", "network", "env", "trainer"):
        assert preset.values[section] == trial.values[section]
    assert preset.values["seed"] == 0 and preset.values["preset"] == str(file)


def test_preset_of_a_network_from_a_file_needs_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("my_net"), filled("network", "my_net"))
    words = sources.by_name(["algo=ppo", "env=CartPole", "network=./my_net/my_net.py"])
    Path("best.yaml").write_text(preset_text(words, {}, "best of 1 trial"))
    chosen = ["algo=ppo", "env=CartPole", "preset=./best.yaml"]
    (preset,) = jobs([*chosen, "plugins=[./my_net/my_net.py]"])
    assert preset.values["network"]["name"] == "my_net"
    with pytest.raises(ConfigError, match=r"network=my_net: unknown name .*; if it is yours, add plugins=\[FILE\]"):
        jobs(chosen)


@pytest.fixture
def untrusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns an empty folder of an untrusted person, below the current folder, with code that leaves a mark."""
    monkeypatch.chdir(tmp_path)
    folder = Path("untrusted")
    folder.mkdir()
    (folder / "evil.py").write_text("open('RAN', 'w')\n")
    (folder / "inner.yaml").write_text("plugins: [./untrusted/evil.py]\n")
    (folder / "harmless.yaml").write_text("algo: {gamma: 0.5}\n")
    return folder


CODE = "./untrusted/evil.py"
NUMBERS = "[" + ",".join("0" * 10) + "]"
NEXT = [f"${{env.kwargs.a{level + 1}}}" for level in range(9)]  # references to the value of the next level
LISTS = "".join(f"    a{level}: {[one] * 9}\n" for level, one in enumerate(NEXT))
TEXTS = "".join(f"    a{level}: '{one * 9}'\n" for level, one in enumerate(NEXT))
ALIASES = "\n".join(f"  a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"plugins: [{CODE}]", "sets plugins, but may set only defaults, trainer, env, network, algo"),
        ("callbacks: [episodes]", "sets callbacks"),
        ("logger: {wandb: {}}", "sets logger"),
        ("hydra: {run: {dir: x}}", "sets hydra"),
        (f"env: {{id: {CODE}:Env}}", "sets env.id; choose the environment with env=..."),
        (f"# @package env\nid: {CODE}:Env", "sets id"),
        (f"<<: {{plugins: [{CODE}]}}", "sets plugins"),
        (f"env: {{<<: {{id: {CODE}:Env}}}}", "sets env.id"),
        ("- 3", "must be a mapping"),
        ("algo: {_target_: os.system}", "_target_ is not allowed"),
        ("defaults: [untrusted/inner]", "defaults: untrusted/inner: must be _self_, /preset/<name>"),
        ("defaults: [harmless]", "defaults: harmless"),
        ("defaults: [/preset/untrusted/inner]", "defaults: /preset/untrusted/inner"),
        ("defaults: [/preset/untrusted/harmless.yaml]", "defaults: /preset/untrusted/harmless.yaml"),
        ("defaults: [../../untrusted/inner]", "defaults: ../../untrusted/inner"),
        ("defaults: ['optional /preset/untrusted/inner']", "defaults: optional"),
        ("defaults: [{/preset: untrusted/inner}]", "defaults: {'/preset'"),
        ("defaults: [{override /preset: untrusted/inner}]", "defaults: {'override /preset'"),
        ("defaults: [{/env: Pendulum}]", "defaults: {'/env'"),
        (f"defaults: [{{override /env: '{CODE}:Env'}}]", "defaults: {'override /env'"),
        ("defaults: [{override /logger: wandb}]", "defaults: {'override /logger'"),
        ("defaults: [{override hydra/launcher: submitit}]", "defaults: {'override hydra/launcher'"),
        (f"defaults: [{{override /algo/buffer: {CODE}}}]", "defaults: {'override /algo/buffer'"),
        ("defaults: [{override /algo/buffer@env: prioritized}]", "defaults: {'override /algo/buffer@env'"),
        (f"env: '${{oc.create:{{id: \"{CODE}:Env\"}}}}'", "may only refer to a value, like"),
        ("algo: {gamma: '${oc.env:HOME}'}", "may only refer to a value, like"),
        ("algo: {gamma: '${oc.decode:${oc.env:HOME}}'}", "may only refer to a value, like"),
        ("algo: {gamma: '${ oc.env : HOME }'}", "may only refer to a value, like"),
        ("algo: {gamma: '${algo.${oc.env:HOME}}'}", "may only refer to a value, like"),
        ("algo: {gamma: '${..plugins}'}", "may only refer to a value, like"),
        ("env: {kwargs: '${algo}'}", "may only refer to a value, like"),
        ("env: {kwargs: '${hydra:runtime.cwd}'}", "may only refer to a value, like"),
        ("env: {kwargs: {render_mode: human}}", "env.kwargs.render_mode: opens a window; if you trust it, add"),
        ("env: {kwargs: {map_name: /etc/passwd}}", "env.kwargs.map_name: names a file"),
        ("env: {wrappers: {a: {model: /etc/passwd}}}", "env.wrappers.a.model: names a file"),
        (
            "algo: {schedule: {a: /etc/passwd}}\nenv: {kwargs: {map_name: '${algo.schedule.a}'}}",
            "env.kwargs.map_name: names a file",
        ),
        (
            "defaults: [{override /algo/loop: offline}, _self_]\nalgo: {loop: {data: demos-v0}}",
            "algo.loop.data: reads or writes data sets",
        ),
        ("algo: {gamma: 2001-01-01}", "algo.gamma: 2001-01-01: must be a number"),
        ("algo: {gamma: !!python/object/apply:os.system [x]}", "could not determine a constructor"),
        ("algo: {2: 3}", "algo.2: a key must be a name"),
        (f"algo: {'[' * 5000}{']' * 5000}", "not a config"),
        (f"algo: {'[' * 100}{']' * 100}", "nested more than 64 levels deep"),
        (f"algo:\n  a0: &a0 {NUMBERS}\n{ALIASES}", "aliases are not allowed"),
        (f"algo: {{gamma: 0x{'f' * 5000}}}", "holds a whole number above 1e"),
        (f"env:\n  kwargs:\n{LISTS}    a9: x", "the values that ${...} refers to are too large"),
        (f"env:\n  kwargs:\n{TEXTS}    a9: x", "the values that ${...} refers to are too large"),
    ],
)
def test_untrusted_preset_holds_data_alone(text: str, fault: str, untrusted: Path) -> None:
    file = untrusted / "mine.yaml"
    file.write_text(f"{text}\n")
    with pytest.raises(ConfigError) as refused:
        jobs(["algo=dqn", "env=CartPole", f"preset={file}"])
    assert fault in str(refused.value) and "\n" not in str(refused.value)
    assert not Path("RAN").exists()


@pytest.mark.parametrize("key", ["plugins", "callbacks", "logger", "init_from", "run_dir"])
def test_composed_preset_changes_no_other_section(key: str) -> None:
    values = {"env": {"id": "A"}, "algo": {}, "preset": "a.yaml", "plugins": [], "logger": {}, key: None}
    assert list(added("a.yaml", values | {"preset": None, "algo": {"gamma": 0.9}}, values)) == []
    lines = list(added("a.yaml", values | {key: {"csv": {}}}, values))
    assert lines[0].startswith(f"preset=a.yaml: sets {key}, but may set only")
    (line,) = added("a.yaml", values | {"env": {"id": "B"}}, values)
    assert line == "preset=a.yaml: sets env.id; choose the environment with env=..."


@pytest.mark.parametrize("word", ["env.kwargs.map_name=maps/a", "env.kwargs.render_mode=human"])
def test_preset_reaches_outside_of_the_run_if_the_user_types_it_too(word: str, untrusted: Path) -> None:
    key, _, value = word.rpartition(".")[2].partition("=")
    (untrusted / "mine.yaml").write_text(f"env: {{kwargs: {{{key}: {value}}}}}\n")
    chosen = ["algo=dqn", "env=CartPole", "preset=untrusted/mine.yaml"]
    with pytest.raises(ConfigError, match=f"add {word}"):
        jobs(chosen)
    (job,) = jobs([*chosen, word])
    assert job.values["env"]["kwargs"] == {key: value}


LOGGER = """from rlrun.settings import registry
from rlrun.telemetry.logger import Logger

@registry.register("logger", "mine")
class Mine(Logger):
    class Config: ...
"""


def test_preset_file_of_a_run_with_a_logger_of_the_user(untrusted: Path) -> None:
    Path("my_logger.py").write_text(LOGGER)
    (untrusted / "mine.yaml").write_text("algo: {gamma: 0.5}\n")
    words = ["algo=dqn", "env=CartPole", "plugins=[./my_logger.py]", "logger=mine", "preset=untrusted/mine.yaml"]
    (job,) = jobs(words)
    assert job.values["logger"] == {"mine": {}} and job.values["algo"]["gamma"] == 0.5


def test_preset_may_refer_to_its_own_values(untrusted: Path) -> None:
    file = untrusted / "mine.yaml"
    file.write_text("algo: {learning_rate: 0.01, optimizer_eps: '${algo.learning_rate}'}\n")
    (job,) = jobs(["algo=dqn", "env=CartPole", f"preset={file}"])
    assert job.values["algo"]["optimizer_eps"] == 0.01


def test_best_preset_of_a_sweep_with_a_preset_file_leads_to_no_other_file(untrusted: Path) -> None:
    first, second = untrusted / "first.yaml", untrusted / "second.yaml"
    first.write_text(preset_text([*WORDS, "preset=none"], VALUES, "best of 3 trials"))
    words = ["algo=dqn", "env=CartPole", f"preset={first}", "algo.buffer=prioritized", "algo.buffer.alpha=0.7"]
    second.write_text(preset_text(words, {"algo.epsilon.end": 0.03}, "best of 3 trials"))
    (job,) = jobs(["algo=dqn", "env=CartPole", f"preset={second}"])
    (expected,) = jobs([*words, "algo.epsilon.end=0.03"])
    assert job.values["algo"] == expected.values["algo"] and "first" not in second.read_text()


@pytest.mark.parametrize("place", ["", "./", "untrusted/../"])
def test_preset_file_with_the_name_of_another_preset_is_refused(place: str, untrusted: Path) -> None:
    Path("dqn-CartPole.yaml").write_text("algo: {gamma: 0.5}\n")
    with pytest.raises(ConfigError, match="has the name of a preset of rlrun or a plug-in, which comes first"):
        jobs(["algo=dqn", "env=CartPole", f"preset={place}dqn-CartPole.yaml"])


@pytest.mark.parametrize("words", [["algo=double_q_learning", "env=CliffWalking"], ["algo=dqn", "env=CartPole"]])
def test_file_of_the_current_folder_that_was_not_typed_is_no_preset(words: list[str], untrusted: Path) -> None:
    (expected,) = jobs(words)
    algo, env = (word.partition("=")[2] for word in words)
    Path(f"{algo}-{env}.yaml").write_text("algo: {gamma: 0.123}\ntrainer: {}\n")
    (job,) = jobs(words)
    assert job.values == expected.values


def test_preset_file_that_does_not_exist_has_one_line() -> None:
    with pytest.raises(ConfigError, match=r"preset=no/best.yaml: no such file"):
        jobs(["algo=dqn", "env=CartPole", "preset=no/best.yaml"])


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("_self_", True),
        ("/preset/sac-Pendulum", True),
        ("sac-Pendulum", False),
        ("/preset/unknown", False),
        ({"override /algo/buffer": "prioritized"}, True),
        ({"override /algo/buffer@algo.buffer": "prioritized"}, True),
        ({"override /network": "mlp"}, True),
        ({"override /trainer": "default"}, True),
        ({"override /algo/buffer@network.buffer": "prioritized"}, False),
        ({"override /algo": "sac"}, False),
        ({"override /env/wrappers": "atari"}, False),
        ({"override /algo/buffer@algo.buffer@env": "prioritized"}, False),
        ({"algo/buffer": "prioritized"}, False),
        ({"override /algo/buffer": "prioritized", "override /algo/loop": "offline"}, False),
        ({}, False),
        ({"override /algo/buffer": "prioritized/../own"}, False),
        ({"override /algo/buffer": ["prioritized"]}, False),
        ({"override /algo/buffer": None}, False),
        ({None: "prioritized"}, False),
        (["override /algo/buffer"], False),
        (None, False),
    ],
)
def test_entry_of_defaults_is_a_known_preset_or_a_part_by_its_name(entry: object, expected: bool) -> None:
    assert preset_files._is_default(entry, {"sac-Pendulum": Path("sac-Pendulum.yaml")}) is expected
