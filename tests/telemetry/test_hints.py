"""The hint about the bottleneck of a run names something that was not tried yet, or there is no hint."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.telemetry.hints import hint, settings, start_hint


@pytest.mark.parametrize(
    ("words", "share", "speed", "cuda", "said"),
    [
        (["env.num_envs=1"], {"env": 0.61}, 10_000, False, "61% of the time: try env.num_envs=8"),
        (["env.num_envs=1"], {"env": 0.6}, 600, False, "try env.num_envs=8 env.backend=async"),
        (["env.num_envs=8"], {"env": 0.6}, 600, False, "try env.backend=async"),
        (["env.num_envs=8", "env.backend=async"], {"env": 0.6}, 600, False, None),
        (["env.num_envs=8"], {"env": 0.6}, 10_000, False, None),
        ([], {"env": 0.3, "update": 0.45}, 100, False, None),
        ([], {"env": 0.3, "update": 0.55}, 100, False, "updates took 55% of the time: try trainer.engine=compile"),
        (["device=cpu"], {"env": 0.3, "update": 0.55}, 100, True, "try device=cuda"),
        (["trainer.engine=compile", "trainer.threads=2"], {"update": 0.9}, 100, False, None),
        ([], {}, 0, False, None),
    ],
)
def test_hint_names_the_bottleneck_and_a_setting(
    words: list[str],
    share: dict[str, float],
    speed: float,
    cuda: bool,
    said: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr("rlrun.telemetry.hints.idle_cores", lambda: 1.0)
    config = run_config(jobs(["algo=ppo", "env=CartPole", "preset=none", *words])[0].values)
    times: dict[str, Any] = {f"time/share_{name}": value for name, value in share.items()}
    line = hint({"status": "done", "wall_s": 100.0}, times | {"time/steps_per_s": speed}, config)
    assert line is said if said is None else line is not None and line.endswith(said)
    assert hint({"status": "stopped", "wall_s": 100.0}, times, config) is None
    assert hint({"status": "done", "wall_s": 10.0}, times, config) is None


@pytest.mark.parametrize(
    ("words", "load", "said"),
    [
        (["trainer.engine=compile"], 1.0, ["trainer.threads=2"]),
        (["trainer.engine=compile"], 1.9, []),
        (["trainer.threads=2"], 2.1, ["trainer.engine=compile"]),
        (["trainer.threads=2"], 3.0, ["trainer.threads=1"]),
        (["trainer.threads=1"], 3.0, ["trainer.engine=compile"]),
    ],
)
def test_hint_about_threads_depends_on_idle_cores(
    words: list[str], load: float, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (9.0, load, 9.0))
    config = run_config(jobs(["algo=sac", "env=Pendulum", "preset=none", "device=cpu", *words])[0].values)
    assert settings("update", 1.0, config) == said


def test_start_hint_is_given_before_runs_that_learn_at_most_once(tmp_path: Path, capsys: Any) -> None:
    setting = "algo.loop.rollout_steps=8"
    line = f"{setting}: the first update comes after 32 steps and the run ends after 32, so the agent learns once or "
    assert start_hint(setting, 31, 32) is None and str(start_hint(setting, 32, 32)).startswith(line)
    words = ["algo=ppo", "env=CartPole", "preset=none", "env.num_envs=4", setting, "algo.minibatch_size=16"]
    words += ["trainer.eval_episodes=0", "env.selftest=off", "logger=[console]"]
    for total, shown in ((32, 1), (33, 0)):
        assert main(["train", *words, f"trainer.total_steps={total}", f"run_dir={tmp_path / str(total)}"]) == 0
        assert capsys.readouterr().out.count(line) == shown
    words = ["algo=sac", "env=Pendulum", "preset=none", "trainer.eval_episodes=0", "env.selftest=off"]
    words += ["logger=[console]", "algo.loop.warmup_steps=8", "algo.loop.batch_size=4"]
    for total, shown in ((8, 1), (9, 0)):
        assert main(["train", *words, f"trainer.total_steps={total}", f"run_dir={tmp_path / f'sac{total}'}"]) == 0
        assert capsys.readouterr().out.count("algo.loop.warmup_steps=8: the first update comes after 8 steps") == shown
