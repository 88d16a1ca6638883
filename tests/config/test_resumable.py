"""Only comments and the order of keys may differ between a run's files and its snapshot."""

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlrun.cli import main
from rlrun.config.resumable import changed, folded, setting
from rlrun.config.stored import config_text, read_config
from rlrun.dotted import leaves
from rlrun.errors import ConfigError
from rlrun.formats import history
from rlrun.formats.history import FORMAT
from rlrun.snapshot.store import Store
from rlrun.telemetry.metrics import MetricsFile, WrittenRows

WORDS = ["algo=ppo", "env=CartPole", "env.num_envs=1", "preset=none", "network.hidden=[8]", "trainer.log_every=10",
         "algo.loop.rollout_steps=10", "trainer.eval_episodes=1", "logger=[]"]  # fmt: skip

Out = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", *WORDS, "trainer.total_steps=40", f"run_dir={run}"]) == 0
    return run


@pytest.fixture
def write(finished: Path) -> Any:
    """`write(name, text)` replaces the text of a run's file until the test ends."""
    before = {name: (finished / name).read_bytes() for name in ("config.yaml", "overrides.yaml", "metrics.jsonl")}

    def one(name: str, text: str) -> None:
        (finished / name).write_text(text)

    yield one
    for name, content in before.items():
        (finished / name).write_bytes(content)


def mutated(value: Any, draw: random.Random) -> Any:
    """Returns another value of the same type, or sometimes of another type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice([value + 1, value * 2 + 1, float(value), value ^ 4])
    if isinstance(value, float):
        return draw.choice([value * 2 + 1, value + 1e-9, -value - 1])
    if isinstance(value, str):
        return draw.choice([value + "x", value[1:] or "y", value.upper() + "z"])
    if isinstance(value, list):
        return [*value, 1]
    return draw.choice([1, "x", True])


def put(values: dict[str, Any], key: str, value: Any) -> None:
    *sections, name = key.split(".")
    for part in sections:
        values = values[part]
    values[name] = value


def shuffled(values: Any, draw: random.Random) -> Any:
    if not isinstance(values, dict):
        return values
    keys = draw.sample(list(values), len(values))
    return {key: shuffled(values[key], draw) for key in keys}


@pytest.mark.parametrize("seed", range(120))
def test_resume_notices_every_changed_value_of_the_config(seed: int, finished: Path, write: Any, capsys: Out) -> None:
    draw = random.Random(seed)
    values = yaml.safe_load((finished / "config.yaml").read_text())
    key, value = draw.choice([pair for pair in leaves(values) if pair[0] != "format"])
    put(values, key, mutated(value, draw))
    write("config.yaml", yaml.safe_dump(values, sort_keys=False))
    assert main(["resume", str(finished)]) == 2
    assert str(finished / "config.yaml") in (printed := capsys.readouterr().err) or key in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("seed", range(30))
def test_resume_notices_every_change_of_the_overrides(seed: int, finished: Path, write: Any, capsys: Out) -> None:
    draw = random.Random(seed)
    words = yaml.safe_load((finished / "overrides.yaml").read_text())
    place = draw.randrange(len(words))
    changes: list[Callable[[], object]] = [
        lambda: words.pop(place),
        lambda: words.insert(place, "algo.gamma=0.5"),
        lambda: words.append("algo.gamma=0.5"),
        lambda: words.__setitem__(place, words[place] + "0"),
    ]
    draw.choice(changes)()
    write("overrides.yaml", yaml.safe_dump(words))
    assert main(["resume", str(finished)]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(50))
def test_resume_ignores_comments_and_the_order_of_keys(seed: int, finished: Path, write: Any, capsys: Out) -> None:
    draw = random.Random(seed)
    values = shuffled(yaml.safe_load((finished / "config.yaml").read_text()), draw)
    lines = yaml.safe_dump(values, sort_keys=False).splitlines()
    lines = [line + " # a comment" * draw.randrange(2) for line in lines]
    lines.insert(draw.randrange(len(lines)), "# another")
    write("config.yaml", "\n".join(lines) + "\n")
    write("overrides.yaml", "# mine\n" + (finished / "overrides.yaml").read_text())
    assert main(["resume", str(finished)]) == 0
    assert "is finished" in capsys.readouterr().out


def test_resume_names_the_key_with_both_values(finished: Path, write: Any, capsys: Out) -> None:
    text = (finished / "config.yaml").read_text()
    write("config.yaml", text.replace("gamma: 0.99", "gamma: 0.5"))
    assert main(["resume", str(finished), "total_steps=80"]) == 2
    assert f"{finished / 'config.yaml'}: was edited: algo.gamma 0.99 -> 0.5" in capsys.readouterr().err
    assert main(["eval", str(finished), "episodes=1"]) == 2
    assert "algo.gamma 0.99 -> 0.5" in capsys.readouterr().err


def test_resume_refuses_another_format_of_metric_keys(
    finished: Path, write: Any, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "FIRST", FORMAT - 1)
    monkeypatch.setattr(history, "CHANGES", (history.FormatChange(),))
    text = (finished / "config.yaml").read_text()
    head, _, rest = text.partition("\n")
    write("config.yaml", f"{head}\nmetrics_format: {FORMAT - 1}\n{rest}")
    assert main(["resume", str(finished), "total_steps=80"]) == 2
    assert f"was edited: metrics_format {FORMAT} -> {FORMAT - 1}; put it back" in capsys.readouterr().err


def test_resume_refuses_a_config_that_was_cut_off(finished: Path, write: Any, capsys: Out) -> None:
    text = (finished / "config.yaml").read_text()
    for place in range(0, len(text), 97):
        write("config.yaml", text[:place])
        assert main(["resume", str(finished), "total_steps=80"]) == 2
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(25))
def test_resume_notices_every_changed_value_of_the_rows(seed: int, finished: Path, tmp_path: Path) -> None:
    draw, header = random.Random(seed), Store(finished).load().header
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    row = draw.choice(rows)
    key = draw.choice([key for key in row if key not in ("step", "wall_s")])
    row[key] = mutated(row[key], draw)
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    metrics = MetricsFile(tmp_path / "metrics.jsonl", header["step"], WrittenRows(**header["metrics"]))
    metrics.close()
    assert "its rows have changed since the snapshot" in metrics.fault


def test_resume_goes_on_after_changes_that_were_typed(tmp_path: Path, capsys: Out) -> None:
    run = tmp_path / "run"
    assert main(["train", *WORDS, "trainer.total_steps=40", f"run_dir={run}"]) == 0
    changes = ["total_steps=80", "logger.console=false", "trainer.threads=1", "trainer.snapshot_every=0"]
    assert main(["resume", str(run), *changes]) == 0
    assert main(["resume", str(run), "trainer.threads=null", "total_steps=120"]) == 0
    assert json.loads((run / "summary.json").read_text())["step"] == 120
    words = yaml.safe_load((run / "overrides.yaml").read_text())
    assert {*words[-2:]} == {"trainer.threads=null", "trainer.total_steps=120"}
    header = Store(run).load().header
    assert header["config"] == (run / "config.yaml").read_text()
    branch = tmp_path / "branch"
    assert main(["resume", str(run), "total_steps=160", f"into={branch}"]) == 0
    assert main(["resume", str(branch), "total_steps=200"]) == 0
    assert "not exact" not in capsys.readouterr().out


def test_resume_goes_on_after_a_typed_change_although_no_snapshot_followed(tmp_path: Path) -> None:
    """The run was killed right after `rlrun resume RUN total_steps=80 ...` of an earlier version had recorded it."""
    run = tmp_path / "run"
    assert main(["train", *WORDS, "trainer.total_steps=40", f"run_dir={run}"]) == 0
    values = read_config(run / "config.yaml")
    values["trainer"]["total_steps"] = 80
    values["logger"] = {"tensorboard": {}}
    words = yaml.safe_load((run / "overrides.yaml").read_text())
    (run / "config.yaml").write_text(config_text(values))
    (run / "overrides.yaml").write_text(yaml.safe_dump([*words, "trainer.total_steps=80", "logger.tensorboard=true"]))
    assert main(["resume", str(run)]) == 0
    assert json.loads((run / "summary.json").read_text())["step"] == 80


BOMB = (
    "[&a [x,x,x,x,x,x,x,x,x,x]"
    + "".join(f",&{name} [{','.join([f'*{last}'] * 10)}]" for last, name in pairwise("abcdefgh"))
    + "]"
)


@pytest.mark.parametrize(
    "value", ["2020-13-45", "!!timestamp x", "!!bool x", "&a [*a]", "[" * 3000, BOMB, "{1: {2: 3}}"]
)
@pytest.mark.parametrize("key", ["trainer.stop_at", "device", "logger"])
def test_added_words_of_any_form_are_refused_without_a_traceback(
    key: str, value: str, finished: Path, write: Any, capsys: Out
) -> None:
    words = yaml.safe_load((finished / "overrides.yaml").read_text())
    write("overrides.yaml", yaml.safe_dump([*words, f"{key}={value}"]))
    assert main(["eval", str(finished), "episodes=1"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(line.startswith("error: ") for line in lines)


@pytest.mark.parametrize("value", ["5", "true", "null", "2020-01-01"])
def test_an_added_list_of_loggers_that_is_none_is_refused(value: str, finished: Path, write: Any, capsys: Out) -> None:
    words = yaml.safe_load((finished / "overrides.yaml").read_text())
    write("overrides.yaml", yaml.safe_dump([*words, f"logger={value}"]))
    assert main(["eval", str(finished), "episodes=1"]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["lost", "emptied", "deleted", "value", "letters", "order"])
def test_resume_is_not_exact_where_rows_of_metrics_were_changed(damage: str, tmp_path: Path, capsys: Out) -> None:
    run = tmp_path / "run"
    assert main(["train", *WORDS[:-1], "trainer.total_steps=40", f"run_dir={run}"]) == 0
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert len(rows) == 4
    texts = {
        "lost": "".join(rows[:1] + rows[2:]),
        "emptied": "",
        "value": "".join(rows).replace('"train/episodes": ', '"train/episodes": 1', 1),
        "letters": "".join(rows).replace('"train/episodes": ', '"train/episodes": "x", "y": ', 1),
        "order": "".join([rows[1], rows[0], *rows[2:]]),
    }
    (run / "metrics.jsonl").unlink()
    if damage != "deleted":
        (run / "metrics.jsonl").write_text(texts[damage])
    assert main(["resume", str(run), "total_steps=80"]) == 0
    printed = capsys.readouterr().out
    assert "not exact, because metrics.jsonl" in printed
    kept = {"lost": 3, "emptied": 0, "deleted": 0, "letters": 3}.get(damage, 4)
    assert ("rows have changed" in printed) == (kept == 4)
    assert len((run / "metrics.jsonl").read_text().splitlines()) == kept + 4
    assert main(["resume", str(run), "total_steps=120"]) == 0
    assert ", exact" in capsys.readouterr().out, "from here on the rows are known again"


def test_section_that_a_stored_config_lacks_is_one_fault() -> None:
    with pytest.raises(ConfigError) as refused:
        changed({"algo": {}}, {"trainer.total_steps": 72, "trainer.stop_at": None})
    assert refused.value.faults == ("trainer: missing",)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("algo.schedule={learning_rate: {piecewise: {values: [1e-05], at: [100]}}}",
         {"learning_rate": {"piecewise": {"values": [1e-05], "at": [100]}}}),
        ("algo.betas=[1e-1,'1e-1']", [0.1, "1e-1"]),
        ("trainer.total_steps=1e6", 1_000_000),
        ("name=a", "a"),
    ],
)  # fmt: skip
def test_numbers_without_a_point_are_numbers_in_lists_too(word: str, value: Any) -> None:
    assert setting(word) == (word.partition("=")[0], value)


def test_words_of_a_resume_about_the_cluster_become_its_section() -> None:
    stored: dict[str, Any] = {"cluster": {"name": "local", "workers": 3}, "logger": {}}
    assert folded({"device": "cpu"}, stored) == {"device": "cpu"}
    assert folded({"cluster": "none"}, stored) == {"cluster": {"name": "none"}}
    defaults = {"on_lost": "repeat", "state_every": 100}
    changed = {"cluster": {"name": "local", "workers": 1}}
    assert folded({"cluster": "local", "cluster.workers": 1}, stored) == {"cluster": changed["cluster"] | defaults}
    assert folded({"cluster.workers": 1.0}, stored) == changed
    assert stored["cluster"]["workers"] == 3
    with pytest.raises(ConfigError, match="cluster=lokal: unknown name; did you mean local"):
        folded({"cluster": "lokal"}, stored)
    with pytest.raises(ConfigError, match=r"cluster\.workers: unknown key"):
        folded({"cluster.workers": 1}, {"cluster": {"name": "none"}})
