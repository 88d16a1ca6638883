"""Values of bins, dimension by dimension: the policy and the action values that they define."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.networks.autoregressive import AutoregressiveValues
from rlrun.networks.torsos import LinearTorso, Mlp

DIMS, BINS = 3, 4
OBS = Box(-np.inf, np.inf, (2,), np.float32)
ACTION = Box(-1.0, 1.0, (DIMS,), np.float32)
ALPHA = torch.tensor(0.7)


def head() -> AutoregressiveValues:
    norm = {"name": "none"}
    cfg = Mlp.Config(hidden=[16], activation="tanh", init="uniform", norm=norm)
    made = AutoregressiveValues(Mlp(cfg, [OBS, ACTION], DIMS), DIMS, BINS)
    with torch.no_grad():
        made.output.weight.mul_(10)
    return made.requires_grad_(False)


def every_action() -> Tensor:
    """Returns all combinations of the centres of bins, [BINS^DIMS, DIMS]."""
    centres = torch.linspace(-1, 1, BINS).tolist()
    return torch.tensor(list(itertools.product(centres, repeat=DIMS)))


def test_values_of_a_dimension_depend_on_the_dimensions_before_it_alone() -> None:
    network, obs, action = head(), torch.randn(5, 2), torch.rand(5, DIMS)
    values = network.values(obs, action)
    assert values.shape == (DIMS, 5, BINS)
    for j in range(DIMS):
        changed = action.clone()
        changed[:, j] -= 0.5
        other = network.values(obs, changed)
        for k in range(DIMS):
            assert torch.equal(values[k], other[k]) == (k <= j)


def test_one_dimension_has_the_values_of_the_batched_product() -> None:
    network, obs, action = head(), torch.randn(5, 2), torch.rand(5, DIMS)
    values = network.values(obs, action)
    for k in range(DIMS):
        torch.testing.assert_close(network.values_of(k, obs, action), values[k])


def test_value_is_the_soft_optimum_of_the_policy_at_its_temperature() -> None:
    """pi(a) is proportional to exp(Q / alpha), and V = alpha log mean_a exp(Q / alpha), by brute force."""
    network, action = head(), every_action()
    obs = torch.randn(1, 2).expand(len(action), 2)
    q = network.value(obs, action, ALPHA)
    log_prob = torch.zeros(len(action))
    values = network.values(obs, action)
    for k in range(DIMS):
        bin_index = network.nearest_bin(action[:, k])
        log_prob += (values[k] / ALPHA).log_softmax(-1).gather(-1, bin_index.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(log_prob.exp().sum(), torch.tensor(1.0))
    torch.testing.assert_close((q / ALPHA).log_softmax(0), log_prob, rtol=1e-4, atol=1e-4)
    state_value = ALPHA * ((values[0, 0] / ALPHA).logsumexp(0) - math.log(BINS))
    torch.testing.assert_close(ALPHA * ((q / ALPHA).logsumexp(0) - DIMS * math.log(BINS)), state_value)


def test_samples_have_the_probabilities_of_the_policy() -> None:
    network, action = head(), every_action()
    obs = torch.randn(1, 2)
    q = network.value(obs.expand(len(action), 2), action, ALPHA)
    count = 20_000
    noise = Stream(0, "test").uniform(count, DIMS, BINS)
    drawn, _ = network.sample(obs.expand(count, 2), ALPHA, noise)
    place = (network.nearest_bin(drawn) * torch.tensor([BINS**2, BINS, 1])).sum(-1)
    frequency = torch.bincount(place, minlength=len(action)) / count
    expected = (q / ALPHA).softmax(0)
    chi_square = (count * (frequency - expected) ** 2 / expected).sum()
    assert chi_square < 103.4  # the 0.999 quantile for 63 degrees of freedom


def test_divergences_are_those_of_every_dimension_from_uniform_bins() -> None:
    network, obs = head(), torch.randn(6, 2)
    action, divergences = network.sample(obs, ALPHA, torch.rand(6, DIMS, BINS))
    values = network.values(obs, action)
    for k in range(DIMS):
        p = (values[k] / ALPHA).softmax(-1)
        torch.testing.assert_close(divergences[:, k], (p * (p * BINS).log()).sum(-1))


def test_greedy_actions_take_the_best_bin_of_every_dimension() -> None:
    network, obs = head(), torch.randn(6, 2)
    action = network.greedy(obs, 6)
    chosen = network.nearest_bin(action)
    assert torch.equal(network.values(obs, action).argmax(-1).T, chosen)


def test_actions_lie_in_the_nearest_bin() -> None:
    network = head()  # centres -1, -1/3, 1/3, 1
    action = torch.tensor([[-1.0, -0.7, -0.6], [0.0001, 0.6, 1.0]])
    assert network.nearest_bin(action).tolist() == [[0, 0, 1], [2, 2, 3]]


@pytest.mark.parametrize("shape", [(3, 4, 2), (4, 2)])
def test_inputs_of_the_whole_ensemble_are_repeated_for_inputs_of_single_members(shape: Any) -> None:
    torso = LinearTorso(None, [OBS, OBS], None)
    shared, own = torch.randn(4, 2), torch.randn(*shape)
    expected = torch.cat([shared.expand(shape), own], -1)
    assert torch.equal(torso(shared, own), expected)
