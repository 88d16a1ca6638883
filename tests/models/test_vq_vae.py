"""Vector-quantised autoencoders: nearest codes, who moves what, moving averages, revived codes, clusters."""

import math
from typing import Any

import pytest
import torch
from model_runs import learn, model_of
from torch import Tensor

from rlrun.models.vq_vae import SMOOTHING, perplexity
from rlrun.spaces import unbounded


def quantizer(**changes: Any) -> Any:
    small = {"latent": 3, "codes": 5, "network.hidden": [8], "decoder.hidden": [8], "decoder.loss": "squared"}
    model: Any = model_of("vq_vae", unbounded(4), **small | changes)
    torch.nn.init.normal_(model.codebook)
    return model


def batch_of(rows: int) -> dict[str, Tensor]:
    return {"obs": torch.randn(rows, 4), "weight": torch.ones(rows)}


def moves(model: Any, loss: Tensor) -> dict[str, bool]:
    """Returns which of encoder, codes and decoder a loss has a gradient in."""
    parts = {
        "encoder": model.encoder.output.weight,
        "codes": model.codebook,
        "decoder": [*model.decoder.parameters()][-1],
    }
    found = {}
    for name, param in parts.items():
        gradient = None
        if param.requires_grad:
            (gradient,) = torch.autograd.grad(loss, param, retain_graph=True, allow_unused=True)
        found[name] = gradient is not None and bool(gradient.any())
    return found


def test_nearest_codes_equal_a_search_of_all() -> None:
    model = quantizer(codes=50)
    outputs = torch.randn(200, 3)
    assert torch.equal(model.nearest(outputs), torch.cdist(outputs, model.codebook).argmin(-1))
    obs = torch.randn(20, 4)
    expected = torch.cdist(model.encoder(obs), model.codebook).argmin(-1)
    assert torch.equal(model.codes(obs), expected) and torch.equal(model.encode(obs), model.codebook[expected])


def test_decoder_error_moves_the_encoder_and_the_codebook_loss_the_codes() -> None:
    model, batch = quantizer(moving_average=None, revive_after=None, commitment=0.0), batch_of(6)
    output = model.encoder(batch["obs"])
    code = model.codebook[model.nearest(output)]
    straight = output + (code - output).detach()
    error, _ = model.reconstruct(straight, batch)
    assert moves(model, error.sum()) == {"encoder": True, "codes": False, "decoder": True}
    torch.testing.assert_close(straight, code)
    losses, _ = model.loss(batch, {})
    codebook_loss = losses - error
    assert moves(model, codebook_loss.sum()) == {"encoder": False, "codes": True, "decoder": False}
    torch.testing.assert_close(codebook_loss, (output - code).square().mean(-1))
    by_error = torch.autograd.grad(error.sum(), model.encoder.output.weight, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(losses.sum(), model.encoder.output.weight), by_error)


def test_commitment_moves_the_encoder_alone() -> None:
    model, batch = quantizer(moving_average=None, revive_after=None, commitment=0.5), batch_of(6)
    output = model.encoder(batch["obs"])
    code = model.codebook[model.nearest(output)]
    error, _ = model.reconstruct(output + (code - output).detach(), batch)
    losses, metrics = model.loss(batch, {})
    distance = (output - code).square().mean(-1)
    torch.testing.assert_close(losses - error, 1.5 * distance)
    torch.testing.assert_close(metrics["loss/representation_commitment"], distance.detach().mean())
    params = [model.encoder.output.weight, model.codebook]
    of_both = torch.autograd.grad((losses - error).sum(), params, retain_graph=True)
    of_distance = torch.autograd.grad(distance.sum(), params)
    torch.testing.assert_close(of_both, (0.5 * of_distance[0], of_distance[1]))


def test_codes_are_smoothed_moving_averages_of_their_rows() -> None:
    model, batch = quantizer(moving_average=0.9, revive_after=None), batch_of(6)
    batch["weight"][4] = 0.0
    counts, sums = torch.ones(5), model.sums.clone()
    with torch.no_grad():
        output = model.encoder(batch["obs"])
        nearest = model.nearest(output)
    for k in range(5):
        rows = [i for i in range(6) if nearest[i] == k and batch["weight"][i]]
        counts[k] = 0.9 * counts[k] + 0.1 * len(rows)
        sums[k] = 0.9 * sums[k] + 0.1 * sum((output[i] for i in rows), torch.zeros(3))
    model.loss(batch, {})
    smoothed = (counts + SMOOTHING) / (counts.sum() + 5 * SMOOTHING) * counts.sum()
    torch.testing.assert_close(model.codebook, sums / smoothed.unsqueeze(-1))


def test_codes_are_revived_from_rows_that_are_not_masked() -> None:
    model = quantizer(moving_average=0.99, revive_after=3)
    far = torch.full((5, 3), 100.0)
    far[0] = 0.0
    model.codebook.copy_(far)
    model.sums.copy_(far)
    batch = batch_of(6)
    batch["weight"][:4] = 0.0
    with torch.no_grad():
        outputs = model.encoder(batch["obs"])[4:]
    for _ in range(2):
        model.loss(batch, {"row": torch.linspace(0, 0.99, 5)})
        assert (model.codebook[1:] > 50).all() and (model.unused[1:] > 0).all() and model.unused[0] == 0
    model.loss(batch, {"row": torch.tensor([0.0, 0.1, 0.4, 0.6, 0.99])})
    torch.testing.assert_close(model.codebook[1:], outputs[[0, 0, 1, 1]])
    assert not model.unused.any() and model.counts[1:].eq(1).all()
    torch.testing.assert_close(model.sums[1:], outputs[[0, 0, 1, 1]])


def test_codes_of_a_batch_without_valid_rows_stay() -> None:
    model = quantizer(revive_after=1, moving_average=None)
    before = model.codebook.detach().clone()
    batch = batch_of(6)
    batch["weight"].zero_()
    _, metrics = model.loss(batch, {"row": torch.rand(5)})
    assert torch.equal(before, model.codebook) and metrics["loss/representation_perplexity"] == 1.0


def test_perplexity_is_the_number_of_equally_frequent_codes() -> None:
    torch.testing.assert_close(perplexity(torch.tensor([3.0, 3.0, 0.0, 3.0])), torch.tensor(3.0))
    uneven = torch.tensor([1.0, 3.0])
    torch.testing.assert_close(
        perplexity(uneven), torch.tensor(math.exp(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75))))
    )


def on_a_circle(clusters: int) -> tuple[Tensor, Tensor]:
    """Returns 2,000 rows in clusters on a circle, and their clusters."""
    angle = torch.arange(clusters) * 2 * math.pi / clusters
    cluster = torch.arange(2000) % clusters
    centres = 3.0 * torch.stack([angle.cos(), angle.sin()], -1)
    return centres[cluster] + 0.1 * torch.randn(2000, 2), cluster


@pytest.mark.parametrize(
    ("clusters", "average", "steps"), [(4, 0.9, 120), pytest.param(10, 0.99, 600, marks=pytest.mark.slow)]
)
def test_every_cluster_has_one_code(clusters: int, average: float, steps: int) -> None:
    torch.manual_seed(0)
    rows, cluster = on_a_circle(clusters)
    settings = {"moving_average": average, "revive_after": 10, "network.hidden": [], "decoder.hidden": []}
    model: Any = model_of("vq_vae", unbounded(2), latent=2, codes=clusters, **settings, **{"decoder.loss": "squared"})
    metrics = learn(model, rows, steps, batch=256, start=1e-2, end=0.0)
    codes = model.codes(rows)
    found = [codes[cluster == k].unique().tolist() for k in range(clusters)]
    assert sorted(found) == [[k] for k in range(clusters)]
    assert metrics["loss/representation_codes_used"] == 1.0
    assert metrics["loss/representation_perplexity"] > 0.95 * clusters
