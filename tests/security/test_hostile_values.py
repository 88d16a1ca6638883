"""Malicious values in a stored config, with consistently forged snapshots, are refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlrun.cli import main
from rlrun.config import resumable
from rlrun.dotted import lookup

SMALL = ["algo=ppo", "env=CartPole", "preset=none", "env.num_envs=1", "network.hidden=[8]", "trainer.eval_episodes=1",
         "algo.loop.rollout_steps=10", "trainer.total_steps=20", "env.max_episode_steps=10",
         "logger=[console]"]  # fmt: skip

VALUES: list[dict[str, Any]] = [
    {"device": "cuda:99999999999999"},
    {"env.id": ":x"},
    {"env.id": "GymV26Environment-v0"},
    {"env.id": "HalfCheetah-v3"},
    {"env.id": "tabular/Blackjack-v0"},
    {"env.id": "phys2d/CartPole-v1"},
    {"env.id": "FrozenLake-v1", "env.kwargs": {"map_name": "evil"}},
    {"env.id": "\ud800"},
    {"env.task_kwargs": {"render_mode": [0.0, 1.0]}},
    {"algo.representation": "evil:x"},
    {"network.hidden": {"a": 1}},
    {"seed": 2**70},
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("original") / "run"
    assert main(["train", *SMALL, f"run_dir={run}"]) == 0
    return run


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_a_hostile_value_is_answered_in_one_line(
    values: dict[str, Any], original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = Path(shutil.copytree(original, tmp_path / "run"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        (lookup(section, config) if section else config)[name] = value
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(resumable, "check_unchanged", lambda run, then: None)
    for words in (["eval", str(run), "episodes=1"], ["resume", str(run), "total_steps=40"]):
        assert main(words) == 2, words
        printed = capsys.readouterr()
        assert len(printed.err.splitlines()) == 1 and printed.err.startswith("error: "), printed.err
    main(["report", str(run), f"out={tmp_path / 'out'}"])
    assert "\ud800" not in capsys.readouterr().out


@pytest.mark.parametrize("key", ["save_to", "supplementary"])
def test_folders_that_a_stored_run_writes_or_searches_must_be_typed_again(
    key: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = Path(shutil.copytree(original, tmp_path / "run"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["algo"]["buffer"] = {"name": "demos", key: "elsewhere"}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(resumable, "check_unchanged", lambda run, then: None)
    for words in (["resume", str(run), "total_steps=40"], ["reset", str(run), f"into={tmp_path / 'new'}"]):
        monkeypatch.setattr("rlrun.run.lifecycle.check_ranges", lambda config: None)
        assert main(words) == 2
        line = f"algo.buffer.{key}: reads or writes data sets; if you trust it, add algo.buffer.{key}=elsewhere\n"
        assert capsys.readouterr().err == f"error: {line}"
        main([*words, f"algo.buffer.{key}=elsewhere"])
        assert line not in capsys.readouterr().err


@pytest.mark.parametrize("key", ["env.ray.address", "cluster.address"])
def test_addresses_of_clusters_in_a_stored_run_must_be_typed_again(
    key: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = Path(shutil.copytree(original, tmp_path / "run"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    cluster = {"name": "ray", "address": "evil:6379", "workers": None, "cpus": 1, "on_lost": "fail", "state_every": 9}
    if key == "cluster.address":
        config["cluster"] = cluster
    else:
        config["env"]["ray"]["address"] = "evil:6379"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(resumable, "check_unchanged", lambda run, then: None)
    line = f"{key}: connects to a Ray cluster, which can run code in this process; if you trust it, add {key}=evil:6379"
    for words in (["resume", str(run), "total_steps=40"], ["reset", str(run), f"into={tmp_path / 'new'}"]):
        assert main(words) == 2
        assert capsys.readouterr().err == f"error: {line}\n"
        main([*words, f"{key}=evil:6379"])
        assert line not in capsys.readouterr().err
