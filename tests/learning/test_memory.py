"""A task of memory: solved with an LSTM, by chance without one."""

from collections.abc import Callable

import pytest
from toys import Values, put, train

from rlrun.config.jobs import jobs
from rlrun.core.evaluation import evaluate
from rlrun.core.loop import Loop

SETTINGS: Values = {
    "algo.minibatch_size": 256, "algo.learning_rate": 1e-3, "algo.epochs": 4, "algo.loop.rollout_steps": 128,
    "trainer.total_steps": 100_000,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "network", "least", "most"),
    [("ppo_lstm", "lstm", 0.95, 1.0), ("ppo_lstm", "gru", 0.95, 1.0), ("ppo", "compact", 0.3, 0.7)],
)
def test_what_was_seen_ten_steps_ago_is_recalled(
    algo: str, network: str, least: float, most: float, build: Callable[..., Loop]
) -> None:
    values = jobs([f"algo={algo}", "env=rlrun/ProbeRecall-v0", "preset=none", f"network={network}"])[0].values
    loop = train(build(put(values, SETTINGS)), 60)
    assert least <= evaluate(loop.agent, loop.addons, loop.env, 64)["eval/return_mean"] <= most
