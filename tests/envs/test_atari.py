"""Atari: preprocessing, one stack of frames, exact restore."""

import pytest
import torch

from rlrun.errors import ConfigError

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

PREPROCESSING = {
    "noop_max": 3, "frame_skip": 4, "screen_size": 84, "terminal_on_life_loss": False,
}  # fmt: skip
PONG = {
    "id": "ALE/Pong-v5",
    "kwargs": {"frameskip": 1, "repeat_action_probability": 0.25},
    "wrappers": {"atari": PREPROCESSING, "frame_stack": {"stack": 4}},
}


def test_frames_are_stacked_and_the_state_is_exact(make):
    env = make(**PONG)
    obs = env.reset()
    assert obs.shape == (1, 4, 84, 84) and obs.dtype == torch.uint8 and env.spec.frame_stack == 4
    assert torch.equal(obs[:, 0], obs[:, 3])
    for _ in range(30):
        step = env.step(torch.tensor([2]))
        assert torch.equal(step.obs[:, :3], obs[:, 1:])
        obs = step.obs
    assert env.exactness == "exact"
    other = make(**PONG, seed=1)
    other.set_extra_state(env.get_extra_state())
    for t in range(60):  # sticky actions draw from the emulator's own generator
        one, two = env.step(torch.tensor([t % 6])), other.step(torch.tensor([t % 6]))
        assert torch.equal(one.obs, two.obs) and torch.equal(one.reward, two.reward)
    assert torch.equal(env.reset(), other.reset())


def test_other_environments_refuse_the_wrapper(make):
    with pytest.raises(ConfigError, match=r"env.wrappers.atari is for Atari environments only"):
        make("CartPole-v1", wrappers={"atari": PREPROCESSING})
