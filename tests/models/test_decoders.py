"""Decoders: losses of each row, masks, normalised targets, and the networks that draw images."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor
from torch.nn import functional as F

from rlrun.errors import ConfigError
from rlrun.models.decoders import Decoder
from rlrun.networks.decoders import Deconvolution, ImageDecoder, ResidualDeconvolution, SpatialBroadcast
from rlrun.networks.inputs import FlattenInputs, random_rows
from rlrun.settings import registry

LATENT = Box(-np.inf, np.inf, (3,), np.float32)
VECTOR = Box(-np.inf, np.inf, (4,), np.float32)
VALUES = {
    "name": "dense", "loss": "squared", "weight": 1.0, "normalize_target": False, "by_dimension": False,
    "hidden": [], "activation": "relu",
}  # fmt: skip
SHARED = {key: VALUES[key] for key in ("loss", "weight", "normalize_target", "by_dimension")}
NETWORKS: dict[str, dict[str, Any]] = {
    "deconvolution": {"convolutions": [[4, 4, 2], [6, 3, 1]]},
    "broadcast": {"channels": [4]},
    "residual": {"sections": [4, 3]},
}


def decoder(target: Space = VECTOR, **changes: Any) -> Decoder:
    part: Decoder = registry.build("decoder", VALUES | changes, LATENT, target, "obs", path="decoder")
    return part


def image_decoder(name: str, target: Space) -> Decoder:
    values = {"name": name, **SHARED, **NETWORKS[name]}
    part: Decoder = registry.build("decoder", values, LATENT, target, "obs", path="decoder")
    return part


def by_torch(loss: str, outputs: Tensor, target: Tensor, part: Any) -> Tensor:
    """Returns the loss of each row, computed with functions of torch."""
    match loss:
        case "smooth_l1":
            return F.smooth_l1_loss(outputs, target, reduction="none").mean(-1)
        case "squared":
            return (outputs - target).square().mean(-1)
        case "bce":
            return -torch.distributions.Bernoulli(logits=outputs).log_prob(target).mean(-1)
        case "normal":
            return -torch.distributions.Normal(outputs, part.log_std.exp()).log_prob(target).mean(-1)
    first = F.cross_entropy(outputs[:, :3], target[:, :3].argmax(-1), reduction="none")
    second = F.cross_entropy(outputs[:, 3:], target[:, 3:].argmax(-1), reduction="none")
    return (first + second) / 2


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        ("smooth_l1", VECTOR),
        ("squared", VECTOR),
        ("normal", VECTOR),
        ("bce", MultiBinary(4)),
        ("categorical", MultiDiscrete([3, 2])),
    ],
)
def test_losses_of_rows_equal_those_of_torch(loss: str, target: Space) -> None:
    part: Any = decoder(target, loss=loss, weight=2.0)
    if loss == "normal":
        torch.nn.init.uniform_(part.log_std, -1, 1)
    latent = torch.randn(6, 3)
    rows = part.target(random_rows(target, 6))
    losses, metrics = part.loss(latent, rows, torch.ones(6))
    expected = by_torch(loss, part(latent), rows, part)
    assert losses.shape == (6,)
    torch.testing.assert_close(losses, 2.0 * expected)
    torch.testing.assert_close(metrics["loss/representation_obs"], expected.detach().mean())


def test_loss_keeps_time_and_batch() -> None:
    part = decoder()
    latent, target = torch.randn(5, 2, 3), torch.randn(5, 2, 4)
    losses, _ = part.loss(latent, target, torch.ones(5, 2))
    assert losses.shape == (5, 2)
    torch.testing.assert_close(losses[3], part.loss(latent[3], target[3], torch.ones(2))[0])


@pytest.mark.parametrize("normalize_target", [False, True])
def test_masked_rows_of_a_decoder_have_no_gradient_and_no_metric(normalize_target: bool) -> None:
    latent, mask = torch.randn(5, 2, 3, requires_grad=True), torch.ones(5, 2)
    mask[2, 1] = mask[4, 0] = 0.0
    target = torch.randn(5, 2, 4)
    other = target.clone()
    other[mask == 0] += 100.0
    torch.manual_seed(0)
    one = decoder(normalize_target=normalize_target)
    torch.manual_seed(0)
    two = decoder(normalize_target=normalize_target)
    losses, metrics = one.loss(latent, target, mask)
    (gradient,) = torch.autograd.grad(losses.sum(), latent)
    assert not gradient[mask == 0].any() and gradient[mask == 1].all()
    other_losses, other_metrics = two.loss(latent, other, mask)
    assert torch.equal(losses, other_losses) and not losses[mask == 0].any()
    assert torch.equal(metrics["loss/representation_obs"], other_metrics["loss/representation_obs"])


def test_targets_are_normalised_inside_of_the_loss_only() -> None:
    part: Any = decoder(normalize_target=True)
    scale = torch.tensor([1.0, 10.0, 0.1, 0.0])  # the last dimension is constant
    seen = [torch.randn(50, 4) * scale + 3.0 for _ in range(3)]
    latent = torch.randn(50, 3)
    for rows in seen:
        losses, _ = part.loss(latent, rows, torch.ones(50))
    std = torch.cat(seen).double().std(0, correction=0)
    divisor = torch.where(std > 1e-3, std, 1.0).float()
    expected = ((part(latent) - seen[-1]) / divisor).square().mean(-1)
    torch.testing.assert_close(losses, expected)
    assert torch.equal(part.predict(latent), part.network(latent))


def test_metrics_of_each_dimension_end_in_field_and_dimension() -> None:
    part = decoder(by_dimension=True)
    latent, target = torch.randn(8, 3), torch.randn(8, 4)
    _, metrics = part.loss(latent, target, torch.ones(8))
    errors = (part(latent) - target).square().mean(0).detach()
    for i in range(4):
        torch.testing.assert_close(metrics[f"loss/representation_obs_{i}"], errors[i])
    assert len(metrics) == 5 and len(decoder().loss(latent, target, torch.ones(8))[1]) == 1


def test_predictions_of_choices_and_bits_are_probabilities() -> None:
    choices = decoder(MultiDiscrete([3, 2]), loss="categorical").predict(torch.randn(6, 3))
    torch.testing.assert_close(choices[:, :3].sum(-1), torch.ones(6))
    torch.testing.assert_close(choices[:, 3:].sum(-1), torch.ones(6))
    bits = decoder(MultiBinary(4), loss="bce")
    latent = torch.randn(6, 3)
    torch.testing.assert_close(bits.predict(latent), bits(latent).sigmoid())


@pytest.mark.parametrize(
    ("target", "changes", "fault"),
    [
        (VECTOR, {"loss": "categorical"}, r"decoder\.loss=categorical: needs Discrete or MultiDiscrete .* Box\(-inf"),
        (VECTOR, {"loss": "bce"}, r"decoder\.loss=bce: needs observations from 0 to 1, images or choices"),
        (Box(0, 2, (4,)), {"loss": "bce"}, r"decoder\.loss=bce"),
        (Dict({"a": Discrete(3), "b": VECTOR}), {"loss": "categorical"}, r"decoder\.loss=categorical"),
        (MultiBinary(4), {"loss": "bce", "normalize_target": True}, r"normalize_target=true: .* with loss=bce"),
        (Box(0, 1, (101,)), {"by_dimension": True}, r"by_dimension=true: reports up to 100 dimensions, .* have 101"),
        (VECTOR, {"loss": "huber"}, r"decoder\.loss='huber': .*smooth_l1"),
    ],
)
def test_decoders_refuse_fields_that_do_not_fit(target: Space, changes: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as refused:
        decoder(target, **changes)
    assert len(refused.value.faults) == 1 and "\n" not in refused.value.faults[0]


@pytest.mark.parametrize("space", [Box(0, 1, (4,)), Box(0, 255, (4,), np.uint8), MultiBinary(4), Discrete(4)], ids=str)
def test_fields_from_0_to_1_have_a_cross_entropy(space: Space) -> None:
    part = decoder(space, loss="bce")
    assert part.predict(torch.zeros(2, 3)).shape == (2, 4)


IMAGES = [
    Box(0, 255, (3, 16, 20), np.uint8),
    Box(0, 255, (20, 17, 3), np.uint8),
    Box(0, 255, (2, 16, 19, 3), np.uint8),
    Box(0, 255, (4, 36, 36), np.uint8),
]


@pytest.mark.parametrize("image", IMAGES, ids=lambda space: "x".join(map(str, space.shape)))
@pytest.mark.parametrize("name", NETWORKS)
def test_image_decoders_return_every_pixel(name: str, image: Box) -> None:
    part = image_decoder(name, image)
    rows = part(torch.randn(5, 2, 3))
    assert rows.shape == (5, 2, math.prod(image.shape))
    target = part.target(random_rows(image, 5))
    losses, _ = part.loss(torch.randn(5, 3), target, torch.ones(5))
    assert losses.shape == (5,)
    gradients = torch.autograd.grad(losses.sum(), [*part.parameters()])
    assert all(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("image", IMAGES, ids=lambda space: "x".join(map(str, space.shape)))
def test_pixels_of_image_decoders_have_the_order_of_flattened_images(image: Box) -> None:
    observed = random_rows(image, 2)
    assert isinstance(observed, Tensor)

    class Known(ImageDecoder):
        def draw(self, latent: Tensor) -> Tensor:
            x = observed.float()
            if x.dim() == 5:  # the frames of a stack are channels, as in `Pixels`
                x = x.movedim(1, 3).flatten(3)
            if self.channels_last:
                x = x.permute(0, 3, 1, 2)
            return x / 255

    torch.testing.assert_close(Known(LATENT, image)(torch.zeros(2, 3)), FlattenInputs(image)(observed))


def test_broadcast_decoder_sees_coordinates_from_minus_1_to_1() -> None:
    image = Box(0, 255, (3, 16, 20), np.uint8)
    part = SpatialBroadcast(LATENT, image, [4])
    corners = part.coordinates[0, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners.T.tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    latent = torch.randn(1, 3)

    def range_of_pixels() -> Tensor:
        inner = part.draw(latent)[:, :, 1:-1, 1:-1].flatten(2)
        return inner.amax(-1) - inner.amin(-1)

    assert (range_of_pixels() > 0.01).all()
    part.coordinates.zero_()
    torch.testing.assert_close(range_of_pixels(), torch.zeros(1, 3))


def test_deconvolution_mirrors_the_sides_of_convolutions() -> None:
    part = Deconvolution(LATENT, Box(0, 255, (4, 84, 84), np.uint8), [[32, 8, 4], [64, 4, 2], [64, 3, 1]])
    assert part.smallest == (64, 7, 7)
    x = part.linear(torch.randn(1, 3)).unflatten(1, part.smallest)
    sides = []
    for layer in part.layers:
        x = layer(x)
        sides.append(tuple(x.shape[1:]))
    assert sides == [(64, 9, 9), (32, 20, 20), (4, 84, 84)]


def test_residual_decoder_doubles_the_sides_and_crops() -> None:
    part = ResidualDeconvolution(LATENT, Box(0, 255, (3, 17, 30), np.uint8), [8, 4, 2])
    assert part.smallest == (8, 3, 4)
    assert part.draw(torch.randn(2, 3)).shape == (2, 3, 17, 30)


@pytest.mark.parametrize("name", NETWORKS)
def test_image_decoders_refuse_vectors(name: str) -> None:
    with pytest.raises(ConfigError, match=f"decoder={name}: needs images of bytes, .*; use .*decoder=dense") as refused:
        image_decoder(name, VECTOR)
    assert len(refused.value.faults) == 1


def test_deconvolution_refuses_images_that_its_convolutions_do_not_see() -> None:
    values = {"name": "deconvolution", **SHARED, "convolutions": [[32, 8, 4], [64, 4, 2], [64, 3, 1]]}
    with pytest.raises(ConfigError, match=r"\.convolutions=.*: mirror those of images of 36 pixels a side or more"):
        registry.build("decoder", values, LATENT, IMAGES[0], "obs", path="decoder")
