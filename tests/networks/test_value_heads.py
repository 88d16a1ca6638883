"""Heads of value networks: shapes, and the value and advantages of dueling heads."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from rlrun.core.random import Stream
from rlrun.networks.heads import ActionValues, Dueling
from rlrun.networks.noisy import Noisy
from rlrun.networks.torsos import Cnn, Impala, LinearTorso, Mlp

SEEN = {Mlp: Box(-1, 1, (4,)), Cnn: Box(0, 255, (3, 36, 36), np.uint8), Impala: Box(0, 255, (16, 16, 4), np.uint8)}
CFG = SimpleNamespace(
    hidden=[8],
    activation="relu",
    init="uniform",
    norm={"name": "none"},
    convolutions=[[4, 8, 4]],
    sections=[4],
    pixel_range=[0.0, 1.0],
)


@pytest.mark.parametrize("kind", [ActionValues, Dueling])
@pytest.mark.parametrize("shape", [(), (7,), (2, 7)])
@pytest.mark.parametrize(("members", "leading"), [(None, ()), (2, (2,))])
def test_action_values_have_one_prediction_per_action(
    kind: type[ActionValues], shape: tuple[int, ...], members: int | None, leading: tuple[int, ...]
) -> None:
    head = kind(LinearTorso(None, [Box(-1, 1, (4,))], members), 3, members, shape)
    assert head(torch.randn(5, 4)).shape == (*leading, 5, 3, *shape)


@pytest.mark.parametrize("torso", SEEN)
@pytest.mark.parametrize("kind", [ActionValues, Dueling])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("shape", [(), (51,)])
def test_action_values_combine_dueling_noise_and_distributions(
    torso: type, kind: type, noisy: bool, shape: tuple[int, ...]
) -> None:
    """The output of each combination depends on all its parameters."""
    network = kind(torso(CFG, [SEEN[torso]], None), 3, shape=shape)
    obs = torch.from_numpy(np.stack([SEEN[torso].sample() for _ in range(5)]))
    if noisy:
        network = Noisy(network, 0.5)
        said = network(obs, network.noise(Stream(0, "noise")))
        assert not torch.allclose(said, network(obs)), "without noise it says something else"
    else:
        said = network(obs)
    assert said.shape == (5, 3, *shape)
    (said * torch.randn_like(said)).sum().backward()
    assert all(param.grad is not None for param in network.parameters())


def test_dueling_values_depend_on_advantage_differences_alone() -> None:
    head, obs = Dueling(LinearTorso(None, [Box(-1, 1, (4,))], None), 3, shape=(2,)), torch.randn(5, 4)
    before = head(obs)
    torch.testing.assert_close(before.mean(1), head.value(obs))
    torch.testing.assert_close(head(obs[2:3]), before[2:3])
    with torch.no_grad():
        head.output.bias.add_(torch.tensor([1.0, -3.0]).repeat(3))  # the same for every action
    torch.testing.assert_close(head(obs), before)
