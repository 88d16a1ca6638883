"""Stacks of frames along an axis, and of entries of a Dict, beside a deque; from replay too."""

from collections import deque
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlrun.buffers.replay import Reading, Replay
from rlrun.envs.making.envpool import preprocessing
from rlrun.envs.wrappers.wrapper import FrameStack
from rlrun.errors import ConfigError

IMAGE = spaces.Box(0, 255, (3, 16, 16), np.uint8)
NESTED = spaces.Dict(
    eyes=spaces.Dict(left=spaces.Box(0, 255, (16, 16, 1), np.uint8)),
    arm=spaces.Box(-1.0, 1.0, (2,)),
    goal=spaces.Box(-1.0, 1.0, (2,)),
)


class Drawn(gym.Env):
    """Random observations; episodes of 1 to 6 steps."""

    def __init__(self, space: gym.Space):
        self.observation_space, self.action_space = deepcopy(space), spaces.Discrete(2)
        self.observation_space.seed(0)
        self.draw = np.random.default_rng(0)

    def reset(self, **_: object) -> tuple[object, dict[str, object]]:
        self.left = self.draw.integers(1, 7)
        return self.observation_space.sample(), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        self.left -= 1
        return self.observation_space.sample(), 0.0, self.left == 0, False, {}


class Deque:
    """The last frames of an array, repeated at the start of an episode."""

    def __init__(self, stack: int, axis: int | None):
        self.axis = axis
        self.frames: deque[np.ndarray] = deque(maxlen=stack)

    def __call__(self, frame: np.ndarray, begins: bool) -> np.ndarray:
        if begins:
            self.frames.extend([frame] * (self.frames.maxlen or 0))
        else:
            self.frames.append(frame)
        if self.axis is None:
            return np.stack(self.frames)
        return np.concatenate(self.frames, self.axis)


def wrapped(space: gym.Space, **settings: Any) -> FrameStack:
    return FrameStack(FrameStack.Config(stack=3, **settings), Drawn(space))


@pytest.mark.parametrize(("axis", "shape"), [(None, (3, 3, 16, 16)), (0, (9, 16, 16)), (-1, (3, 16, 48))])
def test_stacks_of_images_equal_those_of_a_deque(axis: int | None, shape: tuple[int, ...]) -> None:
    env, plain, reference = wrapped(IMAGE, axis=axis), Drawn(IMAGE), Deque(3, axis)
    assert env.observation_space == spaces.Box(0, 255, shape, np.uint8)
    stacked, frame, begins = env.reset()[0], plain.reset()[0], True
    for _ in range(60):
        assert np.array_equal(stacked, reference(frame, begins))
        stacked, _, done, _, _ = env.step(0)
        frame = plain.step(0)[0]
        begins = False
        if done:
            stacked, frame, begins = env.reset()[0], plain.reset()[0], True


def test_stacks_of_entries_equal_those_of_a_deque_and_the_others_stay() -> None:
    env, plain = wrapped(NESTED, axis=0, fields=["eyes.left", "arm"]), Drawn(NESTED)
    assert env.observation_space["eyes"]["left"].shape == (48, 16, 1) and env.observation_space["arm"].shape == (6,)
    assert env.observation_space["goal"] == NESTED["goal"] and NESTED["arm"].shape == (2,)
    left, arm = Deque(3, 0), Deque(3, 0)
    (stacked, _), (frame, _), begins = env.reset(), plain.reset(), True
    earlier: list[Any] = []
    for _ in range(30):
        earlier.append((stacked, np.copy(stacked["arm"])))
        assert np.array_equal(stacked["eyes"]["left"], left(frame["eyes"]["left"], begins))
        assert np.array_equal(stacked["arm"], arm(frame["arm"], begins)) and np.array_equal(
            stacked["goal"], frame["goal"]
        )
        stacked, _, done, _, _ = env.step(0)
        frame, begins = plain.step(0)[0], False
        if done:
            (stacked, _), (frame, _), begins = env.reset(), plain.reset(), True
    assert all(np.array_equal(obs["arm"], copy) for obs, copy in earlier), "earlier stacks stay as they were"


@pytest.mark.parametrize("settings", [{"axis": 0}, {"fields": ["eyes.left"]}])
def test_replay_returns_whole_stacks_also_after_it_wraps_around(settings: dict[str, Any], make: Any) -> None:
    space = NESTED if "fields" in settings else IMAGE
    gym.register("Drawn-v0", lambda: Drawn(space))
    try:
        env = make("Drawn-v0", 2, wrappers={"frame_stack": {"stack": 3, **settings}})
    finally:
        del gym.registry["Drawn-v0"]
    assert env.spec.frame_stack == 1
    rewards: Any = {"reward_clip": None, "reward_scale": 1.0, "standardize_reward": False}
    cfg = Replay.Config(capacity=14, compression=None, dtypes={}, **rewards)
    buffer = Replay(cfg, env.spec, Reading(), 0, torch.device("cpu"))
    obs, kept = env.reset(), []
    for _ in range(20):
        step, _ = env.step(torch.zeros(2, dtype=torch.int64))
        buffer.add(step | {"obs": obs})
        kept.append((obs, step["next_obs"]))
        obs = step["following"]
    first, last = buffer.span
    assert first > 0 and last - first >= 8
    batch = buffer.read(torch.arange(first, last))

    def entry(tree: Any, row: int) -> Any:
        return tree["eyes"]["left"][row] if "fields" in settings else tree[row]

    for row, index in enumerate(range(first, last)):
        before, after = kept[index // 2]
        assert torch.equal(entry(batch["obs"], row), entry(before, index % 2))
        assert torch.equal(entry(batch["next_obs"], row), entry(after, index % 2)) or batch["terminated"][row]


@pytest.mark.parametrize(
    ("space", "settings", "line"),
    [
        (IMAGE, {"axis": 3}, r"frame_stack: axis=3: must be from -3 to 2 for Box\(0, 255, \(3, 16, 16\), uint8\)$"),
        (NESTED, {"fields": ["eyes.right"]}, "frame_stack: fields: the observations .* have no entry eyes.right$"),
        (IMAGE, {"fields": ["eyes"]}, "frame_stack: fields: the observations .* have no entry eyes$"),
        (NESTED, {}, "frame_stack needs Box observations, got Dict$"),
        (NESTED, {"fields": ["eyes"]}, "frame_stack needs Box observations, got Dict$"),
    ],
)
def test_frame_stack_refuses_axes_and_entries_that_do_not_exist(space: Any, settings: Any, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        wrapped(space, **settings)


def test_envpool_refuses_an_axis_of_stacks() -> None:
    with pytest.raises(ConfigError, match=r"axis and fields are not supported with env.backend=envpool$"):
        preprocessing({"atari": {}, "frame_stack": {"stack": 4, "axis": 0}}, None)
