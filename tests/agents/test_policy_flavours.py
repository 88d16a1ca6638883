"""Variants of on-policy algorithms: each test fails with the YAML of the parent."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.types import Batch

Build = Callable[..., Loop]
OF_THE_AGENT = dict.fromkeys(("optimizer", "learning_rate", "max_grad_norm"))
SPLIT = {
    "name": "split",
    "value_coef": 0.5,
    "clip_value": None,
    "huber_delta": None,
    "normalize_target": False,
} | OF_THE_AGENT


def old_bandit(rows: int = 64) -> Batch:
    """Returns a rollout of one-step episodes of an old policy: arm 1, with reward 1, had probability 1/8."""
    action = (torch.arange(rows) % 8 == 0).long().view(rows, 1)
    probability = torch.where(action == 1, 1 / 8, 7 / 8)
    yes, obs = torch.ones(rows, 1, dtype=torch.bool), torch.ones(rows, 1, 4)
    return {
        "obs": obs, "next_obs": obs, "action": action, "reward": action.float(), "log_prob": probability.log(),
        "weight": torch.ones(rows, 1), "terminated": yes, "truncated": ~yes, "first": yes,
    }  # fmt: skip


def value_of_what_was_learned(build: Build, algo: str, **changes: Any) -> tuple[float, float]:
    """Returns the critic's value and the probability of the better arm after many updates on one old rollout."""
    loop: Any = build(toy(algo, **{"algo.learning_rate": 0.02, "algo.minibatch_size": None}, **changes))
    rollout = old_bandit()
    for _ in range(150):
        loop.agent.update(rollout, loop.context())
    with torch.no_grad():
        best = loop.agent.policy(torch.ones(1, 4)).log_prob(torch.tensor([1])).exp().item()
        return loop.agent.critic.network(torch.ones(1, 4)).item(), best


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_vtrace_corrects_stale_rollouts(algo: str, build: Build) -> None:
    vtrace = {"algo.advantage": toy("vtrace")["algo"]["advantage"]}
    value, best = value_of_what_was_learned(build, algo, **vtrace)
    assert best > 0.95
    assert value == pytest.approx(1.0, abs=0.1)
    value, _ = value_of_what_was_learned(build, algo)
    assert value < 0.3, "without correction it stays near 1/8, the value of the old policy"


def minibatch(**changes: Any) -> Batch:
    zero = torch.zeros(4)
    batch = {
        "obs": torch.zeros(4, 4), "action": torch.tensor([0, 1, 0, 1]), "log_prob": torch.full((4,), 0.5).log(),
        "advantage": zero, "value": zero, "return": zero, "weight": torch.ones(4),
    }  # fmt: skip
    return batch | changes


def grads(agent: Any, batch: Batch) -> torch.Tensor:
    """Returns the gradients of the policy's optimiser in one step."""
    taken: list[torch.Tensor] = []
    agent.optim.apply = taken.append
    agent.update_minibatch(batch)
    return taken[0]


def test_vtrace_refuses_rho_clip_below_c_clip(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo\.advantage\.rho_clip=0\.5: must be at least algo\.advantage\.c_clip"):
        build(toy("vtrace", **{"algo.advantage.rho_clip": 0.5}))


@pytest.mark.parametrize(("ratio", "moves"), [(1.0, True), (1.5, False)])
def test_ppo_has_no_gradient_beyond_the_clip_range(ratio: float, moves: bool, build: Build) -> None:
    agent: Any = build(toy("ppo", **{"algo.advantage.normalize": "none", "algo.critic_update.value_coef": 0.0})).agent
    with torch.no_grad():
        now = agent.policy(torch.zeros(4, 4)).log_prob(torch.tensor([0, 1, 0, 1]))
    batch = minibatch(advantage=torch.ones(4), log_prob=now - torch.tensor(ratio).log())
    batch |= {"action": torch.tensor([0, 0, 0, 0]), "log_prob": batch["log_prob"][[0, 0, 0, 0]]}
    assert bool(grads(agent, batch).any()) == moves


def test_ppo_clip_range_follows_its_schedule(build: Build) -> None:
    schedule = {"clip_range": {"linear": {"end": 0.0}}}
    loop: Any = build(toy("ppo", **{"algo.clip_range": 0.2, "algo.schedule": schedule, "trainer.total_steps": 64}))
    ranges = []
    for updates in range(1, 5):
        ranges.append(train(loop, updates).agent.clip_range.item())
    assert ranges == pytest.approx([0.2, 0.15, 0.1, 0.05])


def test_ppo1_updates_policy_and_critic_separately(build: Build) -> None:
    agent: Any = build(toy("ppo1")).agent
    before = [param.clone() for param in agent.critic.parameters()]
    agent.update_minibatch(minibatch(advantage=torch.randn(4), **{"return": torch.full((4,), 100.0)}))
    assert all(map(torch.equal, agent.critic.parameters(), before)), "the policy's step leaves the critic alone"
    agent.critic.fit(minibatch(**{"return": torch.full((4,), 100.0)}))
    assert not all(map(torch.equal, agent.critic.parameters(), before))


def test_ppo1_has_one_epoch() -> None:
    (values,) = (job.values["algo"] for job in jobs(["algo=ppo1", "env=CartPole", "preset=none"]))
    assert (values["epochs"], values["critic_update"]["name"]) == (1, "split")


def test_ppo2_value_loss_is_the_maximum_of_clipped_and_unclipped(build: Build) -> None:
    agent: Any = build(toy("ppo2")).agent
    with torch.no_grad():
        value = agent.critic.network(torch.zeros(4, 4))
    metrics = agent.critic.fit(minibatch(value=value - 1.0, **{"return": value + 0.5}))
    # the value rose by 1, clipped to 0.1: the clipped error is 1.4, the plain error 0.5
    assert metrics["loss/critic"].item() == pytest.approx(0.5 * 1.4**2, rel=1e-4)


def test_ppo2_critic_targets_are_discounted_returns(build: Build) -> None:
    agent: Any = build(toy("ppo2", **{"algo.gamma": 0.5})).agent
    rollout = old_bandit(3) | {"reward": torch.tensor([[1.0], [2.0], [4.0]])}
    rollout["terminated"] = torch.tensor([[False], [False], [True]])
    assert agent.advantages(rollout)["return"].flatten().tolist() == [3.0, 4.0, 4.0]


def test_ppo_critic_first_fits_its_critic_before_the_policy(build: Build) -> None:
    loop: Any = build(toy("ppo_critic_first"))
    agent, order = loop.agent, []
    fit, move = agent.critic.fit, agent.update_minibatch
    object.__setattr__(agent.critic, "fit", lambda batch: (order.append("critic"), fit(batch))[1])
    object.__setattr__(agent, "update_minibatch", lambda batch: (order.append("policy"), move(batch))[1])
    train(loop, 1)
    assert order == ["critic"] * 4 + ["policy"] * 4


def test_ppo2_without_clipping_equals_a2c(build: Build) -> None:
    """If the minibatch is the whole rollout, every ratio is 1, so only value clipping differs."""
    same = {
        "algo.epochs": 1, "algo.minibatch_size": None, "algo.advantage.value_lambda": 1.0,
        "algo.advantage.normalize": "rollout", "algo.entropy.ent_coef": 0.01,
        "algo.critic_update": SPLIT, "algo.advantage.gae_lambda": 0.9,
    }  # fmt: skip
    stepped, rollout = [], old_bandit()
    for algo, own in (("a2c", {}), ("ppo2", {"algo.clip_range": 1e6})):
        loop: Any = build(toy(algo, **same | own))
        dist = loop.agent.policy(rollout["obs"][:, 0])
        rollout["log_prob"] = dist.log_prob(rollout["action"][:, 0]).detach().unsqueeze(-1)
        loop.agent.update(rollout, loop.context())
        stepped.append([*loop.agent.parameters()])
    torch.testing.assert_close(*stepped)
