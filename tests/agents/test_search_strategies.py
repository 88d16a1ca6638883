"""Search strategies: updates computed by hand or by a slow loop, and their invariances."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from toys import toy

from rlrun.agents.evolution.covariance import Full, Separable
from rlrun.agents.evolution.openai_es import shaped
from rlrun.agents.evolution.policy import directions, orthogonalised
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.types import Context

Build = Callable[..., Loop]

START = Context(0, 0, 0.0)


def agent(build: Build, algo: str, dim: int = 2, env: str = "Sphere", **changes: Any) -> Any:
    """Returns an agent whose parameters are a point of `dim` coordinates."""
    function = {"env.id": f"rlrun/{env}-v0", "env.kwargs": {"dim": dim}, "env.max_episode_steps": None}
    return build(toy(algo, **function, **changes), begin=False).agent


def tell(agent: Any, params: Any, fitness: Any, updates: int = 0) -> Any:
    return agent.update({"params": torch.tensor(params), "fitness": torch.tensor(fitness)}, Context(updates, 0, 0.0))


def test_cem_fits_a_gaussian_to_its_elite(build: Build) -> None:
    cem = agent(build, "cem", **{"algo.population": 4, "algo.elite_fraction": 0.5})
    tell(cem, [[9.0, 9.0], [1.0, 4.0], [3.0, -2.0], [7.0, 7.0]], [0.0, 2.0, 3.0, 1.0])
    assert cem.mean.tolist() == [2.0, 1.0]
    assert cem.covariance.C.tolist() == [1.0, 9.0]  # population variance: divided by 2, not by 1


def test_cem_log_weights_and_covariance_about_the_previous_mean(build: Build) -> None:
    """Weights log(3 / i), normalised; C = 3/4 of the old C + 1/4 of the weighted squares about the old mean."""
    more = {"algo.elite_weights": "log", "algo.covariance_about": "previous", "algo.covariance_rate": 0.25}
    given = {"algo.population": 4, "algo.elite_fraction": 0.5, "algo.init_std": 2.0} | more
    params, fitness = [[9.0, 9.0], [1.0, 4.0], [3.0, -2.0], [7.0, 7.0]], [0.0, 2.0, 3.0, 1.0]
    best = math.log(3) / (math.log(3) + math.log(1.5))
    x, y = 3 * best + 1 - best, -2 * best + 4 * (1 - best)
    xx, yy = 9 * best + 1 - best, 4 * best + 16 * (1 - best)
    xy = -6 * best + 4 * (1 - best)
    full = agent(build, "cem", **given, **{"algo.covariance": "full"})
    tell(full, params, fitness)
    assert full.mean.tolist() == pytest.approx([x, y])
    expected = np.array([[3 + xx / 4, xy / 4], [xy / 4, 3 + yy / 4]])
    assert full.covariance.C.numpy() == pytest.approx(expected)
    diagonal = agent(build, "cem", **given)
    tell(diagonal, params, fitness)
    assert diagonal.covariance.C.tolist() == pytest.approx([3 + xx / 4, 3 + yy / 4])


def test_cem_draws_from_its_full_covariance(build: Build) -> None:
    given = {"algo.population": 4, "algo.covariance": "full", "algo.elite_fraction": 0.5, "algo.extra_std": 0.5}
    cem = agent(build, "cem", dim=3, **given)
    root = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.3, 0.0], [-0.2, 0.1, 2.0]])
    cem.covariance.C.copy_(root @ root.T)
    cem.covariance.decompose()
    drawn = torch.cat([cem.ask() for _ in range(20_000)])
    torch.testing.assert_close(drawn.T.cov(), root @ root.T + 0.25 * torch.eye(3), rtol=0.03, atol=0.03)


def test_cem_extra_noise_is_in_the_samples_and_decays(build: Build) -> None:
    values = {"algo.population": 4, "algo.elite_fraction": 0.5, "algo.extra_std": 2.0, "algo.extra_decay_time": 4}
    cem, bare = (agent(build, "cem", **(values | {"algo.extra_std": std})) for std in (2.0, 0.0))
    for generation in range(6):
        variance = 4.0 * max(0.0, 1 - generation / 4)
        noisy, plain = ((one.ask() - one.mean) for one in (cem, bare))  # equal seeds draw equal directions
        torch.testing.assert_close(noisy, plain / bare.covariance.C.sqrt() * (cem.covariance.C + variance).sqrt())
        for one in (cem, bare):
            tell(one, [[0.0, 0.0], [1.0, 4.0], [3.0, -2.0], [0.0, 0.0]], [0.0, 2.0, 3.0, 1.0], generation)
        assert cem.covariance.C.tolist() == [1.0, 9.0]


def test_cem_refuses_an_empty_elite(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo\.elite_fraction=0\.05: must be at least 1 / 19"):
        agent(build, "cem", **{"algo.population": 19, "algo.elite_fraction": 0.05})
    assert agent(build, "cem", **{"algo.population": 20, "algo.elite_fraction": 0.05}).num_elites == 1
    assert agent(build, "cem", **{"algo.population": 100, "algo.elite_fraction": 0.29}).num_elites == 29


def test_evolution_starts_at_the_weights_of_its_policy(build: Build) -> None:
    for algo in ("cem", "cma_es", "openai_es"):
        loop: Any = build(toy(algo))
        assert loop.agent.mean.abs().sum() > 0
        assert torch.equal(loop.agent.mean, loop.agent.policy.initial())
        assert agent(build, algo, dim=3).mean.tolist() == [0.0, 0.0, 0.0]


class SlowCma:
    """CMA-ES as in the tutorial, with loops and in double precision."""

    def __init__(self, n: int, population: int, sigma: float):
        self.n, self.sigma, self.g = n, sigma, 0
        self.mean, self.C = np.zeros(n), np.eye(n)
        self.p_sigma, self.p_c = np.zeros(n), np.zeros(n)
        mu = self.mu = population // 2
        raw = [math.log((population + 1) / 2) - math.log(i) for i in range(1, population + 1)]
        self.mu_eff = sum(raw[:mu]) ** 2 / sum(w * w for w in raw[:mu])
        bad = sum(raw[mu:]) ** 2 / sum(w * w for w in raw[mu:])
        self.c1 = 2 / ((n + 1.3) ** 2 + self.mu_eff)
        self.cmu = min(1 - self.c1, 2 * (self.mu_eff - 2 + 1 / self.mu_eff) / ((n + 2) ** 2 + self.mu_eff))
        least = min(1 + self.c1 / self.cmu, 1 + 2 * bad / (self.mu_eff + 2), (1 - self.c1 - self.cmu) / (n * self.cmu))
        up, down = sum(w for w in raw if w > 0), sum(-w for w in raw if w < 0)
        self.w = [w / up if w >= 0 else least * w / down for w in raw]
        self.cs = (self.mu_eff + 2) / (n + self.mu_eff + 5)
        self.ds = 1 + 2 * max(0.0, math.sqrt((self.mu_eff - 1) / (n + 1)) - 1) + self.cs
        self.cc = (4 + self.mu_eff / n) / (n + 4 + 2 * self.mu_eff / n)
        self.chi = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))

    def tell(self, x: np.ndarray, fitness: np.ndarray) -> None:
        values, B = np.linalg.eigh(self.C)
        root = B @ np.diag(values**-0.5) @ B.T
        y = [(x[i] - self.mean) / self.sigma for i in np.argsort(-fitness, kind="stable")]
        step = sum(self.w[i] * y[i] for i in range(self.mu))
        self.mean = self.mean + self.sigma * step
        self.p_sigma = (1 - self.cs) * self.p_sigma + math.sqrt(self.cs * (2 - self.cs) * self.mu_eff) * root @ step
        length = np.linalg.norm(self.p_sigma)
        self.sigma *= math.exp(self.cs / self.ds * (length / self.chi - 1))
        self.g += 1
        warm = math.sqrt(1 - (1 - self.cs) ** (2 * (self.g + 1)))
        h = 1.0 if length / warm < (1.4 + 2 / (self.n + 1)) * self.chi else 0.0
        self.p_c = (1 - self.cc) * self.p_c + h * math.sqrt(self.cc * (2 - self.cc) * self.mu_eff) * step
        C = (1 + self.c1 * (1 - h) * self.cc * (2 - self.cc) - self.c1 - self.cmu * sum(self.w)) * self.C
        C = C + self.c1 * np.outer(self.p_c, self.p_c)
        for w, each in zip(self.w, y, strict=True):
            w = w if w >= 0 else w * self.n / (np.linalg.norm(root @ each) ** 2 + 1e-8)
            C = C + self.cmu * w * np.outer(each, each)
        self.C = C


def test_cma_es_equals_the_tutorial(build: Build) -> None:
    ours = agent(build, "cma_es", dim=5, **{"algo.population": 8, "algo.sigma0": 0.5, "algo.covariance": "full"})
    slow, rng = SlowCma(5, 8, 0.5), np.random.default_rng(0)
    for generation in range(30):
        x, fitness = ours.ask(), torch.tensor(rng.normal(size=8), dtype=torch.float32)
        slow.tell(x.double().numpy(), fitness.double().numpy())
        ours.update({"params": x, "fitness": fitness}, Context(generation, 0, 0.0))
        assert ours.mean.numpy() == pytest.approx(slow.mean, rel=1e-3, abs=1e-4)
        assert ours.sigma.item() == pytest.approx(slow.sigma, rel=1e-3)
        assert ours.covariance.C.numpy() == pytest.approx(slow.C, rel=1e-2, abs=1e-3)
    assert abs(slow.C - np.eye(5)).max() > 0.3, "the covariance must have moved for this to mean something"


def test_cma_es_draws_from_its_covariance(build: Build) -> None:
    cma = agent(build, "cma_es", dim=3, **{"algo.population": 4, "algo.covariance": "full", "algo.sigma0": 2.0})
    root = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.3, 0.0], [-0.2, 0.1, 2.0]])
    cma.covariance.C.copy_(root @ root.T)
    cma.covariance.decompose()
    drawn = torch.cat([cma.ask() for _ in range(20_000)])
    torch.testing.assert_close(drawn.T.cov(), 4 * root @ root.T, rtol=0.03, atol=0.03)
    torch.testing.assert_close(cma.covariance.whiten(cma.covariance.spread(drawn)).norm(), drawn.norm())


def test_cma_es_with_many_parameters_is_separable(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlrun.agents.evolution.cma_es.LARGE", 2)
    for dim, form in ((2, Full), (3, Separable)):
        assert type(agent(build, "cma_es", dim, **{"algo.covariance": "auto"}).covariance) is form


def test_cma_es_separable_form_is_the_diagonal_of_the_full_one(build: Build) -> None:
    full, diagonal = (
        agent(build, "cma_es", dim=3, **{"algo.population": 4, "algo.covariance": kind})
        for kind in ("full", "separable")
    )
    diagonal.rates = full.rates  # the separable form has larger learning rates
    diagonal.weights.copy_(full.weights)
    x = full.ask()
    for one in (full, diagonal):
        one.update({"params": x, "fitness": torch.tensor([0.0, 3.0, 1.0, 2.0])}, START)
    torch.testing.assert_close(diagonal.covariance.C, full.covariance.C.diagonal())
    torch.testing.assert_close(diagonal.path_sigma, full.path_sigma)


@pytest.mark.parametrize("algo", ["cem", "cma_es", "openai_es"])
def test_cma_es_depends_only_on_the_order_of_fitness(algo: str, build: Build) -> None:
    plain, bent = agent(build, algo, dim=3), agent(build, algo, dim=3)
    for generation in range(3):
        x = plain.ask()
        fitness = -(x - 1).square().sum(1)
        assert torch.equal(x, bent.ask())
        plain.update({"params": x, "fitness": fitness}, Context(generation, 0, 0.0))
        bent.update({"params": x, "fitness": -(1 - fitness).log() * 7 + 100}, Context(generation, 0, 0.0))
    assert torch.equal(plain.mean, bent.mean)


def test_cma_es_evaluates_its_mean_or_its_best_sample(build: Build) -> None:
    for report, expected in (("mean", None), ("best", [5.0, 6.0])):
        cma = agent(build, "cma_es", **{"algo.report": report})
        tell(cma, [[1.0, 2.0], [5.0, 6.0], [0.0, 0.0], [1.0, 1.0]], [0.0, 9.0, 1.0, 2.0])
        tell(cma, [[1.0, 2.0], [7.0, 8.0], [0.0, 0.0], [1.0, 1.0]], [0.0, 8.0, 1.0, 2.0], 1)
        action, _ = cma.act(torch.zeros(1, 0), {}, explore=False)
        assert action[0].tolist() == (cma.mean.tolist() if expected is None else expected)


def test_openai_es_follows_the_estimated_gradient(build: Build) -> None:
    values = {"algo.population": 4, "algo.std": 0.5, "algo.shaping": "none", "algo.weight_decay": 0.0}
    es = agent(build, "openai_es", **values)
    seen = []
    es.optim.apply = lambda grads: seen.append(grads) or grads.norm()
    tell(es, [[0.5, 0.0], [-0.5, 0.0], [0.0, 1.0], [0.0, -1.0]], [3.0, 1.0, 2.0, 6.0])
    # 1 / (n std) sum F eps, with eps = params / std: [(3 - 1) * 1, (2 - 6) * 2] / (4 * 0.5)
    assert seen[0].tolist() == [-1.0, 4.0]


def test_openai_es_fitness_shaping() -> None:
    fitness = torch.tensor([10.0, -3.0, 1000.0, 0.0, 0.0])
    assert shaped(fitness, "none") is fitness
    assert shaped(fitness, "ranks").tolist() == [0.25, -0.5, 0.5, -0.125, -0.125]
    standard = shaped(fitness, "standardise")
    assert standard.mean().item() == pytest.approx(0, abs=1e-6) and standard.std(correction=0).item() == pytest.approx(
        1
    )
    assert shaped(torch.ones(4), "ranks").tolist() == [0.0] * 4 == shaped(torch.ones(4), "standardise").tolist()


@pytest.mark.parametrize("population", [4, 5])
def test_antithetic_directions_come_in_pairs(population: int) -> None:
    drawn = directions(Stream(0, "x"), population, 3, antithetic=True, orthogonal=False)
    assert drawn.shape == (population, 3)
    pairs = population // 2
    assert torch.equal(drawn[:pairs], -drawn[(population + 1) // 2 :][:pairs])
    alone = directions(Stream(0, "x"), population, 3, antithetic=False, orthogonal=False)
    assert len(alone.unique(dim=0)) == population


def test_orthogonal_directions_keep_their_norms() -> None:
    """(5, 0) minus its component along (3, 4) is (16, -12) / 5; scaled to its original norm: (4, -3)."""
    turned = orthogonalised(torch.tensor([[3.0, 4.0], [5.0, 0.0]]))
    torch.testing.assert_close(turned, torch.tensor([[3.0, 4.0], [4.0, -3.0]]))
    torch.testing.assert_close(orthogonalised(torch.tensor([[-2.0]])), torch.tensor([[-2.0]]))


def test_orthogonal_directions_come_in_blocks_of_the_number_of_parameters() -> None:
    free = directions(Stream(0, "x"), 7, 3, antithetic=False, orthogonal=False)
    drawn = directions(Stream(0, "x"), 7, 3, antithetic=False, orthogonal=True)
    torch.testing.assert_close(drawn.norm(dim=1), free.norm(dim=1))
    angles = drawn @ drawn.T
    for rows in (slice(0, 3), slice(3, 6)):
        torch.testing.assert_close(angles[rows, rows], angles.diagonal()[rows].diag())
    assert angles[0, 3].abs() > 1e-3, "the next ones are drawn anew"
    both = directions(Stream(0, "x"), 14, 3, antithetic=True, orthogonal=True)
    assert torch.equal(both, torch.cat([drawn, -drawn]))


def test_orthogonal_directions_are_each_standard_normal() -> None:
    stream = Stream(0, "x")
    drawn = torch.stack([directions(stream, 3, 3, antithetic=False, orthogonal=True) for _ in range(10_000)])
    for row in drawn.unbind(1):
        torch.testing.assert_close(row.mean(0), torch.zeros(3), rtol=0, atol=0.04)
        torch.testing.assert_close(row.T.cov(), torch.eye(3), rtol=0, atol=0.06)
        assert row.pow(4).mean().item() == pytest.approx(3.0, abs=0.15)


def test_nop_acts_at_random(build: Build) -> None:
    nop: Any = build(toy("nop"), begin=False).agent
    obs = torch.randn(4).expand(2000, 4)
    share = nop.act(obs, {}, explore=True)[0].float().mean().item()
    assert share == pytest.approx(0.5, abs=0.05)
