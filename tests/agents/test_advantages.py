"""Estimators of advantages: what they give the losses, on policy and from old rollouts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.functional.returns import gae, td_lambda, vtrace
from rlrun.tensors import flat
from rlrun.types import Batch

Build = Callable[..., Loop]
ESTIMATED = ("advantage", "return", "log_prob")


def estimator(name: str, **settings: Any) -> dict[str, Any]:
    """Returns the section `algo.advantage` with an estimator in place of the one of the toy."""
    own: dict[str, Any] = {"gae": {"value_lambda": None}, "vtrace": {"rho_clip": 1.0, "c_clip": 1.0}}[name]
    return {"algo.advantage": {"name": name, "gae_lambda": 0.95, "normalize": "none", "clip": None} | own | settings}


def old_rollout(loop: Any) -> Batch:
    """Returns a rollout that another policy collected: the weights change after it."""
    rollout = loop.addons.relabel(loop.collect_rollout())
    with torch.no_grad():
        for param in loop.agent.parameters():
            param.add_(0.5 * torch.randn_like(param))
    return rollout


@pytest.mark.parametrize("value_lambda", [0.5, None])
def test_gae_gives_advantages_returns_and_the_stored_log_probabilities(
    value_lambda: float | None, build: Build
) -> None:
    loop: Any = build(toy("ppo", **estimator("gae", value_lambda=value_lambda)))
    rollout = old_rollout(loop)
    data = loop.agent.advantages(rollout)
    value, next_value = loop.agent.critic.values(rollout)
    ends = rollout["terminated"], rollout["terminated"] | rollout["truncated"]
    assert torch.equal(data["log_prob"], rollout["log_prob"])
    assert torch.equal(data["advantage"], gae(rollout["reward"], value, next_value, *ends, 0.99, 0.95))
    if value_lambda is None:
        assert torch.equal(data["return"], data["advantage"] + value)
    else:
        assert torch.equal(data["return"], td_lambda(rollout["reward"], next_value, *ends, 0.99, value_lambda))


def test_vtrace_weights_an_old_rollout_and_replaces_its_log_probabilities(build: Build) -> None:
    """The importance weights compare the current policy with the one that collected the rollout."""
    loop: Any = build(toy("ppo", **estimator("vtrace", rho_clip=1.2, c_clip=0.9)))
    rollout = old_rollout(loop)
    data = loop.agent.advantages(rollout)
    with torch.no_grad():
        dist = loop.agent.policy(flat(rollout["obs"]))
        current = dist.log_prob(flat(rollout["action"])).view_as(rollout["log_prob"])
        value, next_value = loop.agent.critic.values(rollout)
    ends = rollout["terminated"], rollout["terminated"] | rollout["truncated"]
    log_ratio = current - rollout["log_prob"]
    assert log_ratio.abs().max() > 0.1, "the policy changed"
    target, advantage = vtrace(log_ratio, rollout["reward"], value, next_value, *ends, 0.99, 1.2, 0.9, 0.95)
    torch.testing.assert_close(data["return"], target)
    torch.testing.assert_close(data["advantage"], advantage)
    torch.testing.assert_close(data["log_prob"], current)


@pytest.mark.parametrize("algo", ["ppo", "ppo_lstm"])
def test_vtrace_on_policy_gives_the_losses_what_gae_does(algo: str, build: Build) -> None:
    given: list[Batch] = []
    for name in ("gae", "vtrace"):
        loop: Any = build(toy(algo, **estimator(name)))
        data = loop.agent.advantages(loop.addons.relabel(loop.collect_rollout()))
        given.append({key: data[key] for key in ESTIMATED})
    torch.testing.assert_close(given[0], given[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("algo", "network"),
    [("ppo", {}), ("ppo_lstm", {"network.sequence_length": 3}), ("ppo_lstm", {"network.sequence_length": 100})],
)
def test_ppo_ratio_starts_at_1_with_vtrace_however_old_the_rollout_is(
    algo: str, network: dict[str, Any], build: Build
) -> None:
    """Recurrent policies learn from sequences, which begin in states of the policy that collected them; the last
    sequence may be shorter."""
    ratios: dict[str, float] = {}
    for name in ("vtrace", "gae"):
        changes = {"algo.loop.lag": 2, "env.max_episode_steps": 5, "algo.learning_rate": 0.05}
        loop: Any = build(toy(algo, **changes, **estimator(name), **network))
        train(loop, 4)
        ratios[name] = largest_log_ratio(loop)
    assert ratios["vtrace"] < 1e-5
    assert ratios["gae"] > 0.01, "GAE compares with the policy that collected the rollout"


def largest_log_ratio(loop: Any) -> float:
    """Returns the largest log-ratio in the minibatches of the next update, if none of them changes the policy."""
    found: list[float] = []
    agent = loop.agent

    def compare(batch: Batch) -> Any:
        log_ratio = agent.policy(batch["obs"]).log_prob(batch["action"]) - batch["log_prob"]
        found.append(log_ratio.abs().max().item())
        return {}

    object.__setattr__(agent, "update_minibatch", compare)
    loop.tick()
    return max(found)


def test_vtrace_corrects_for_exploration_noise(build: Build) -> None:
    """The noise widens the distribution that acts, but not the policy: the ratios of PPO start at 1 all the same."""
    words = [
        "algo=ppo",
        "env=Pendulum",
        "preset=none",
        "algo.advantage=vtrace",
        "algo.noise=gaussian",
        "algo.noise.std=1",
    ]
    small = {"env.num_envs": 2, "network.hidden": [8], "algo.loop.rollout_steps": 8}
    loop: Any = build(put(jobs(words)[0].values, small))
    rollout = loop.collect_rollout()
    data = loop.agent.advantages(rollout)
    assert (data["log_prob"] - rollout["log_prob"]).abs().max() > 0.1
    assert largest_log_ratio(loop) < 1e-5


@pytest.mark.parametrize("algo", ["vpg", "ppo_demos", "ppo_rnd"])
def test_any_policy_gradient_takes_vtrace_by_name(algo: str, build: Build) -> None:
    values = jobs([f"algo={algo}", "env=CartPole", "preset=none", "algo.advantage=vtrace"])[0].values
    section = values["algo"]["advantage"]
    assert section.keys() == {"name", "gae_lambda", "rho_clip", "c_clip", "normalize", "clip"}
    loop: Any = train(build(toy(algo, **{"algo.advantage": section, "algo.loop.lag": 1})), 3)
    assert all(torch.isfinite(param).all() for param in loop.agent.parameters())


@pytest.mark.parametrize("mode", ["none", "rollout", "running", "minibatch"])
def test_advantages_are_normalised_over_minibatches_by_option(mode: str, build: Build) -> None:
    agent: Any = build(toy("a2c", **estimator("vtrace", normalize=mode))).agent
    advantage = 3.0 + 2.0 * torch.randn(64)
    weight = torch.arange(64).remainder(3).clamp(max=1).float()
    normalised = agent.advantage.normalise_minibatch(advantage, weight)
    if mode == "minibatch":
        assert normalised[weight > 0].mean().item() == pytest.approx(0, abs=1e-5)
        assert normalised[weight > 0].std().item() == pytest.approx(1, abs=1e-4)
    else:
        assert torch.equal(normalised, advantage)


@pytest.mark.parametrize("name", ["gae", "vtrace"])
@pytest.mark.parametrize("mode", ["none", "rollout", "running", "minibatch"])
@pytest.mark.parametrize("size", [None, 8])
def test_advantages_are_clipped_after_they_are_normalised(name: str, mode: str, size: int | None, build: Build) -> None:
    """The gradient of the loss is that of A2C with the clipped advantages: -A/n by log-probability of the action."""
    changes = estimator(name, normalize=mode, clip=0.5) | {"algo.minibatch_size": size, "algo.epochs": 1}
    loop: Any = build(toy("a2c", **changes))
    agent = loop.agent
    learned: list[torch.Tensor] = []

    def policy_loss(log_prob: torch.Tensor, _: torch.Tensor, advantage: torch.Tensor, weight: torch.Tensor) -> Any:
        loss, metrics = type(agent).policy_loss(agent, log_prob, _, advantage, weight)
        (gradient,) = torch.autograd.grad(loss, log_prob, retain_graph=True)
        torch.testing.assert_close(gradient, -advantage / len(advantage))
        learned.append(advantage)
        return loss, metrics

    agent.policy_loss = policy_loss
    rollout = loop.collect_rollout()
    rollout["reward"] *= torch.randn(8, 2)
    agent.update(rollout, loop.context())
    assert [len(batch) for batch in learned] == [size or 16] * (16 // (size or 16))
    advantage = torch.cat(learned)
    assert advantage.min() == -0.5 and advantage.max() == 0.5 and (advantage.abs() < 0.5).any()
