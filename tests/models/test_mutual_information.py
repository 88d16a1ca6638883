"""Estimates of mutual information: of Gaussians, conditional, from all kinds of unrelated rows."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Normal
from rlrun.functional.information import donsker_varadhan, donsker_varadhan_loss, jensen_shannon_loss, kl_loss
from rlrun.functional.losses import batch_mean
from rlrun.models.mutual_information import LatestRows, MutualInformation
from rlrun.spaces import unbounded

ONE = unbounded(1)
PRODUCTS = ("buffer", "double_buffer", "shuffle", "shift", "distribution")


def estimator(bound: str, product: str, conditional: bool = False, size: int = 4096, hidden: Any = (32,)) -> Any:
    config = MutualInformation.Config(bound=bound, product=product, buffer_size=size, hidden=[*hidden])  # type: ignore[arg-type]
    return MutualInformation(config, ONE, ONE, ONE if conditional else None)


def correlated(rows: int, correlation: float) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 1)
    return x, correlation * x + math.sqrt(1 - correlation**2) * torch.randn(rows, 1)


def information(correlation: float) -> float:
    """Returns the mutual information of two Gaussians, in nats."""
    return -0.5 * math.log(1 - correlation**2)


def standard(rows: int) -> Normal:
    return Normal(torch.zeros(rows, 1), torch.zeros(rows, 1))


def estimated(model: Any, correlation: float, steps: int, rate: float, batch: int) -> tuple[float, float]:
    """Trains an estimator. Returns its estimate, and the mean of its pointwise information, of 20,000 new rows."""
    optim, draws = Optim(model.parameters(), rate), Stream(0, "draws")
    for step in range(steps):
        optim.learning_rate.fill_(rate * (1 - step / steps))
        loss, _ = model.loss(*correlated(batch, correlation), model.noise(batch, draws), known=standard(batch))
        optim.step(batch_mean(loss))
    x, y = correlated(20_000, correlation)
    with torch.no_grad():
        _, estimate = model.loss(x, y, model.noise(20_000, draws), known=standard(20_000))
        return float(estimate), float(model.pmi(x, y, known=standard(20_000)).mean())


@pytest.mark.parametrize("bound", ["dv", "kld", "jsd", "ml"])
def test_estimates_of_gaussians_are_close(bound: str) -> None:
    torch.manual_seed(0)
    exact = information(0.9)
    for found in estimated(estimator(bound, "shuffle"), 0.9, steps=250, rate=1e-2, batch=256):
        assert abs(found - exact) < 0.1 * exact


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.5, 0.9])
@pytest.mark.parametrize("bound", ["dv", "kld", "jsd", "ml"])
def test_estimates_of_gaussians_are_within_a_tenth(bound: str, correlation: float) -> None:
    torch.manual_seed(0)
    model = estimator(bound, "buffer", size=65_536, hidden=(64, 64))
    exact = information(correlation)
    for found in estimated(model, correlation, steps=1500, rate=3e-3, batch=512):
        assert abs(found - exact) < 0.1 * exact


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_source_of_unrelated_rows_gives_the_estimate(product: str) -> None:
    torch.manual_seed(0)
    estimate, _ = estimated(estimator("kld", product), 0.9, steps=250, rate=1e-2, batch=256)
    assert abs(estimate - information(0.9)) < 0.1 * information(0.9)


@pytest.mark.parametrize("bound", ["kld", "jsd", "ml"])
def test_conditionally_independent_variables_have_no_information(bound: str) -> None:
    """x and y are z plus noise: they are correlated, but not given z."""
    torch.manual_seed(0)
    model, draws = estimator(bound, "distribution", conditional=True), Stream(0, "draws")
    optim = Optim(model.parameters(), 3e-3)

    def drawn(rows: int) -> tuple[Tensor, Tensor, Tensor, Normal]:
        z = torch.randn(rows, 1)
        return z + torch.randn(rows, 1), z + torch.randn(rows, 1), z, Normal(z, torch.zeros(rows, 1))

    for step in range(300):
        optim.learning_rate.fill_(3e-3 * (1 - step / 300))
        x, y, z, known = drawn(512)
        loss, _ = model.loss(x, y, model.noise(512, draws), z, known)
        optim.step(batch_mean(loss))
    x, y, z, known = drawn(20_000)
    with torch.no_grad():
        _, estimate = model.loss(x, y, model.noise(20_000, draws), z, known)
        pointwise = model.pmi(x, y, z, known).mean()
    assert abs(estimate) < 0.02 and abs(pointwise) < 0.02


def test_conditional_information_sees_the_condition() -> None:
    model = estimator("kld", "distribution", conditional=True)
    x, y = correlated(5, 0.5)
    assert not torch.equal(model.pmi(x, y, torch.zeros(5, 1)), model.pmi(x, y, torch.ones(5, 1)))


def test_bounds_equal_their_formulas() -> None:
    joint, product = torch.randn(7), torch.randn(7)
    expected = joint.mean() - product.exp().mean().log()
    torch.testing.assert_close(donsker_varadhan(joint, product), expected)
    torch.testing.assert_close(-kl_loss(joint, product).mean(), joint.mean() - product.exp().mean() + 1)
    sigmoid = torch.sigmoid(joint).log().mean() + torch.sigmoid(-product).log().mean() + math.log(4)
    torch.testing.assert_close(-jensen_shannon_loss(joint, product).mean(), sigmoid)
    assert torch.isfinite(kl_loss(joint, product + 1000)).all()


def test_gradient_of_the_donsker_varadhan_loss_divides_by_the_average() -> None:
    product = torch.randn(7, requires_grad=True)
    average = product.exp().mean()
    (found,) = torch.autograd.grad(donsker_varadhan_loss(torch.zeros(7), product, average).mean(), product)
    (expected,) = torch.autograd.grad(-donsker_varadhan(torch.zeros(7), product), product)
    torch.testing.assert_close(found, expected)


def test_average_of_the_first_batch_is_its_mean_and_later_ones_move_slowly() -> None:
    model = estimator("dv", "shuffle")
    assert model.corrected() == 1.0
    model.move_average(torch.full((4,), 2.0))
    torch.testing.assert_close(model.corrected().log(), torch.tensor(2.0))
    model.move_average(torch.full((4,), 5.0))
    share = 0.01 / (0.01 + 0.99 * 0.01)
    expected = (1 - share) * math.exp(2.0) + share * math.exp(5.0)
    torch.testing.assert_close(model.corrected(), torch.tensor(expected))
    x, y = correlated(3, 0.5)
    torch.testing.assert_close(model.pmi(x, y), model.value(x, y, None) - math.log(expected))


@pytest.mark.parametrize("product", PRODUCTS)
def test_only_rows_of_the_batch_have_gradients_in_y(product: str) -> None:
    model = estimator("kld", product)
    x, y = correlated(8, 0.5)
    y.requires_grad_()
    others = model.product(x, y, model.noise(8, Stream(0, "draws")), standard(8))[1]
    assert others.requires_grad == (product in ("shuffle", "shift"))


def test_unrelated_rows_come_from_where_the_setting_says() -> None:
    x, y = torch.arange(4.0).unsqueeze(-1), 10 + torch.arange(4.0).unsqueeze(-1)
    assert estimator("kld", "shift").product(x, y, {}, None)[1].flatten().tolist() == [13, 10, 11, 12]
    order = {"order": torch.tensor([2, 0, 3, 1])}
    assert estimator("kld", "shuffle").product(x, y, order, None)[1].flatten().tolist() == [12, 10, 13, 11]
    uniform = {"x": torch.tensor([0.0, 0.3, 0.6, 0.9]), "y": torch.tensor([0.9, 0.6, 0.3, 0.0])}
    single, double = estimator("kld", "buffer"), estimator("kld", "double_buffer")
    assert [rows.flatten().tolist() for rows in single.product(x, y, uniform, None)] == [[0, 1, 2, 3], [13, 12, 11, 10]]
    double.product(x + 4, y + 4, uniform, None)
    found = [rows.flatten().tolist() for rows in double.product(x, y, uniform, None)]
    assert found == [[4, 6, 0, 3], [13, 10, 16, 14]]


def test_ring_holds_the_latest_rows() -> None:
    ring = LatestRows(3, 1)
    ring.add(torch.tensor([[1.0], [2.0]]))
    assert ring.sample(torch.tensor([0.0, 0.49, 0.99])).flatten().tolist() == [1, 1, 2]
    ring.add(torch.tensor([[3.0], [4.0]]))
    assert sorted(ring.sample(torch.tensor([0.0, 0.5, 0.99])).flatten().tolist()) == [2, 3, 4]


def test_ring_holds_the_first_rows_of_more_than_its_size() -> None:
    ring = LatestRows(3, 1)
    ring.add(torch.arange(5.0).view(5, 1))
    assert ring.rows.flatten().tolist() == [0.0, 1.0, 2.0] and ring.added == 3


def test_conditional_estimates_refuse_what_is_no_bound() -> None:
    with pytest.raises(ConfigError, match="bound=dv: is no bound of a conditional mutual information"):
        estimator("dv", "distribution", conditional=True)
    with pytest.raises(ConfigError, match=r"product=shuffle: has no samples of P\(y\|z\)"):
        estimator("kld", "shuffle", conditional=True)


def test_loss_of_dv_moves_its_average() -> None:
    model = estimator("dv", "shift")
    x, y = correlated(8, 0.5)
    model.loss(x, y, {})
    torch.testing.assert_close(model.corrected(), model.value(x, y.roll(1, 0), None).exp().mean().detach())


def test_likelihood_is_relative_to_the_known_distribution() -> None:
    model = estimator("ml", "shift")
    torch.nn.init.zeros_(model.network.output.weight)
    torch.nn.init.zeros_(model.network.output.bias)
    x, y = correlated(8, 0.5)
    known = Normal(torch.randn(8, 1), torch.randn(8, 1))
    likely = Normal(known.mean, torch.full((8, 1), math.log(2.0)).log())
    torch.testing.assert_close(model.pmi(x, y, known=known), likely.log_prob(y) - known.log_prob(y))
