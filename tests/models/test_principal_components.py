"""The plain autoencoder, beside principal components."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiBinary
from model_runs import learn, model_of
from torch import Tensor

from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError

LINEAR = {
    "network": {"name": "linear"},
    "decoder.hidden": [],
    "decoder.loss": "squared",
}


def correlated(rows: int, size: int) -> Tensor:
    """Returns rows of a Gaussian with mean 1, whose covariance has eigenvalues 1, 1/2, 1/4, ..."""
    directions, _ = torch.linalg.qr(torch.randn(size, size))
    std = 0.5 ** (0.5 * torch.arange(size))
    return 1.0 + torch.randn(rows, size) * std @ directions


def discarded(rows: Tensor, kept: int) -> Tensor:
    """Returns the mean squared error of the best reconstruction from `kept` numbers: PCA's."""
    covariance = torch.cov(rows.T.double(), correction=0)
    return torch.linalg.eigvalsh(covariance)[:-kept].sum()


@pytest.mark.parametrize(("size", "latent", "steps"), [(4, 1, 300), pytest.param(10, 3, 2000, marks=pytest.mark.slow)])
def test_linear_autoencoder_has_the_error_of_principal_components(size: int, latent: int, steps: int) -> None:
    torch.manual_seed(0)
    rows = correlated(5000, size)
    model = model_of("autoencoder", Box(-np.inf, np.inf, (size,), np.float32), latent=latent, **LINEAR)
    learn(model, rows, steps, batch=256, start=0.1, end=0.0)
    with torch.no_grad():
        error = (model.decode(model.encode(rows)) - rows).square().sum(-1).mean()
    least = discarded(rows, latent)
    assert least * 0.999 <= error <= least * 1.01


def test_model_refuses_a_recurrent_network() -> None:
    lstm = jobs(["algo=sac", "env=Pendulum", "network=lstm"])[0].values["network"]
    settings = {key: value for key, value in lstm.items() if key not in ("actor", "critic")}
    with pytest.raises(ConfigError, match="network=lstm: is not supported, because a model takes single observations"):
        model_of("autoencoder", Box(-1, 1, (4,)), network=settings)


def test_decoded_bits_are_probabilities() -> None:
    model: Any = model_of("autoencoder", MultiBinary(4), latent=3, **{"decoder.loss": "bce"})
    latent = torch.randn(6, 3)
    torch.testing.assert_close(model.decode(latent), model.decoder(latent).sigmoid())
