"""The part `algo.head`: constant standard deviations, limited means, and distributions of a plug-in."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.config.jobs import jobs
from rlrun.core.random import Stream
from rlrun.errors import ConfigError

Build = Callable[..., Any]
PLUGIN = Path(__file__).parents[1] / "example_plugin"
PENDULUM: dict[str, Any] = {"env.id": "Pendulum-v1"}
FIXED = {"name": "gaussian", "learn_std": False, "tanh_mean": True}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(PLUGIN))
    import rlrun_example

    return rlrun_example


@pytest.mark.parametrize("algo", ["a2c", "ppo", "ppo_critic_first"])
def test_gaussian_head_has_a_constant_std_and_a_mean_limited_by_tanh(algo: str, build: Build) -> None:
    std = math.sqrt(0.1)
    loop = train(build(toy(algo, **PENDULUM, **{"algo.head": FIXED, "algo.init_std": std})), 3)
    policy = loop.agent.policy
    assert "log_std" not in dict(policy.named_parameters())
    with torch.no_grad():
        policy.output.bias.fill_(2.0)
        policy.output.weight.zero_()
        dist = policy(torch.randn(4, 3))
    assert dist.mean.flatten().tolist() == pytest.approx([math.tanh(2.0)] * 4)
    assert dist.log_std.exp().flatten().tolist() == pytest.approx([std] * 4)
    assert loop.agent.report()["std"].item() == pytest.approx(std)


def test_gaussian_head_with_its_defaults_equals_auto(build: Build) -> None:
    found = []
    for head in ({"name": "auto"}, FIXED | {"learn_std": True, "tanh_mean": False}):
        agent = train(build(toy("ppo", **PENDULUM, **{"algo.head": head})), 3).agent
        found.append(torch.cat([param.detach().flatten() for param in agent.parameters()]))
    assert torch.equal(*found)


def test_gaussian_head_refuses_discrete_actions(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"^algo\.head=gaussian: needs Box actions; .* has Discrete\(2\)"):
        build(toy("a2c", **{"algo.head": FIXED}))


def test_particles_of_svpg_have_the_head_of_their_section(build: Build) -> None:
    loop = build(toy("svpg", **PENDULUM, **{"algo.particle.head": FIXED}))
    assert all(particle.policy.tanh_mean for particle in loop.agent.particles)


@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_head_of_a_plugin_brings_its_own_distribution(engine: str, example: Any, build: Build) -> None:
    head = {"name": "kumaraswamy", "largest": 4.0}
    changes = {"algo.head": head, "trainer.engine": engine}
    loop = build(toy("ppo", **PENDULUM, **changes))
    before = [param.clone() for param in loop.agent.policy.parameters()]
    train(loop, 3)
    assert isinstance(loop.agent.policy(torch.zeros(1, 3)), example.Kumaraswamy)
    assert all((now != old).any() for now, old in zip(loop.agent.policy.parameters(), before, strict=True))


def test_noise_on_actions_needs_a_gaussian_head(example: Any, build: Build) -> None:
    noise = {"name": "gaussian", "mean": 0.0, "std": 0.1, "random_action": 0.0}
    changes = {"algo.head": {"name": example.KumaraswamyPolicy.registered, "largest": 4.0}, "algo.noise": noise}
    with pytest.raises(ConfigError, match=r"^algo\.noise=gaussian: needs a Gaussian policy; choose algo\.noise=none$"):
        build(toy("ppo", **PENDULUM, **changes))
    build(toy("ppo", **PENDULUM, **changes | {"algo.head": FIXED}))


def test_head_of_a_plugin_is_chosen_on_the_command_line(example: Any) -> None:
    (job,) = jobs(["algo=ppo", "env=Pendulum", "algo.head=kumaraswamy", "plugins=[rlrun_example]"])
    assert job.values["algo"]["head"] == {"name": "kumaraswamy", "largest": 4.0}


def test_distribution_of_the_example_integrates_to_1_and_has_its_entropy(example: Any) -> None:
    a, b = torch.tensor([2.5], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64)
    dist = example.Kumaraswamy(a, b)
    x = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    log_prob = example.Kumaraswamy(a.expand(len(x), 1), b.expand(len(x), 1)).log_prob(x.unsqueeze(-1))
    density = log_prob.exp()
    assert torch.trapezoid(density, x).item() == pytest.approx(1, abs=1e-4)
    assert torch.trapezoid(-density * log_prob, x).item() == pytest.approx(dist.entropy().item(), abs=1e-3)
    assert x[density.argmax()].item() == pytest.approx(dist.mode().item(), abs=1e-3)
    many = example.Kumaraswamy(a.expand(20000, 1), b.expand(20000, 1))
    samples = many.sample(many.noise(Stream(0, "act", torch.device("cpu"))))
    assert samples.mean().item() == pytest.approx(torch.trapezoid(density * x, x).item(), abs=0.02)
