"""Actions at which TD3's targets are computed, by hand."""

import pytest
import torch

from rlrun.functional.targets import smoothed


def test_smoothed_clips_noise_and_action() -> None:
    action = torch.tensor([[0.0], [0.0], [0.0], [0.9], [-1.0], [1.0]])
    noise = torch.tensor([[1.0], [-100.0], [2.0], [2.0], [-1.0], [-5.0]])
    moved = smoothed(action, noise, std=0.2, limit=0.5)
    assert moved.flatten().tolist() == pytest.approx([0.2, -0.5, 0.4, 1.0, -1.0, 0.5])


def test_smoothed_without_noise_is_the_action() -> None:
    action = torch.tensor([[0.3, -1.0]])
    assert torch.equal(smoothed(action, torch.full((1, 2), 7.0), std=0.0, limit=0.0), action)
