"""The number of multiplications of an update is hardly above what its equations need.

Updates must not compute gradients that are not used: of critics' weights in the update of the actor, of observations,
and of members of an ensemble that are not evaluated.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from torch.utils.flop_counter import FlopCounterMode

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop

BATCH, OBS, ACTIONS, WIDTH = 256, 17, 6, 128
WORDS = [
    "env=HalfCheetah", "preset=none", "trainer.engine=eager", f"network.hidden=[{WIDTH},{WIDTH}]",
    f"algo.loop.batch_size={BATCH}", f"algo.loop.warmup_steps={BATCH}", "algo.buffer.capacity=300",
]  # fmt: skip


def net(inputs: int, outputs: int) -> list[int]:
    """Returns the multiplications of every layer for one row."""
    return [i * o for i, o in pairwise((inputs, WIDTH, WIDTH, outputs))]


def forward(layers: list[int]) -> int:
    return sum(layers)


def backward(layers: list[int]) -> int:
    """Returns multiplications of gradients of the weights of all layers, and of the inputs of all but the first."""
    return sum(layers) + sum(layers[1:])


def through(layers: list[int], wanted: int) -> int:
    """Returns multiplications of gradients of `wanted` inputs, without gradients of the weights."""
    return sum(layers[1:]) + wanted * WIDTH


GAUSSIAN, POLICY, CRITIC = net(OBS, 2 * ACTIONS), net(OBS, ACTIONS), net(OBS + ACTIONS, 1)
ACTED = forward(CRITIC) + through(CRITIC, ACTIONS)  # a critic's value of the policy's action, and its gradient

NEEDED = {
    # critics: next action, target critics, all members; actor: its action, values of the members, backward
    "sac": forward(GAUSSIAN) + 2 * (2 * forward(CRITIC) + backward(CRITIC))
    + forward(GAUSSIAN) + 2 * ACTED + backward(GAUSSIAN),
    "redq": forward(GAUSSIAN) + 2 * forward(CRITIC) + 10 * (forward(CRITIC) + backward(CRITIC))
    + forward(GAUSSIAN) + 10 * ACTED + backward(GAUSSIAN),
    "td3": forward(POLICY) + 2 * (2 * forward(CRITIC) + backward(CRITIC))
    + forward(POLICY) + ACTED + backward(POLICY),
    "ddpg": forward(POLICY) + 2 * forward(CRITIC) + backward(CRITIC) + forward(POLICY) + ACTED + backward(POLICY),
}  # fmt: skip


@pytest.mark.parametrize("algo", NEEDED)
def test_update_does_only_the_matrix_products_of_its_equations(algo: str, build: Callable[..., Loop]) -> None:
    loop: Any = build(jobs([f"algo={algo}", *WORDS, "algo.policy_delay=1"])[0].values)
    while len(loop.buffer) < BATCH:
        loop.tick()
    batch, ctx = loop.buffer.sample(BATCH), loop.context(loop.buffer)
    with FlopCounterMode(display=False) as counted:
        loop.agent.update(batch, ctx)
    assert 0.9 * NEEDED[algo] < counted.get_total_flops() / (2 * BATCH) <= 1.05 * NEEDED[algo]
