"""Tuples and action masks, from the environment to tensors, buffers and snapshots."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from toys import equal, toy

from rlrun.core.loop import Loop
from rlrun.envs.builtin.probe_spaces import OBSERVATIONS
from rlrun.envs.obs_adapter import adapt_observations, as_tensors
from rlrun.envs.vector import VectorEnv
from rlrun.errors import ConfigError, RunError
from rlrun.types import MASK

Make = Callable[..., VectorEnv]
PROBE = "rlrun/ProbeSpaces-v0"


def test_tuple_observations_become_dicts_keyed_by_position(make_env: Make) -> None:
    env = make_env(PROBE, 2, kwargs={"observation": "tuple"})
    assert env.spec.obs["0"] == spaces.Discrete(2) and [*env.spec.obs["1"]] == ["0", "1"]
    obs = env.reset()
    bit = obs["0"]
    assert obs["1"]["0"].tolist() == [[2 * b - 1] * 2 for b in bit.tolist()]
    assert (obs["1"]["1"] == 255 * bit.view(2, 1, 1, 1)).all()
    assert obs["1"]["1"].dtype == torch.uint8


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_observations_without_a_fixed_shape_are_refused_in_one_line(space: spaces.Space) -> None:
    name = type(space).__name__
    with pytest.raises(ConfigError, match=f"^env: {name} observations are not supported: .* returns a Box") as error:
        as_tensors(space)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=rf"{name} observations .*; env.wrappers.hide.entries=\[task\] leaves this"):
        as_tensors(spaces.Dict({"at": spaces.Discrete(5), "task": space}))


def test_final_obs_of_a_tuple_observation_is_the_true_successor(make_env: Make) -> None:
    env = make_env("Blackjack-v1", 1)
    env.reset()
    while not (step := env.step(torch.ones(1, dtype=torch.int64))).terminated.any():
        pass
    assert step.final_obs["0"] > 21 >= step.obs["0"], "bust, and a new hand"


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_every_observation_space_is_stepped_and_restored_from_a_snapshot(
    make_env: Make, observation: str, backend: str
) -> None:
    given = {"kwargs": {"observation": observation, "masks": "info"}, "backend": backend}
    env, other = make_env(PROBE, 2, **given), make_env(PROBE, 2, seed=1, **given)
    assert env.method == other.method == "native"
    env.reset()
    other.reset()
    other.load_state_dict(env.state_dict())
    assert equal(env.obs, other.obs)
    for _ in range(3):
        action = env.obs[MASK].argmax(-1)
        step, same = env.step(action), other.step(action)
        assert equal([step.obs, step.reward, step.final_obs], [same.obs, same.reward, same.final_obs])


@pytest.mark.parametrize("masks", ["info", "obs"])
@pytest.mark.parametrize(
    ("action", "forbidden"),
    [("discrete", 1), ("multi_discrete", 2), ("multi_binary", None)],
)
def test_action_masks_from_info_or_obs_have_one_entry_per_choice(
    make_env: Make, masks: str, action: str, forbidden: int | None
) -> None:
    if (masks, action) == ("obs", "multi_binary"):
        pytest.skip("the probe shows masks of bits in its infos alone")
    env = make_env(PROBE, 3, kwargs={"action": action, "masks": masks})
    obs = env.reset()
    assert obs.keys() == {"seen" if masks == "obs" else "obs", MASK}
    if forbidden is None:  # bits that must be 0
        bit = (obs["obs"][:, 0] > 0).long()
        assert obs[MASK].tolist() == [[1, b, 1, b] for b in bit.tolist()]
    else:
        assert (obs[MASK] == 0).sum(-1).tolist() == [forbidden] * 3


def test_probe_raises_at_an_action_that_its_mask_forbids(make_env: Make) -> None:
    env = make_env(PROBE, 1, kwargs={"masks": "info"})
    obs = env.reset()
    with pytest.raises(RunError, match="forbidden"):
        env.step(obs[MASK].argmin(-1))


class WrongMask(gym.Env):
    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {MASK: np.ones(5, np.int8)}


def test_action_mask_of_the_wrong_size_raises() -> None:
    with pytest.raises(ValueError, match=r"action_mask has 5 entries, Discrete\(2\) has 2 choices"):
        adapt_observations(WrongMask(), masked=True).reset()


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_replay_buffer_returns_every_observation_space(build: Callable[..., Loop], observation: str) -> None:
    probe = {"env.id": PROBE, "env.kwargs": {"observation": observation, "masks": "info"}}
    loop = build(toy("dqn", **probe, **{"algo.buffer.capacity": 16}))
    kept = []
    for _ in range(4):
        before = loop.obs
        loop.tick()
        kept.append(before)
    for row in range(3):
        assert equal(loop.buffer.read(torch.arange(2) + 2 * row)["obs"], kept[row])
