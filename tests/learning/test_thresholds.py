"""What the defaults and presets promise, trained in full."""

import json
from pathlib import Path

import pytest

from rlrun.cli import main

PROMISES = {
    "ppo CartPole": (100_000, 475.0),
    "ppo1 CartPole": (100_000, 475.0),
    "ppo2 CartPole": (100_000, 475.0),
    "ppo_critic_first CartPole": (100_000, 475.0),
    "a2c CartPole": (200_000, 475.0),
    "vpg CartPole": (200_000, 400.0),
    "vtrace CartPole": (200_000, 475.0),
    "dqn CartPole": (50_000, 475.0),
    "double_dqn CartPole": (50_000, 475.0),
    "dueling_dqn CartPole": (50_000, 475.0),
    "prioritized_dqn CartPole": (50_000, 475.0),
    "noisy_dqn CartPole": (50_000, 475.0),
    "c51 CartPole": (50_000, 475.0),
    "qr_dqn CartPole": (50_000, 475.0),
    "rainbow CartPole": (50_000, 475.0),
    "discrete_sac CartPole": (50_000, 475.0),
    "sac Pendulum": (20_000, -220.0),
    "td3 Pendulum": (10_000, -200.0),
    "ddpg Pendulum": (10_000, -200.0),
    "redq Pendulum": (3_000, -200.0),
    "ppo Pendulum": (200_000, -250.0),
    "cem CartPole": (200_000, 475.0),
    "cma_es CartPole": (100_000, 475.0),
    "openai_es CartPole": (500_000, 475.0),
    "muzero CartPole": (16_000, 450.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("pair", PROMISES)
def test_an_algorithm_learns_what_its_preset_promises(pair: str, tmp_path: Path) -> None:
    algo, env = pair.split()
    total, least = PROMISES[pair]
    words = [f"algo={algo}", f"env={env}", f"trainer.total_steps={total}", "trainer.eval_episodes=20"]
    assert main(["train", *words, "logger.tensorboard=false", f"run_dir={tmp_path / 'run'}"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["step"] >= total and summary["final_return"] >= least
