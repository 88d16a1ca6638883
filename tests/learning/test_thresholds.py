"""Returns that defaults and presets must reach, in full training runs."""

import json
from collections import Counter
from pathlib import Path

import pytest

from rlrun.cli import main

PROMISES = {
    "ppo CartPole": (100_000, 475.0),
    "ppo1 CartPole": (100_000, 475.0),
    "ppo2 CartPole": (100_000, 475.0),
    "ppo_critic_first CartPole": (100_000, 475.0),
    "ppg CartPole": (100_000, 475.0),
    "a2c CartPole": (200_000, 475.0),
    "a2c_split CartPole": (200_000, 475.0),
    "a2c_minibatch CartPole": (100_000, 400.0),
    "vpg CartPole": (200_000, 400.0),
    "svpg CartPole": (200_000, 475.0),
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
    "soft_q CartPole": (50_000, 450.0),
    "sac Pendulum": (20_000, -200.0),
    "recurrent_sac MaskedPendulum": (20_000, -250.0),
    "ppo_lstm Recall": (60_000, 0.95),
    "r2d2 MaskedCartPole": (40_000, 475.0),
    "td3 Pendulum": (10_000, -200.0),
    "ddpg Pendulum": (10_000, -200.0),
    "crossq Pendulum": (20_000, -200.0),  # critics of 256 units a layer, by the preset
    "redq Pendulum": (3_000, -200.0),
    "qr_sac Pendulum": (20_000, -200.0),
    "tqc Pendulum": (20_000, -200.0),
    "sac_hold Pendulum": (20_000, -250.0),
    "taac Pendulum": (20_000, -250.0),
    "taac_l Pendulum": (20_000, -250.0),
    "taac_q Pendulum": (20_000, -250.0),
    "sac HalfCheetah": (300_000, 7300.0),
    "td3 HalfCheetah": (300_000, 6500.0),
    "ppo Pendulum": (200_000, -250.0),
    "ppo Acrobot": (200_000, -100.0),
    "dqn Acrobot": (100_000, -100.0),
    "ppo LunarLander": (1_000_000, 200.0),
    "dqn LunarLander": (150_000, 190.0),
    "ppo MountainCarContinuous": (100_000, 90.0),
    "ppo PointMass": (2_000_000, -14.0),
    "ppo GridMaze": (1_500_000, 0.85),
    "ppo_rnd DeepSea": (60_000, 0.9),
    "ppo_icm DeepSea": (60_000, 0.9),
    "expected_sarsa CliffWalking": (50_000, -17.0),
    "cem CartPole": (200_000, 475.0),
    "cma_es CartPole": (100_000, 475.0),
    "openai_es CartPole": (500_000, 475.0),
    "muzero CartPole": (16_000, 450.0),
    "muzero TicTacToe": (250_000, 0.0),
}
SELF_PLAY = "muzero TicTacToe"
LEAST_HOLD = {"taac Pendulum": 1.2}  # mean number of timesteps for which trajectories are held, at the end


def learn(pair: str, run: Path) -> Path:
    """Trains a full run with the preset."""
    algo, env = pair.split()
    total, least = PROMISES[pair]
    words = [f"algo={algo}", f"env={env}", f"trainer.total_steps={total}", "trainer.eval_episodes=20"]
    assert main(["train", *words, "logger=[console]", f"run_dir={run}"]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert summary["step"] >= total and summary["final_return"] >= least
    if pair in LEAST_HOLD:
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        assert last["train/hold_length_smooth"] > LEAST_HOLD[pair]
    return run


@pytest.mark.slow
@pytest.mark.parametrize("pair", [pair for pair in PROMISES if pair != SELF_PLAY])
def test_an_algorithm_learns_what_its_preset_promises(pair: str, tmp_path: Path) -> None:
    learn(pair, tmp_path / "run")


@pytest.mark.slow
def test_who_learned_tic_tac_toe_by_itself_never_loses_to_a_player_who_never_errs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshots = learn(SELF_PLAY, tmp_path / "run") / "snapshots"
    last = snapshots / (snapshots / "LATEST").read_text().strip()
    for first in ("true", "false"):
        assert main(["eval", str(last), "episodes=200", f"env.kwargs.first={first}"]) == 0
        results = Counter(json.loads(capsys.readouterr().out.splitlines()[-1])["returns"])
        with capsys.disabled():
            print(f"first={first}: {results[1.0]} won, {results[0.0]} drawn, {results[-1.0]} lost of {results.total()}")
        assert results.total() == 200 and results[-1.0] == 0
