"""Noise on weights: its place, its size, and its absence in greedy calls."""

import torch
from gymnasium.spaces import Box
from torch import nn

from rlrun.core.random import Stream
from rlrun.core.state import Target
from rlrun.networks.heads import Dueling
from rlrun.networks.linear import Linear
from rlrun.networks.noisy import Noisy
from rlrun.networks.torsos import Mlp

SPACE = Box(-1, 1, (3,))


def network() -> Noisy:
    torso = Mlp(Mlp.Config(hidden=[4], activation="relu", init="uniform", norm={"name": "none"}), [SPACE], None)
    return Noisy(Dueling(torso, actions=2), std=0.5)


def test_noisy_layer_adds_factorised_noise_times_its_std() -> None:
    layer = Linear(2, 3)
    noisy = Noisy(layer, std=0.5)
    with torch.no_grad():
        noisy.weight_std[0].copy_(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
        noisy.bias_std[0].copy_(torch.tensor([0.1, 0.2, 0.3]))
    noise, x = torch.tensor([2.0, -1.0, 1.0, 0.5, -2.0]), torch.tensor([[1.0, 10.0]])
    weight = torch.tensor([[2.0, 2.0, -12.0], [-4.0, -2.5, 12.0]])  # std * (2, -1)^T (1, 0.5, -2)
    bias = torch.tensor([0.1, 0.1, -0.6])
    torch.testing.assert_close(noisy(x, noise), layer(x) + x @ weight + bias)


def test_noisy_init_std_is_scaled_by_the_root_of_the_inputs() -> None:
    noisy = network()
    assert {round(part.max().item(), 6) for part in noisy.weight_std} == {round(0.5 / 3**0.5, 6), 0.25}
    assert [tuple(part.shape) for part in noisy.bias_std] == [(4,), (2,), (1,)]


def test_noisy_noise_is_the_signed_root_of_normal_numbers() -> None:
    noisy = network()
    drawn = noisy.noise(Stream(0, "x"))
    plain = Stream(0, "x").normal((3 + 4) + (4 + 2) + (4 + 1))
    torch.testing.assert_close(drawn * drawn.abs(), plain)


def test_noisy_network_without_noise_is_the_network_itself() -> None:
    noisy, obs = network(), torch.randn(5, 3)
    assert torch.equal(noisy(obs), noisy.network(obs))
    noise = noisy.noise(Stream(1, "x"))
    grads = torch.autograd.grad(noisy(obs, noise).square().sum(), [*noisy.parameters()])
    assert all(grad.abs().sum() > 0 for grad in grads), "weights and standard deviations learn"


def test_noisy_target_network_copies_std_and_has_noise_of_its_own() -> None:
    noisy, obs = network(), torch.randn(5, 3)
    target: nn.Module = Target(noisy, tau=1.0)
    some, other = (noisy.noise(Stream(seed, "x")) for seed in (1, 2))
    assert torch.equal(target(obs, some), noisy(obs, some))
    assert not torch.equal(target(obs, some), target(obs, other))
