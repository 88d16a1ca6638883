"""Compares an exported policy with the agent that it was made from, in the environment of the agent."""

from typing import Any

import numpy as np
import torch

from rlrun.core.previous import of_step
from rlrun.envs.stepping.actions import values
from rlrun.errors import ConfigError
from rlrun.export.formats import Act, Arrays
from rlrun.export.program import NEXT_STATE, STATE, PolicyProgram
from rlrun.types import Batch, carried

OBSERVATIONS = 1000
TOLERANCE = 1e-5  # largest difference of a continuous action; relative if the action is larger than 1


@torch.no_grad()
def compare(policy: PolicyProgram, exported: Act, env: Any) -> float:
    """Returns the largest difference between an exported policy and its agent, over 1,000 observations or a few more.

    The agent acts in `env` without exploration, and the exported policy on the same observations. Raises ConfigError
    if a continuous action differs by more than TOLERANCE, or a discrete action at all.
    """
    agent, addons = policy.parts
    obs = env.reset()
    carry: Batch = {"first": torch.ones(env.num_envs, dtype=torch.bool, device=env.device)}
    state = arrays(policy.first_state(env.num_envs))
    largest = 0.0
    different = 0
    count = 0
    while count < OBSERVATIONS:
        action, extras = addons.act(agent, obs, carry, False)
        native = env.actions.to_native(env.actions.clip(action.cpu().numpy()))
        inputs = arrays(policy.inputs(obs)) | state
        outputs = exported(inputs)
        alone = {}  # the outputs for the first row alone, because the program must accept any batch size
        if count == 0:
            alone = exported({name: value[:1] for name, value in inputs.items()})
        differs = np.zeros(env.num_envs, bool)
        for name, expected in zip(policy.native.columns, values(env.actions.native, native), strict=True):
            found = outputs[name]
            check_form(found, expected)
            if alone:
                check_form(alone[name], expected[:1])
            difference = np.abs(found.astype(np.float64) - expected.astype(np.float64)).reshape(env.num_envs, -1)
            allowed = tolerance(expected).reshape(env.num_envs, -1)
            differs |= (~(difference <= allowed)).any(1)
            largest = max(largest, float(difference.max(initial=0)))
        different += int(differs.sum())
        count += env.num_envs
        step, _ = env.step(action)
        ended = step["terminated"] | step["truncated"]
        obs = step["following"]
        carry = carried(extras | of_step(step, addons.reads_previous), ended)
        state = next_state(outputs, ended.cpu().numpy())
    if different:
        raise ConfigError(
            f"export: the exported policy differs from the agent in {different:,} of {count:,} observations "
            f"(by up to {largest:.2g}); nothing was written"
        )
    return largest


def tolerance(expected: np.ndarray) -> np.ndarray:
    """Returns the largest allowed difference from each entry of the expected actions."""
    if expected.dtype.kind != "f":
        return np.zeros(expected.shape)
    return TOLERANCE * np.maximum(1, np.abs(expected.astype(np.float64)))


def check_form(found: np.ndarray, expected: np.ndarray) -> None:
    """Raises ConfigError if actions do not have the shape and dtype of the expected actions."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise ConfigError(
            f"export: the exported policy returns actions {found.dtype} {list(found.shape)}, the agent "
            f"{expected.dtype} {list(expected.shape)}; nothing was written"
        )


def arrays(tensors: Batch) -> Arrays:
    """Returns tensors as arrays."""
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def next_state(outputs: Arrays, ended: np.ndarray) -> Arrays:
    """Returns the recurrent state for the next step, which is 0 in rows whose episode ended."""
    state = {}
    for name, value in outputs.items():
        if name.startswith(NEXT_STATE):
            is_kept = ~ended.reshape(-1, *[1] * (value.ndim - 1))
            state[STATE + name.removeprefix(NEXT_STATE)] = value * is_kept
    return state
