"""PPG: its auxiliary phases beside gradients by hand, and the policy phase beside PPO."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import equal, toy, train

from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.indexed import Indexed, closed, opened

Build = Callable[..., Any]
INTERVAL = "algo.critic_update.interval"


def minibatch(agent: Any, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """A minibatch of a phase, for which the policy has moved away from the stored one."""
    obs = torch.randn(len(weight), 4)
    return {
        "obs": obs,
        "weight": weight,
        "return": torch.randn(len(weight)),
        "dist.logits": torch.randn(len(weight), 2),
    }


def test_gradients_of_a_phase_equal_those_by_hand(build: Build) -> None:
    """Linear networks: without hidden layers the policy shares no weight with the auxiliary head."""
    agent = build(toy("ppg", **{"network.hidden": [], "algo.critic_update.clone_coef": 0.7})).agent
    critic, weight = agent.critic, torch.tensor([1.0, 1.0, 0.0, 1.0])
    batch = minibatch(agent, weight)
    loss, _ = critic.phase_loss(batch)
    outputs = (agent.policy.output.weight, critic.network.output.weight, critic.auxiliary.output.weight)
    policy, value, auxiliary = torch.autograd.grad(loss, outputs)
    rows = batch["obs"] * weight.unsqueeze(-1) / 3
    old, new = batch["dist.logits"].softmax(-1), agent.policy(batch["obs"]).logits.softmax(-1)
    torch.testing.assert_close(policy.view(4, 2), 0.7 * rows.T @ (new - old), atol=1e-6, rtol=0)
    for network, found in ((critic.network, value), (critic.auxiliary, auxiliary)):
        error = network(batch["obs"]) - batch["return"]
        torch.testing.assert_close(found.view(4), rows.T @ error, atol=1e-6, rtol=0)


def test_losses_of_a_phase_are_in_units_of_the_standard_deviation_of_returns_by_option(build: Build) -> None:
    agent = build(toy("ppg", **{"algo.critic_update.normalize_target": True})).agent
    batch = minibatch(agent, torch.ones(4))
    _, plain = agent.critic.phase_loss(batch)
    agent.critic.moments.var.fill_(25.0)
    _, scaled = agent.critic.phase_loss(batch)
    for name in ("loss/phase_critic", "loss/phase_auxiliary"):
        torch.testing.assert_close(scaled[name], plain[name] / 25)
    assert scaled["loss/phase_kl"] == plain["loss/phase_kl"]


def test_the_critic_and_the_policy_get_no_gradient_from_each_other(build: Build) -> None:
    agent = build(toy("ppg")).agent
    critic = agent.critic
    batch = minibatch(agent, torch.ones(4))
    critic_error = critic.network(batch["obs"]).sum()
    assert not any(_gradients(critic_error, agent.policy)) and all(_gradients(critic_error, critic.network))
    auxiliary = critic.auxiliary(batch["obs"]).sum()
    assert not any(_gradients(auxiliary, critic.network)) and all(_gradients(auxiliary, agent.policy.torso))


def _gradients(loss: torch.Tensor, module: torch.nn.Module) -> list[bool]:
    grads = torch.autograd.grad(loss, [*module.parameters()], retain_graph=True, allow_unused=True)
    return [grad is not None for grad in grads]


def test_before_the_first_phase_ppg_is_ppo(build: Build) -> None:
    ppo = train(build(toy("ppo")), 3).agent
    ppg = train(build(toy("ppg", **{INTERVAL: 4})), 3).agent
    assert equal(ppo.policy.state_dict(), ppg.policy.state_dict())
    assert equal(ppo.critic.network.state_dict(), ppg.critic.network.state_dict())
    assert ppg.critic.optim.steps == 0


def test_a_phase_learns_from_all_rollouts_since_the_last_one(build: Build) -> None:
    values = {INTERVAL: 2, "algo.critic_update.epochs": 3, "algo.critic_update.minibatch_size": 8}
    loop = build(toy("ppg", **values))
    before = loop.agent.critic.auxiliary.output.weight.clone()
    phases = [[name for name in loop.tick() if "phase" in name] for _ in range(4)]
    assert [len(names) for names in phases] == [0, 6, 0, 6]
    assert loop.agent.critic.optim.steps == 2 * 3 * 2 * 2  # phases, epochs, rollouts, minibatches of 16 rows
    assert not torch.equal(before, loop.agent.critic.auxiliary.output.weight)


def test_a_phase_goes_through_the_rollouts_in_a_new_order_in_every_epoch(build: Build) -> None:
    loop = build(toy("ppg", **{INTERVAL: 4, "algo.critic_update.epochs": 3, "algo.critic_update.minibatch_size": 16}))
    train(loop, 3)
    critic, learned = loop.agent.critic, []
    kept = [rollout["return"] for rollout in critic.rollouts]
    critic.learn = lambda batch: learned.append(batch["return"])
    loop.tick()
    found = [[torch.isin(batch, each).all().item() for each in kept] for batch in learned]
    orders = [[row.index(True) if True in row else 3 for row in found[start : start + 4]] for start in (0, 4, 8)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders) and orders[0] != orders[1] != orders[2]


def test_a_phase_learns_the_value_targets_of_its_updates(build: Build) -> None:
    loop = build(toy("ppg", **{INTERVAL: 2}))
    rollout = loop.addons.relabel(loop.collect_rollout())
    expected = loop.agent.advantages(rollout)["return"]
    loop.agent.update(rollout, loop.context())
    (kept,) = loop.agent.critic.rollouts
    assert torch.equal(kept["return"], expected) and not torch.equal(expected, rollout["reward"])


@pytest.mark.parametrize(("rate", "expected"), [(None, 0.01), (0.5, 0.5)])
def test_a_phase_has_a_learning_rate_of_its_own(rate: float | None, expected: float, build: Build) -> None:
    agent = build(toy("ppg", **{"algo.critic_update.learning_rate": rate})).agent
    rates = [float(optim.learning_rate) for optim in (agent.critic.optim, agent.optim)]
    assert rates == pytest.approx([expected, 0.01])


def test_a_phase_lowers_the_errors_and_stays_near_the_policy(build: Build) -> None:
    metrics = build(toy("ppg", **{INTERVAL: 1, "algo.critic_update.epochs": 8})).tick()
    for name in ("critic", "auxiliary"):
        assert metrics[f"loss/phase_{name}_after"] < metrics[f"loss/phase_{name}_before"]
    assert metrics["loss/phase_kl_before"] == pytest.approx(0, abs=1e-7) and 0 < metrics["loss/phase_kl_after"] < 0.1


@pytest.mark.parametrize("changes", [{}, {"algo.loop.dtypes": {"obs": "float16"}}], ids=["plain", "indexed"])
def test_stored_rollouts_survive_a_snapshot(changes: dict[str, Any], build: Build) -> None:
    values = toy("ppg", **{INTERVAL: 4}, **changes)
    loop: Loop = train(build(values), 3)
    other = build(values)
    other.load_state_dict(loop.state_dict())
    assert len(other.agent.critic.rollouts) == 3
    for kept, restored in zip(loop.agent.critic.rollouts, other.agent.critic.rollouts, strict=True):
        assert isinstance(kept["obs"], Indexed) == bool(changes) and equal(closed(kept), closed(restored))


def test_other_things_than_rollouts_are_refused(build: Build) -> None:
    critic = build(toy("ppg")).agent.critic
    for forged in ([5], [{"obs": torch.zeros(2)}]):
        with pytest.raises(ValueError, match="other entries"):
            critic.set_extra_state(forged)


def test_indexed_tensors_are_closed_and_opened() -> None:
    tree = {"obs": {"a": Indexed(torch.arange(3.0), torch.tensor([2, 0])), "b": torch.ones(2)}}
    found = opened(closed(tree))
    assert torch.equal(found["obs"]["a"].tensor(), torch.tensor([2.0, 0.0])) and found["obs"]["b"] is tree["obs"]["b"]


def test_ppg_with_a_recurrent_network_clones_the_policy_of_sequences(build: Build) -> None:
    loop = build(toy("ppo_lstm", **{"algo.critic_update": toy("ppg")["algo"]["critic_update"] | {"interval": 1}}))
    metrics = loop.tick()
    assert metrics["loss/phase_kl_before"] == pytest.approx(0, abs=1e-6)
    assert metrics["loss/phase_auxiliary_after"] < metrics["loss/phase_auxiliary_before"]


def test_rollouts_that_do_not_fit_into_memory_are_refused(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"rollout_steps=8, algo\.critic_update\.interval=1000000000"):
        build(toy("ppg", **{INTERVAL: 10**9}))
