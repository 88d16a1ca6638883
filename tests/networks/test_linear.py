"""Ensembles of linear layers, compared with single layers."""

import torch

from rlrun.networks.linear import Linear


def test_linear_members_are_separate_layers() -> None:
    layer, x = Linear(4, 3, members=5), torch.randn(7, 4)
    shared, own = layer(x), layer(torch.stack([x * i for i in range(5)]))
    for i in range(5):
        weight, bias = layer.weight[i], layer.bias[i]
        torch.testing.assert_close(shared[i], x @ weight + bias)
        torch.testing.assert_close(own[i], (x * i) @ weight + bias)


def test_linear_takes_any_number_of_leading_dimensions() -> None:
    layer, x = Linear(4, 3), torch.randn(2, 6, 4)
    torch.testing.assert_close(layer(x), layer(x.flatten(0, 1)).view(2, 6, 3))


def test_linear_uniform_weights_lie_within_their_bound() -> None:
    layer = Linear(16, 500)
    for part in (layer.weight, layer.bias):
        assert part.abs().max() <= 0.25
        assert part.abs().max() > 0.24


def test_linear_without_inputs_is_its_bias() -> None:
    for members in (None, 2):
        assert Linear(0, 3, members, 1.0)(torch.zeros(5, 0)).shape[-2:] == (5, 3)


def test_linear_orthogonal_weights_are_orthogonal_in_every_member() -> None:
    layer = Linear(6, 6, members=3, gain=2.0)
    for weight in layer.weight:
        torch.testing.assert_close(weight @ weight.T, 4 * torch.eye(6), atol=1e-5, rtol=1e-5)
    assert not torch.equal(layer.weight[0], layer.weight[1])
    assert not layer.bias.any()


def test_linear_prints_its_sizes() -> None:
    assert repr(Linear(4, 3)) == "Linear(4 -> 3)"
    assert repr(Linear(4, 3, members=2)) == "Linear(4 -> 3, members=2)"
