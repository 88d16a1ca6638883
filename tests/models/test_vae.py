"""Variational autoencoders: KL, evidence of linear-Gaussian data, target of the KL, prior networks."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from model_runs import learn, model_of
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.models.vae import gaussian_kl
from rlrun.models.variational import KLWeight
from rlrun.spaces import unbounded

NETWORKS: dict[str, dict[str, Any]] = {
    "linear": {"network": {"name": "linear"}},
    "tanh": {"network.hidden": [4, 4], "network.activation": "tanh"},
}
GOALS = Dict({"seen": unbounded(3), "goal": unbounded(2)})


def linear_gaussian(rows: int, size: int, latent: int) -> tuple[Tensor, Tensor]:
    """Returns rows W z + noise, and the mean of their exact log-probabilities."""
    directions = torch.randn(size, latent)
    x = torch.randn(rows, latent) @ directions.T + 0.5 * torch.randn(rows, size)
    covariance = directions @ directions.T + 0.25 * torch.eye(size)
    return x, MultivariateNormal(torch.zeros(size), covariance).log_prob(x).mean()


def vae(size: int, latent: int, network: str = "linear", **changes: Any) -> Any:
    """Returns a VAE with a linear decoder, whose loss is the exact negative log-likelihood of a row."""
    likelihood = {"decoder.hidden": [], "decoder.loss": "normal", "decoder.weight": float(size)}
    return model_of("vae", unbounded(size), latent=latent, **NETWORKS[network], **likelihood, **changes)


def batch_of(obs: Any, rows: int) -> dict[str, Any]:
    return {"obs": obs, "weight": torch.ones(rows)}


@torch.no_grad()
def bound(model: Any, rows: Tensor, samples: int = 20) -> Tensor:
    """Returns the mean evidence lower bound of rows."""
    batch, draws = batch_of(rows, len(rows)), Stream(0, "bound")
    losses = [model.loss(batch, model.noise(batch, draws))[0].mean() for _ in range(samples)]
    return -torch.stack(losses).mean()


def test_kl_of_gaussians_equals_that_of_torch() -> None:
    prior, change = torch.randn(7, 6), torch.randn(7, 6)
    mean, log_var = prior.chunk(2, -1)
    other_mean, other_log_var = (prior + change).chunk(2, -1)
    p, q = Normal(mean, (0.5 * log_var).exp()), Normal(other_mean, (0.5 * other_log_var).exp())
    torch.testing.assert_close(gaussian_kl(prior, change), kl_divergence(q, p).sum(-1))
    p = Normal(0.0, 1.0)
    torch.testing.assert_close(gaussian_kl(torch.zeros(7, 6), prior + change), kl_divergence(q, p).sum(-1))


@pytest.mark.parametrize(
    ("size", "latent", "network", "steps", "rate"),
    [
        (2, 1, "linear", 300, 0.1),
        pytest.param(6, 2, "linear", 3000, 0.03, marks=pytest.mark.slow),
        pytest.param(6, 2, "tanh", 3000, 0.03, marks=pytest.mark.slow),
    ],
)
def test_bound_approaches_the_evidence_of_linear_gaussian_data(
    size: int, latent: int, network: str, steps: int, rate: float
) -> None:
    torch.manual_seed(0)
    rows, evidence = linear_gaussian(4000, size, latent)
    model = vae(size, latent, network)
    assert bound(model, rows) < evidence - 0.3
    learn(model, rows, steps, batch=256, start=rate, end=0.0)
    assert abs(bound(model, rows) - evidence) < 0.01 * abs(evidence)


@pytest.mark.slow
def test_beta_moves_until_the_kl_meets_its_target() -> None:
    torch.manual_seed(0)
    rows, _ = linear_gaussian(4000, 6, 2)
    model = vae(6, 2, target_kl_per_dim=0.5, beta=0.5)
    learn(model, rows, 2000, batch=256, start=0.03, end=0.0)
    batch = batch_of(rows, len(rows))
    _, metrics = model.loss(batch, model.noise(batch, Stream(0, "draws")))
    assert abs(metrics["loss/representation_kl"] - 1.0) < 0.05
    assert metrics["loss/representation_beta"] > 0.6


def test_gradient_of_log_beta_is_the_distance_from_the_target() -> None:
    weight, kl = KLWeight(2.0, target=1.5), torch.tensor([1.0, 4.0], requires_grad=True)
    weight.log_beta.data.fill_(math.log(3.0))  # beta is no longer the initial one
    penalty = weight.penalty(kl)
    of_beta, of_kl = torch.autograd.grad(penalty.sum(), [weight.log_beta, kl])
    torch.testing.assert_close(of_beta, torch.tensor(0.5 - 2.5))
    torch.testing.assert_close(of_kl, torch.tensor([3.0, 3.0]))
    torch.testing.assert_close(KLWeight(2.0, None).penalty(kl), 2.0 * kl)


def test_target_of_the_kl_is_per_dimension() -> None:
    assert vae(6, 2, target_kl_per_dim=0.25).beta.target == 0.5


def test_samples_have_the_mean_and_deviation_of_the_posterior() -> None:
    model = vae(4, 2)
    obs, noise = torch.randn(1, 4), torch.randn(1, 2)
    samples = []
    model.bound = lambda latent, kl, batch: samples.append(latent)
    model.loss(batch_of(obs, 1), {"latent": noise})
    mean, log_var = model.encoder(obs).chunk(2, -1)
    torch.testing.assert_close(samples[0], mean + (0.5 * log_var).exp() * noise)
    torch.testing.assert_close(model.encode(obs), mean)


def with_prior() -> Any:
    return model_of("vae", GOALS, latent=2, prior=["goal"], **{"network.hidden": [8]})


def test_prior_network_sees_only_its_entries() -> None:
    model = with_prior()
    obs = {"seen": torch.randn(5, 3), "goal": torch.randn(5, 2)}
    prior, change = model.parameters_of(obs)
    other_prior, other_change = model.parameters_of(obs | {"seen": torch.randn(5, 3)})
    assert torch.equal(prior, other_prior) and not torch.equal(change, other_change)
    third, _ = model.parameters_of(obs | {"goal": torch.randn(5, 2)})
    assert not torch.equal(prior, third)


def test_posterior_without_change_is_the_prior() -> None:
    model = with_prior()
    torch.nn.init.zeros_(model.encoder.output.weight)
    torch.nn.init.zeros_(model.encoder.output.bias)
    obs = {"seen": torch.randn(5, 3), "goal": torch.randn(5, 2)}
    prior, change = model.parameters_of(obs)
    assert torch.equal(model.encode(obs), prior[:, :2]) and not gaussian_kl(prior, change).any()


def test_loss_of_a_vae_with_a_prior_network_is_that_of_its_sample_and_the_kl() -> None:
    model, noise = with_prior(), torch.randn(5, 2)
    obs = {"seen": torch.randn(5, 3), "goal": torch.randn(5, 2)}
    batch = {"obs": obs, "weight": torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])}
    losses, metrics = model.loss(batch, {"latent": noise})
    prior, change = model.parameters_of(obs)
    (mean, std), (prior_mean, prior_std) = (
        (mean, (0.5 * log_var).exp()) for mean, log_var in (x.chunk(2, -1) for x in (prior + change, prior))
    )
    kl = kl_divergence(Normal(mean, std), Normal(prior_mean, prior_std)).sum(-1)
    error, _ = model.reconstruct(mean + std * noise, batch)
    torch.testing.assert_close(losses, error + kl)
    torch.testing.assert_close(metrics["loss/representation_kl"], kl[:4].detach().mean())


def test_encoder_sees_the_parameters_of_the_prior() -> None:
    model = with_prior()
    obs = {"seen": torch.randn(5, 3), "goal": torch.randn(5, 2)}
    _, change = model.parameters_of(obs)
    model.prior.output.bias.data += 1.0
    _, other = model.parameters_of(obs)
    assert not torch.equal(change, other)


@pytest.mark.parametrize(
    ("space", "changes", "fault"),
    [
        (GOALS, {"prior": ["goals"]}, r"prior=goals: must be an entry of the observation, but observations have"),
        (Box(-1, 1, (3,), np.float32), {"prior": ["goal"]}, r"prior=goal: .*, but observations have none"),
        (GOALS, {"beta": 0.0, "target_kl_per_dim": 0.5}, r"beta=0\.0: must be above 0"),
    ],
)
def test_vae_refuses_settings_that_do_not_fit(space: Any, changes: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        model_of("vae", space, **changes)
