"""Normalisation of torsos: by hand, compared with torch's layers, in ensembles, and updates of statistics."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlrun.networks.heads import Value
from rlrun.networks.norm import EPSILON, Renormalised, batch_statistics, moments
from rlrun.settings import registry

VECTOR, ACTION = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))
IMAGE = spaces.Box(0, 255, (2, 36, 36), np.uint8)
LAYERS = {"hidden": [8, 5], "activation": "relu", "init": "uniform"}
RENORM = {"name": "batch_renorm", "momentum": 0.5, "warmup": 2}


def torso(norm: Any, inputs: list[spaces.Space] | None = None, members: int | None = None, **values: Any) -> Any:
    values = {"name": "mlp"} | LAYERS | {"norm": norm} | values
    return registry.build("network", values, inputs or [VECTOR], members, path="network")


def state(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def test_layer_norm_is_applied_between_linear_layer_and_activation() -> None:
    net = torso("layer")
    x = torch.randn(6, 3)
    expected = x
    for layer, norm in zip(net.stack.layers, net.stack.norm.layers, strict=True):
        nn.init.normal_(norm.scale)
        nn.init.normal_(norm.bias)
        expected = F.relu(F.layer_norm(layer(expected), layer.bias.shape, norm.scale, norm.bias))
    torch.testing.assert_close(net(x), expected)


def test_batch_renorm_is_applied_to_inputs_and_after_activations() -> None:
    net = torso(RENORM)
    x = torch.randn(6, 3)
    norms = [nn.BatchNorm1d(width, eps=EPSILON) for width in (3, 8, 5)]
    expected = norms[0](x)
    for layer, norm in zip(net.stack.layers, norms[1:], strict=True):
        expected = norm(F.relu(layer(expected)))
    with batch_statistics(net):  # of the first batch, in the warm-up: plain batch normalisation
        torch.testing.assert_close(net(x), expected)


def test_batch_renorm_corrects_towards_the_running_statistics_by_hand() -> None:
    layer = Renormalised(1, None, momentum=0.5, warmup=1)
    first, second = torch.tensor([[0.0], [2.0]]), torch.tensor([[3.0], [7.0]])
    with batch_statistics(layer):
        layer(first)
        assert (layer.mean.item(), layer.var.item()) == (0.5, 1.0)  # half of 0 and 1, half of 1 and 1
        out = layer(second)  # mean 5, variance 4, against 0.5 and 1
    r, d = ((4 + EPSILON) / (1 + EPSILON)) ** 0.5, 4.5 / (1 + EPSILON) ** 0.5
    scaled = 2 / (4 + EPSILON) ** 0.5
    torch.testing.assert_close(out, torch.tensor([[d - scaled * r], [d + scaled * r]]))
    assert (layer.mean.item(), layer.var.item(), layer.batches.item()) == (2.75, 2.5, 2.0)


def test_batch_renorm_corrections_are_bounded_and_detached() -> None:
    layer = Renormalised(1, None, momentum=0.5, warmup=0)
    x = torch.tensor([[1e3], [3e3]], requires_grad=True)
    with batch_statistics(layer):
        out = layer(x)
    torch.testing.assert_close(out, torch.tensor([[2.0], [8.0]]))  # d + r times -1 and 1, of at most 5 and 3
    (grad,) = torch.autograd.grad(out.sum(), x)  # of normalised rows, whose sum is constant
    torch.testing.assert_close(grad, torch.zeros_like(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("norm", ["layer", RENORM])
def test_norm_of_ensemble_members_equals_that_of_single_networks(norm: Any, learn: bool) -> None:
    net = torso(norm, [VECTOR, ACTION], members=3)
    for name, param in net.named_parameters():
        if ".norm." in name:
            nn.init.normal_(param)
    obs, action = torch.randn(6, 3), torch.randn(6, 2)
    alone = [torso(norm, [VECTOR, ACTION]) for _ in range(3)]
    for i, network in enumerate(alone):
        own = {}
        for name, value in state(net).items():
            part = value[i] if value.dim() else value
            own[name] = part if name.endswith("weight") or not value.dim() else part.squeeze(0)
        network.load_state_dict(own)
    for _ in range(3):  # past the warm-up
        outputs = [call(network, learn, obs, action) for network in (net, *alone)]
        torch.testing.assert_close(outputs[0], torch.stack(outputs[1:]))


def call(network: Any, learn: bool, *inputs: Tensor) -> Tensor:
    if not learn:
        return network(*inputs)
    with batch_statistics(network):
        return network(*inputs)


def test_batch_renorm_updates_statistics_inside_batch_statistics_alone() -> None:
    net = Value(torso(RENORM, members=2), 2)
    x = torch.randn(6, 3)
    before, out = state(net), net(x)
    assert all(torch.equal(value, before[name]) for name, value in state(net).items())
    with pytest.raises(RuntimeError), batch_statistics(net):
        net(x)
        raise RuntimeError
    moved = {name for name, value in state(net).items() if not torch.equal(value, before[name])}
    assert {name.rpartition(".")[2] for name in moved} == {"mean", "var", "batches"}
    after = state(net)
    assert not torch.equal(net(x), out)
    assert all(torch.equal(value, after[name]) for name, value in state(net).items()), "off again, after an error too"


def test_batch_renorm_normalises_rows_independently_outside_of_batch_statistics() -> None:
    net = torso(RENORM)
    call(net, True, torch.randn(6, 3))
    x = torch.randn(4, 3)
    torch.testing.assert_close(net(x)[1:2], net(x[1:2]))


@pytest.mark.parametrize("norm", ["layer", RENORM])
def test_norm_is_applied_in_every_torso_with_linear_layers(norm: Any) -> None:
    images = torch.randint(256, (5, 2, 36, 36), dtype=torch.uint8)
    net = torso(norm, [IMAGE, ACTION], 2, name="cnn", convolutions=[[4, 8, 4]])
    assert call(net, True, images, torch.randn(5, 2)).shape == (2, 5, 5)
    impala = torso(norm, [IMAGE], name="impala", sections=[4])
    assert call(impala, True, images).shape == (5, 5)
    memory = {"features": 4, "layers": 1, "sequence_length": 2, "burn_in": 0, "start": "stored", "previous": []}
    gru = torso(norm, [VECTOR, ACTION], 2, name="gru", **memory)
    obs = {"obs": torch.randn(5, 3), "hidden_state": torch.zeros(5, 4)}
    assert call(gru, True, obs, torch.randn(5, 2)).shape == (2, 5, 5)
    norms = [module for network in (net, impala, gru) for module in network.modules() if hasattr(module, "scale")]
    assert len(norms) == (8 if norm == "layer" else 12)  # two in each of the four stacks, and the inputs of each


def test_moments_over_the_given_dimensions_by_hand() -> None:
    x = torch.tensor([[[1.0, 0.0], [3.0, 0.0]], [[5.0, 2.0], [5.0, 4.0]]])
    mean, var = moments(x, (-2,), keepdim=True)
    torch.testing.assert_close(mean, torch.tensor([[[2.0, 0.0]], [[5.0, 3.0]]]))
    torch.testing.assert_close(var, torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
    mean, var = moments(x, (0, 1))
    torch.testing.assert_close(mean, torch.tensor([3.5, 1.5]))
    torch.testing.assert_close(var, torch.tensor([2.75, 2.75]))
