"""KL-regularised SAC: prior policies, the previous action beside the observation, and losses that are those of SAC."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from toys import toy

from rlrun.agents.actor_critic.kl_sac import KLSAC
from rlrun.agents.actor_critic.sac import SAC
from rlrun.core.loop import Loop
from rlrun.functional.distributions import TruncatedNormal
from rlrun.settings import registry
from rlrun.types import Batch, Context, carried

Build = Callable[..., Loop]
SAME = {"name": "same_action", "same_action_prob": 0.9, "same_action_noise": 0.1}
FIXED = {"algo.entropy.initial_alpha": 0.3, "algo.entropy.learning_rate": 0.0}


def prior(values: dict[str, Any]) -> Any:
    return registry.build("prior", values, path="algo.prior")


@pytest.mark.parametrize("first", [0.0, 1.0])
@pytest.mark.parametrize("values", [{"name": "uniform"}, SAME], ids=["uniform", "same_action"])
def test_prior_densities_integrate_to_one(values: dict[str, Any], first: float) -> None:
    grid = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    for previous in (-1.0, -0.3, 0.99):
        rows = grid.unsqueeze(1)
        log_prob = prior(values).log_prob(rows, torch.full_like(rows, previous), torch.full_like(grid, first))
        assert torch.trapezoid(log_prob.exp(), grid).item() == pytest.approx(1, abs=1e-6)


def test_same_action_prior_is_the_mixture_of_a_wide_and_a_narrow_normal() -> None:
    action, previous = torch.tensor([[0.1, -0.5]]), torch.tensor([[0.0, 0.9]])
    wide = [TruncatedNormal(torch.zeros(1), torch.full((1,), 2.0), -1, 1).log_prob(action[0, [i]]) for i in (0, 1)]
    narrow = [TruncatedNormal(previous[0, [i]], torch.full((1,), 0.2), -1, 1).log_prob(action[0, [i]]) for i in (0, 1)]
    mixture = sum((0.1 * wide[i].exp() + 0.9 * narrow[i].exp()).log() for i in (0, 1))
    found = prior(SAME).log_prob(action, previous, torch.zeros(1))
    torch.testing.assert_close(found[0], mixture)
    first = prior(SAME).log_prob(action, previous, torch.ones(1))
    torch.testing.assert_close(first[0], wide[0] + wide[1])


def test_same_action_prior_has_finite_gradients_at_the_bounds() -> None:
    action = torch.tensor([[-1.0], [1.0], [0.3]], requires_grad=True)
    previous = torch.tensor([[1.0], [1.0], [0.0]])
    for first in (torch.zeros(3), torch.ones(3)):
        (gradient,) = torch.autograd.grad(prior(SAME).log_prob(action, previous, first).sum(), action)
        assert gradient.isfinite().all()


def transitions(rows: int = 6) -> Batch:
    previous, action, last = 2 * torch.rand(3, rows, 1) - 1  # last: the action before next_obs, after n steps
    return {
        "obs": torch.randn(rows, 3), "next_obs": torch.randn(rows, 3), "action": action, "carry.action": last,
        "previous_action": previous, "is_first": torch.zeros(rows), "reward": torch.randn(rows),
        "n_steps": torch.ones(rows), "terminated": torch.zeros(rows), "weight": torch.ones(rows),
    }  # fmt: skip


def test_kl_sac_with_the_uniform_prior_is_sac_up_to_a_constant(build: Build) -> None:
    agent: Any = build(toy("kl_sac", **FIXED, **{"algo.prior": {"name": "uniform"}, "algo.gamma": 0.9})).agent
    sac: Any = build(toy("sac", **FIXED, **{"algo.gamma": 0.9})).agent
    sac.critic.load_state_dict(agent.critic.state_dict())
    sac.target_critic.module.load_state_dict(agent.target_critic.module.state_dict())
    batch, noise = transitions(), torch.randn(6, 1)

    def gradients(learner: Any, update: Any, previous: str) -> Tensor:
        sac.actor.forward = lambda obs: agent.actor(obs, batch[previous])
        q, log_prob = update(learner, batch, noise)
        loss = learner.actor_loss(batch, q, log_prob).mean()
        return agent.actor_optim.grads(loss)

    torch.testing.assert_close(
        gradients(agent, KLSAC.actor_q, "previous_action"), gradients(sac, SAC.actor_q, "previous_action")
    )
    sac.actor.forward = lambda obs: agent.actor(obs, batch["carry.action"])
    with torch.no_grad():
        difference = agent.target_q(batch, noise, agent.target_critic) - sac.target_q(batch, noise, sac.target_critic)
    torch.testing.assert_close(difference, torch.full((6,), -0.9 * 0.3 * math.log(2)))


def test_kl_sac_penalises_the_log_ratio_of_policy_and_prior(build: Build) -> None:
    agent: Any = build(toy("kl_sac", **FIXED, **{"algo.prior": SAME, "algo.gamma": 0.9})).agent
    batch, noise = transitions(), torch.randn(6, 1)
    with torch.no_grad():
        action, log_prob = agent.actor(batch["next_obs"], batch["carry.action"]).sample(noise)
        ratio = log_prob - agent.prior.log_prob(action, batch["carry.action"], torch.zeros(6))
        value = agent.target_critic(batch["next_obs"], action).amin(0) - 0.3 * ratio
        target = agent.target_q(batch, noise, agent.target_critic)
        _, actor_ratio = agent.actor_q(batch, noise)
        action, log_prob = agent.actor(batch["obs"], batch["previous_action"]).sample(noise)
    torch.testing.assert_close(target, batch["reward"] + 0.9 * value)
    expected = log_prob - agent.prior.log_prob(action, batch["previous_action"], torch.zeros(6))
    torch.testing.assert_close(actor_ratio, expected)


def test_kl_sac_target_divergence_is_per_dimension(build: Build) -> None:
    changes = {"env.id": "rlrun/PointGoal-v0", "algo.target_kld_per_dim": 2.0}  # two dimensions
    assert build(toy("kl_sac", **changes)).agent.entropy.target == -4.0


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("warmup", [8, 200])
def test_kl_sac_stores_the_actions_around_every_observation(warmup: int, n_step: int, build: Build) -> None:
    changes = {"algo.n_step": n_step, "algo.loop.warmup_steps": warmup, "algo.buffer.capacity": 200}
    loop: Any = build(toy("kl_sac", **changes, **{"env.max_episode_steps": 7, "env.num_envs": 1}))
    for _ in range(60):
        loop.tick()
    last = len(loop.buffer) - n_step
    batch = loop.buffer.read(torch.arange(last))
    starts = torch.arange(last) % 7 == 0
    assert torch.equal(batch["is_first"], starts.float())
    previous = torch.cat([batch["action"][:1], batch["action"][:-1]])
    assert torch.equal(batch["previous_action"], torch.where(starts.unsqueeze(1), 0.0, previous))
    ends = torch.arange(last) + batch["n_steps"].long() - 1
    within = ends < last
    assert torch.equal(batch["carry.action"][within], batch["action"][ends[within]])


def changes_of_action(build: Build, values: dict[str, Any]) -> float:
    """Returns the mean change from one action to the next, after 300 updates without rewards."""
    rates = {"algo.actor_learning_rate": 0.01, "network.hidden": [32], "algo.policy_delay": 1, "algo.prior": values}
    agent: Any = build(toy("kl_sac", **FIXED, **rates)).agent
    for i in range(300):
        rows = transitions(64) | {"reward": torch.zeros(64), "terminated": torch.ones(64)}
        agent.update(rows, Context(i, i, 0.0))
    carry: Batch = {"first": torch.ones(64, dtype=torch.bool)}
    actions = []
    for _ in range(20):
        action, extras = agent.act(torch.randn(64, 3), carry, True)
        carry = carried(extras | {"carry.action": action}, torch.zeros(64, dtype=torch.bool))
        actions.append(action)
    return torch.stack(actions).diff(dim=0).abs().mean().item()


def test_same_action_prior_reduces_the_mean_change_of_actions(build: Build) -> None:
    torch.manual_seed(0)
    uniform, same = changes_of_action(build, {"name": "uniform"}), changes_of_action(build, SAME)
    assert same < 0.6 * uniform
