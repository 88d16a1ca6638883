"""Tasks of memory: solved with a recurrent network, by chance without one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from toys import Values, put, train

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.run.evaluation import evaluate

SETTINGS: Values = {
    "algo.minibatch_size": 256, "algo.learning_rate": 1e-3, "algo.epochs": 4, "algo.loop.rollout_steps": 128,
    "trainer.total_steps": 100_000,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "networks", "least", "most"),
    [
        ("ppo_lstm", "network=lstm", 0.95, 1.0),
        ("ppo_lstm", "network=gru", 0.95, 1.0),
        ("ppo_lstm", "network.critic.name=mlp", 0.95, 1.0),
        ("ppo", "network=compact", 0.3, 0.7),
    ],
)
def test_what_was_seen_ten_steps_ago_is_recalled(
    algo: str, networks: str, least: float, most: float, build: Callable[..., Loop]
) -> None:
    values = jobs([f"algo={algo}", "env=rlrun/ProbeRecall-v0", "preset=none", networks])[0].values
    loop = train(build(put(values, SETTINGS)), 60)
    assert least <= evaluate(loop.agent, loop.addons, loop.env, 64)["eval/return_mean"] <= most


OUT_OF_REPLAY: Values = {
    "algo.learning_rate": 1e-3, "algo.tau": 1.0, "algo.target_every": 100, "algo.epsilon.end_step": 9000,
    "algo.loop.batch_size": 32, "algo.loop.warmup_steps": 200, "algo.loop.updates_per_step": 0.05,
    "algo.buffer.capacity": 30_000, "env.num_envs": 8, "trainer.total_steps": 30_000,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "network", "least", "most"),
    [("r2d2", "lstm", 0.95, 1.0), ("dqn", "gru", 0.95, 1.0), ("dqn", "auto", 0.3, 0.7)],
)
def test_what_was_seen_ten_steps_ago_is_recalled_out_of_replay(
    algo: str, network: str, least: float, most: float, build: Callable[..., Loop]
) -> None:
    values = jobs([f"algo={algo}", "env=rlrun/ProbeRecall-v0", "preset=none", f"network={network}"])[0].values
    if network != "auto":
        values = put(values, {"network.sequence_length": 12, "network.burn_in": 0})
    loop = train(build(put(values, OUT_OF_REPLAY)), 1400)
    assert least <= evaluate(loop.agent, loop.addons, loop.env, 64)["eval/return_mean"] <= most


REPRESENTATION = ["algo.representation=predictive", "algo.representation.latent=16", "algo.representation.hidden=[64]"]
GRU = [
    "algo.representation.network=gru", "algo.representation.network.features=32",
    "algo.representation.network.hidden=[32]",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "least", "most"),
    [([*GRU, "algo.representation.network.sequence_length=12"], 0.95, 1.0), ([], 0.3, 0.7)],
)
def test_a_representation_with_memory_recalls_for_an_agent_without(
    network: list[str], least: float, most: float, build: Callable[..., Loop]
) -> None:
    words = ["algo=ppo", "env=Recall", "preset=none", *REPRESENTATION, "algo.representation.epochs=4", *network]
    loop = train(build(put(jobs(words)[0].values, SETTINGS)), 60)
    assert least <= evaluate(loop.agent, loop.addons, loop.env, 64)["eval/return_mean"] <= most


@pytest.mark.slow
def test_a_representation_with_memory_swings_a_pendulum_of_unknown_velocity_up(tmp_path: Path) -> None:
    words = ["algo=sac", "env=MaskedPendulum", "algo.loop.batch_size=64", *REPRESENTATION, *GRU]
    words += ["algo.representation.network.sequence_length=8", "trainer.total_steps=10000"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["best_return"] > -400


@pytest.mark.slow
def test_without_memory_a_pendulum_of_unknown_velocity_stays_down(tmp_path: Path) -> None:
    """Trains for as many steps as `recurrent_sac` needs to swing it up (test_thresholds.py)."""
    assert main(["train", "algo=sac", "env=MaskedPendulum", f"run_dir={tmp_path / 'run'}"]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["best_return"] < -700
