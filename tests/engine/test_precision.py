"""trainer.precision=bf16 on a CPU: losses beside those of fp32, of one update from equal weights and batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop

Build = Callable[..., Loop]
SMALL = {
    "ppo": {"env.num_envs": 4, "algo.loop.rollout_steps": 64, "algo.epochs": 1, "algo.minibatch_size": None},
    "sac": {"env.num_envs": 4, "algo.loop.warmup_steps": 256, "algo.buffer.capacity": 512, "trainer.total_steps": 1000},
    "dqn": {"env.num_envs": 4, "algo.loop.warmup_steps": 256, "algo.buffer.capacity": 512, "trainer.total_steps": 1000},
}
CLOSE = {"loss/critic": {"rtol": 0.01, "atol": 0.0}, "loss/actor": {"rtol": 0.01, "atol": 1e-3}}


@pytest.mark.parametrize(("algo", "env"), [("ppo", "CartPole"), ("sac", "Pendulum"), ("dqn", "CartPole")])
def test_bf16_losses_are_close_to_those_of_fp32(algo: str, env: str, build: Build) -> None:
    """bf16 has the exponents of fp32, so losses need no scaling."""
    values = put(jobs([f"algo={algo}", f"env={env}", "preset=none"])[0].values, SMALL[algo])
    plain, low = (build(put(values, {"trainer.precision": precision})) for precision in ("fp32", "bf16"))
    if algo == "ppo":
        batch = plain.collect_rollout()  # type: ignore[attr-defined]
    else:
        while plain.steps < 256:
            plain.tick()
        batch = plain.buffer.sample(256)
    low.agent.load_state_dict(plain.agent.state_dict())
    found: list[Any] = []
    for loop in (plain, low):
        metrics, _ = loop.learn(batch, loop.context())
        found.append(metrics)
        assert {param.dtype for param in loop.agent.parameters()} == {torch.float32}
    compared = CLOSE.keys() & found[0].keys()
    assert "loss/critic" in compared
    for key in compared:
        assert not torch.equal(found[0][key], found[1][key]), "bf16 rounds"
        torch.testing.assert_close(found[1][key], found[0][key], **CLOSE[key])
