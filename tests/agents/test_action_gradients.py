"""The part `algo.action_gradient`: what the actor learns from a critic that is too steep, and from large actions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager
from toys import put, toy, train

from rlrun.core.loop import Loop
from rlrun.engine import inductor
from rlrun.errors import ConfigError
from rlrun.settings import registry
from rlrun.types import Batch

Build = Callable[..., Loop]
ROWS = 32
CLIP = 0.12


def regularized(dqda_clipping: float | None = None, action_l2: float = 0.0) -> Batch:
    return {"name": "regularized", "dqda_clipping": dqda_clipping, "action_l2": action_l2}


def agent_of(build: Build, algo: str, section: Batch) -> Any:
    return build(put(toy(algo), {"algo.action_gradient": section})).agent


def batch_of(agent: Any) -> Batch:
    draw = torch.Generator().manual_seed(1)
    obs = torch.randn(ROWS, *agent.spec.obs.shape, generator=draw)
    weight = torch.rand(ROWS, generator=draw)
    return {"obs": obs, "weight": weight}


def action_and_value(agent: Any, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
    """Returns actions, their values and alpha log pi, as the actor loss of SAC or TD3 has them."""
    if hasattr(agent, "entropy"):
        action, log_prob = agent.actor(batch["obs"]).sample(noise)
        return action, agent.critic(batch["obs"], action).amin(0), agent.entropy.alpha * log_prob
    action = agent.actor(batch["obs"])
    return action, agent.critic(batch["obs"], action)[0], 0.0


@pytest.mark.parametrize("algo", ["sac", "td3"])
@pytest.mark.parametrize("section", [regularized(CLIP), regularized(None, 0.7), regularized(CLIP, 0.7)])
def test_actor_follows_the_clipped_gradient_and_the_action_penalty(algo: str, section: Batch, build: Build) -> None:
    agent = agent_of(build, algo, section)
    batch, noise = batch_of(agent), torch.randn(ROWS, 1)
    action, q, cost = action_and_value(agent, batch, noise)
    (dqda,) = torch.autograd.grad(q.sum(), action, retain_graph=True)
    assert (dqda.abs() > CLIP).any() and (dqda.abs() < CLIP).any(), "some elements are clipped"
    if section["dqda_clipping"] is not None:
        dqda = dqda.clamp(-CLIP, CLIP)
    objective = (dqda * action).sum(-1) - section["action_l2"] * (action**2).sum(-1)
    by_hand = (batch["weight"] * (cost - objective)).mean()
    expected = torch.cat([grad.flatten() for grad in torch.autograd.grad(by_hand, [*agent.actor.parameters()])])
    stepped: list[Tensor] = []
    step = agent.actor_optim.apply
    agent.actor_optim.apply = lambda grads: stepped.append(grads) or step(grads)
    args = (batch, noise) if algo == "sac" else (batch,)
    metrics = type(agent).update_actor(agent, *args)
    torch.testing.assert_close(stepped[0], expected)
    value = (batch["weight"] * (cost - q)).mean()
    torch.testing.assert_close(
        metrics["loss/actor"], value.detach(), msg="the loss still reports the value of the critic"
    )


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_reward_vectors_clip_the_gradient_of_the_weighted_sum(algo: str, build: Build) -> None:
    """The weighted sum is so steep that every element of its gradient is clipped."""
    values = put(toy("sac_lagrangian"), {"algo.entropy": {**toy("sac")["algo"]["entropy"], "initial_alpha": 1e-9}})
    if algo == "td3":
        values["algo"] = toy("td3")["algo"] | {"reward_weights": values["algo"]["reward_weights"]}
    agent: Any = build(put(values, {"algo.action_gradient": regularized(1e-3)})).agent
    batch = batch_of(agent)
    batch |= {"weight": torch.ones(ROWS), "reward_weights": torch.tensor([2.0, -0.5])}
    with torch.no_grad():
        for param in agent.critic.parameters():
            param.mul_(5.0)
    steps: list[Tensor] = []
    follow = agent.action_gradient.follow

    def spy(q: Tensor, action: Tensor) -> Tensor:
        followed = follow(q, action)
        assert q.shape == (ROWS,)
        steps.extend(torch.autograd.grad(followed.sum(), action, retain_graph=True))
        return followed

    agent.action_gradient.follow = spy
    noise = torch.randn(ROWS, 2)
    args = (batch, noise) if algo == "sac" else (batch,)
    type(agent).update_actor(agent, *args)
    torch.testing.assert_close(steps[0].abs(), torch.full((ROWS, 2), 1e-3))


def test_td_targets_are_those_of_the_exact_gradient(build: Build) -> None:
    losses = []
    for section in ({"name": "exact"}, regularized(1e-3, 5.0)):
        loop: Any = train(build(put(toy("sac"), {"algo.action_gradient": section, "algo.policy_delay": 100})), 3)
        losses.append(loop.agent.critic_optim.flat)
    assert torch.equal(*losses)


def test_action_penalty_keeps_actions_small(build: Build) -> None:
    """The critic always prefers larger actions."""
    size = []
    for action_l2 in (0.0, 1.0):
        agent = agent_of(build, "td3", regularized(None, action_l2))
        agent.actor_q = lambda batch, action: action[:, 0]
        batch = batch_of(agent)
        for _ in range(150):
            agent.update_actor(batch)
        size.append(agent.actor(batch["obs"]).mean().item())
    assert size[0] > 0.9
    assert size[1] == pytest.approx(0.5, abs=0.05)  # the maximum of a - a^2


@pytest.mark.parametrize("engine", ["auto", pytest.param("compile", marks=pytest.mark.slow)])
@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_engines_record_the_regularized_gradient(
    algo: str, engine: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inductor, "compiled_graph", aot_eager)
    weights = []
    for chosen in ("eager", engine):
        changes = {"algo.action_gradient": regularized(CLIP, 0.1), "trainer.engine": chosen}
        weights.append(train(build(put(toy(algo), changes)), 6).agent.actor_optim.flat)
    torch.testing.assert_close(*weights)


def test_regularized_gradient_of_discrete_actions_is_refused(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo.action_gradient=regularized: needs Box actions; .*Discrete\(2\)"):
        agent_of(build, "discrete_sac", regularized(1.0))
    assert set(registry.names("action_gradient")) == {"exact", "regularized"}
