"""Runs of an older time: their configs lack keys that have come since."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.resumable import completed

WORDS = ["algo=dqn", "env=CartPole", "algo.epsilon=exponential", "algo.gamma=0.9"]


def test_keys_that_came_since_are_taken_from_todays_files() -> None:
    (job,) = jobs(WORDS)
    old = copy.deepcopy(job.values)
    del old["algo"]["loop"]["warmup_policy"], old["env"]["on_failure"], old["algo"]["epsilon"]["steps"]
    old["env"]["kwargs"] = {"own": 1}
    filled = completed(old, WORDS)
    assert filled["algo"]["loop"] == job.values["algo"]["loop"] and filled["env"]["on_failure"] == "raise"
    assert filled["algo"]["gamma"] == 0.9 and filled["env"]["kwargs"] == {"own": 1}
    assert filled["algo"]["epsilon"] == {key: old["algo"]["epsilon"][key] for key in ("name", "start", "end")}


@pytest.mark.parametrize("words", [[], ["algo=no_such"], ["algo=dqn", "plugins=[os]"], ["branched from elsewhere"]])
def test_where_nothing_can_be_said_nothing_is_added(words: list[str]) -> None:
    assert completed({"algo": {"name": "dqn"}}, words) == {"algo": {"name": "dqn"}}


def test_an_older_run_goes_on_and_is_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    small = ["preset=none", "network.hidden=[8]", "algo.loop.rollout_steps=10", "trainer.eval_episodes=1"]
    words = ["algo=ppo", "env=CartPole", *small, "trainer.total_steps=80", "logger.tensorboard=false"]
    assert main(["train", *words, f"run_dir={run}"]) == 0
    config = yaml.safe_load((run / "config.yaml").read_text())
    del config["algo"]["loop"]["lag"], config["algo"]["clip_range_end"], config["env"]["task_kwargs"]
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["resume", str(run), "total_steps=160"]) == 0
    assert json.loads((run / "summary.json").read_text())["step"] == 160
    assert main(["eval", str(run), "episodes=1"]) == 0
    assert ", exact" in capsys.readouterr().out
