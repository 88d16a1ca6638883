"""Discrete variational autoencoders: gradients of samples, KL, temperature, clusters."""

from typing import Any

import pytest
import torch
from gymnasium.spaces import Dict
from model_runs import composed, model_of
from torch import Tensor
from torch.distributions import Categorical, kl_divergence
from toys import train

from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.functional.distributions import straight_through, straight_through_gumbel
from rlrun.functional.losses import batch_mean
from rlrun.spaces import unbounded


def discrete(size: int = 4, hidden: list[int] | None = None, **changes: Any) -> Any:
    layers = {"network.hidden": hidden or [8], "decoder.hidden": hidden or [8], "decoder.loss": "squared"}
    small = {"variables": 3, "categories": 2, "temperature": 1.0}
    return model_of("discrete_vae", unbounded(size), **small | layers | changes)


def batch_of(obs: Tensor) -> dict[str, Tensor]:
    return {"obs": obs, "weight": torch.ones(len(obs))}


@pytest.mark.parametrize("temperature", [None, 0.5])
def test_straight_through_samples_are_one_hot_with_the_gradient_of_probabilities(temperature: float | None) -> None:
    logits = torch.randn(20, 3, 4, requires_grad=True)
    gumbel, direction = Stream(0, "gumbel").gumbel(20, 3, 4), torch.randn(20, 3, 4)
    if temperature is None:
        sample = straight_through(logits, gumbel)
        soft = logits.softmax(-1)
    else:
        sample = straight_through_gumbel(logits, gumbel, temperature)
        soft = ((logits + gumbel) / temperature).softmax(-1)
    assert torch.equal(sample.argmax(-1), (logits + gumbel).argmax(-1))
    assert torch.equal(sample.sort(-1).values, torch.tensor([0.0, 0.0, 0.0, 1.0]).expand(20, 3, 4))
    (found,) = torch.autograd.grad((sample * direction).sum(), logits)
    (expected,) = torch.autograd.grad((soft * direction).sum(), logits)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_straight_through_samples_have_the_probabilities_of_the_logits() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0]).expand(20_000, 3)
    frequency = straight_through(logits, Stream(0, "gumbel").gumbel(20_000, 3)).mean(0)
    torch.testing.assert_close(frequency, logits[0].softmax(-1), atol=0.01, rtol=0)


@pytest.mark.parametrize("gradient", ["straight_through", "gumbel"])
def test_loss_of_a_discrete_vae_is_that_of_its_samples_and_the_kl_to_uniform(gradient: str) -> None:
    model = discrete(gradient=gradient, categories=4, beta=0.5, temperature=0.5)
    batch = batch_of(torch.randn(6, 4))
    noise = model.noise(batch, Stream(0, "draws"))
    losses, metrics = model.loss(batch, noise)
    _, logits = model.logits(batch["obs"])
    log_p = logits.log_softmax(-1)
    kl = (log_p.exp() * (log_p + torch.tensor(4.0).log())).sum((-1, -2))
    samples = {
        "straight_through": straight_through(logits, noise["gumbel"]),
        "gumbel": straight_through_gumbel(logits, noise["gumbel"], 0.5),
    }
    sample = samples[gradient]
    error = (model.decoder(sample) - batch["obs"]).square().mean(-1)
    torch.testing.assert_close(losses, error + 0.5 * kl)
    torch.testing.assert_close(metrics["loss/representation_kl"], kl.detach().mean())
    (found,) = torch.autograd.grad(error.sum(), model.encoder.output.bias, retain_graph=True)
    (ours,) = torch.autograd.grad((losses - 0.5 * kl).sum(), model.encoder.output.bias)
    torch.testing.assert_close(found, ours)


def test_kl_of_a_discrete_vae_with_a_prior_network_is_that_of_torch() -> None:
    obs = Dict({"seen": unbounded(3), "goal": unbounded(2)})
    model: Any = model_of("discrete_vae", obs, variables=3, categories=4, prior=["goal"], **{"network.hidden": [8]})
    batch: Any = {"obs": {"seen": torch.randn(6, 3), "goal": torch.randn(6, 2)}, "weight": torch.ones(6)}
    _, metrics = model.loss(batch, model.noise(batch, Stream(0, "draws")))
    prior, logits = model.logits(batch["obs"])
    expected = kl_divergence(Categorical(logits=logits), Categorical(logits=prior)).sum(-1).mean()
    torch.testing.assert_close(metrics["loss/representation_kl"], expected.detach())


def test_latent_state_of_a_discrete_vae_is_the_most_probable_choice() -> None:
    model = discrete(categories=5)
    obs = torch.randn(6, 4)
    _, logits = model.logits(obs)
    latent = model.encode(obs)
    assert latent.shape == (6, *model.latent.shape) == (6, 3, 5)
    assert torch.equal(latent.argmax(-1), logits.argmax(-1)) and torch.equal(latent.sum(-1), torch.ones(6, 3))


def test_target_of_the_kl_is_per_variable() -> None:
    assert discrete(target_kl_per_variable=0.25).beta.target == 0.75


def test_temperature_of_a_discrete_vae_follows_its_schedule(build: Any) -> None:
    values = composed("sac", "discrete_vae", "trainer.total_steps=64")
    loop = train(build(values), 20)
    expected = 1.0 + (0.3 - 1.0) * loop.progress
    found = loop.addons[0].model.temperature
    assert expected < 0.99 and abs(found - expected) < 0.05


def corners() -> Tensor:
    """Returns the 8 corners of a cube, moved into 6 dimensions by a random linear map."""
    signs = torch.tensor([-1.0, 1.0])
    return torch.cartesian_prod(signs, signs, signs) @ torch.randn(3, 6)


def clustered(model: Any, centres: Tensor, steps: int, start: float, seed: int) -> tuple[int, float]:
    """Trains a model with temperatures from start to 0.3 on clusters around the centres.

    Returns the number of different codes of the clusters, and the least fraction of a cluster that has its code.
    """
    cluster = torch.arange(2000) % 8
    rows = centres[cluster] + 0.3 * torch.randn(2000, 6)
    optim, draws = Optim(model.parameters(), 1e-2), Stream(seed, "draws")
    for step in range(steps):
        model.temperature.fill_(start + (0.3 - start) * step / steps)
        optim.learning_rate.fill_(1e-2 * (1 - step / steps))
        batch = batch_of(rows[torch.randint(2000, (256,))])
        loss, _ = model.loss(batch, model.noise(batch, draws))
        optim.step(batch_mean(loss))
    codes = (model.encode(rows).argmax(-1) * torch.tensor([1, 2, 4])).sum(-1)
    counts = torch.stack([codes[cluster == k].bincount(minlength=8) for k in range(8)])
    return len(counts.argmax(-1).unique()), float((counts.max(-1).values / 250).min())


def test_binary_variables_find_the_corners_of_a_cube() -> None:
    torch.manual_seed(0)
    model = discrete(6, [32], gradient="gumbel", **{"decoder.weight": 6.0})
    codes, fraction = clustered(model, corners(), steps=250, start=1.0, seed=0)
    assert codes == 8 and fraction > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["gumbel", "straight_through"])
def test_binary_variables_find_the_corners_of_a_cube_in_three_of_four_seeds(gradient: str) -> None:
    results = []
    for seed in range(4):
        torch.manual_seed(seed)
        model = discrete(6, [64], gradient=gradient, **{"decoder.weight": 6.0})
        results.append(clustered(model, corners(), steps=1000, start=1.0, seed=seed))
    assert sum(codes == 8 and fraction >= 0.95 for codes, fraction in results) >= 3
