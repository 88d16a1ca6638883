"""Noise on weights: its place, its size, and its absence in greedy calls."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from torch import nn
from toys import toy, train

from rlrun.core.random import Stream
from rlrun.core.state import Target
from rlrun.errors import ConfigError
from rlrun.networks.heads import Dueling
from rlrun.networks.linear import Linear
from rlrun.networks.noisy import Noisy
from rlrun.networks.torsos import Mlp

SPACE = Box(-1, 1, (3,))


def dueling(hidden: list[int]) -> Dueling:
    torso = Mlp(Mlp.Config(hidden=hidden, activation="relu", init="uniform", norm={"name": "none"}), [SPACE], None)
    return Dueling(torso, actions=2)


def network() -> Noisy:
    return Noisy(dueling([4]), std=0.5)


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


@pytest.mark.parametrize(
    ("layers", "noisy"),
    [
        (1, ["output", "value"]),
        (2, ["torso.stack.layers.1", "output", "value"]),
        (3, ["torso.stack.layers.0", "torso.stack.layers.1", "output", "value"]),
        (None, ["torso.stack.layers.0", "torso.stack.layers.1", "output", "value"]),
    ],
)
def test_noisy_layers_are_the_last_ones_and_the_others_are_plain(layers: int | None, noisy: list[str]) -> None:
    plain, obs = dueling([4, 5]), torch.randn(6, 3)
    mixed = Noisy(plain, 0.5, layers)
    assert mixed.names == noisy
    noise = mixed.noise(Stream(0, "x"))
    assert not torch.allclose(mixed(obs, noise), plain(obs))
    with torch.no_grad():
        for std in (*mixed.weight_std, *mixed.bias_std):
            std.zero_()
    torch.testing.assert_close(mixed(obs, noise), plain(obs))


def test_dqn_evaluates_its_networks_with_different_noise(build: Callable[..., Any]) -> None:
    loop = build(toy("noisy_dqn"))
    drawn: list[torch.Tensor] = []
    learn = loop.agent.update_q

    def update_q(batch: Any, noise: Any, members: Any) -> Any:
        drawn.extend(one for (one,) in noise)
        return learn(batch, noise, members)

    object.__setattr__(loop.agent, "update_q", update_q)
    train(loop, 1)
    first, second, third = drawn
    assert not torch.equal(first, second) and not torch.equal(second, third) and not torch.equal(first, third)


def test_dqn_has_as_many_noisy_layers_as_chosen(build: Callable[..., Any]) -> None:
    changes = {"network.hidden": [8, 8], "algo.noisy_layers": 1}
    agent = train(build(toy("noisy_dqn", **changes)), 2).agent
    assert agent.q.names == ["output"]
    with pytest.raises(ConfigError, match=r"^algo\.noisy_layers=4: must be at most 3, the number of linear layers$"):
        build(toy("noisy_dqn", **changes | {"algo.noisy_layers": 4}))
