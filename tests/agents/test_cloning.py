"""Behaviour cloning, alone and as a part of SAC's policy loss."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.datasets.demonstrations import write
from rlrun.errors import ConfigError
from rlrun.run.evaluation import evaluate

Build = Callable[..., Loop]


def pendulum(rows: int = 6) -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "obs": torch.randn(rows, 3), "next_obs": torch.randn(rows, 3), "action": torch.rand(rows, 1) * 2 - 1,
        "reward": torch.randn(rows), "n_steps": torch.ones(rows),
        "terminated": torch.zeros(rows), "weight": torch.ones(rows),
    }  # fmt: skip


def test_bc_loss_is_the_negative_log_likelihood_of_continuous_actions(build: Build) -> None:
    agent: Any = train(build(toy("bc")), 3).agent
    batch = pendulum() | {"weight": torch.tensor([1.0, 1, 1, 0, 2, 1])}
    mean, std = agent.actor(batch["obs"]).mean, agent.actor(batch["obs"]).log_std.exp()
    nll = -torch.distributions.Normal(mean, std).log_prob(batch["action"]).sum(-1)
    torch.testing.assert_close(agent.update_actor(batch)["loss/cloning"], (batch["weight"] * nll).mean().detach())


def test_bc_loss_is_the_negative_log_likelihood_of_discrete_actions(build: Build) -> None:
    agent: Any = build(toy("bc", **{"env.id": "CartPole-v1"})).agent
    obs, action = torch.randn(6, 4), torch.tensor([0, 1, 1, 0, 1, 0])
    nll = torch.nn.functional.cross_entropy(agent.actor(obs).logits, action)
    loss = agent.update_actor({"obs": obs, "action": action, "weight": torch.ones(6)})["loss/cloning"]
    torch.testing.assert_close(loss, nll.detach())


def test_bc_deterministic_policy_minimises_the_squared_error(build: Build) -> None:
    agent: Any = build(toy("bc", **{"algo.policy": "deterministic"})).agent
    batch = pendulum()
    error = ((agent.act(batch["obs"], {}, True)[0] - batch["action"]) ** 2).mean()
    torch.testing.assert_close(agent.update_actor(batch)["loss/cloning"], error)
    for _ in range(300):
        agent.update_actor(batch)
    assert agent.update_actor(batch)["loss/cloning"] < 0.1 * error
    with pytest.raises(ConfigError, match="deterministic: is for Box actions with finite bounds"):
        build(toy("bc", **{"env.id": "CartPole-v1", "algo.policy": "deterministic"}))


def test_bc_loss_is_the_negative_log_likelihood_of_mixed_actions(build: Build) -> None:
    mixed = {"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"action": "tuple"}}  # 3 choices, 2 continuous values
    agent: Any = build(toy("bc", **mixed)).agent
    obs, choice, values = torch.randn(6, 2), torch.tensor([0, 1, 2, 2, 1, 0]), torch.rand(6, 2)
    policy = agent.actor(obs)
    nll = torch.nn.functional.cross_entropy(policy.discrete.decisions.logits[:, 0], choice)
    normal = torch.distributions.Normal(policy.continuous.mean, policy.continuous.log_std.exp())
    nll = nll - normal.log_prob(values).sum(-1).mean()
    batch = {"obs": obs, "action": torch.cat([choice.unsqueeze(1), values], 1), "weight": torch.ones(6)}
    torch.testing.assert_close(agent.update_actor(batch)["loss/cloning"], nll.detach())


RECALL = ["algo=bc", "env=Recall", "preset=none", "env.kwargs.length=2", "network=lstm", "network.hidden=[16]",
          "network.features=16", "network.sequence_length=3", "algo.learning_rate=0.02", "algo.loop.batch_size=16",
          "algo.buffer.capacity=64", "env.num_envs=2"]  # fmt: skip


def recalled(sign: float) -> Any:
    """Returns an episode of Recall whose actions repeat the sign in the first observation."""
    obs = torch.tensor([[sign], [0.0], [0.0], [0.0]])
    return {
        "obs": obs, "action": torch.full((3,), int(sign > 0)), "reward": torch.tensor([0.0, 0.0, 1.0]),
        "terminated": True, "worth": 1.0,
    }  # fmt: skip


def test_recurrent_bc_clones_a_controller_with_memory(build: Build, tmp_path: Path) -> None:
    """The last action repeats the first observation; a policy without memory has a mean return of 0.5."""
    pytest.importorskip("minari")
    values = jobs([*RECALL, "network.start=zero", f"algo.loop.data={tmp_path / 'demos-v0'}"])[0].values
    demos = [recalled(sign) for sign in (-1.0, 1.0, 1.0, -1.0)] * 4
    write(tmp_path / "demos-v0", demos, build(values, begin=False).env)  # type: ignore[arg-type]
    loop: Any = train(build(values), 150)
    assert evaluate(loop.agent, loop.addons, loop.env, 20)["eval/return_mean"] == 1.0


def test_recurrent_bc_without_hidden_states_says_what_to_set(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"data sets hold none; set network\.start=zero"):
        build(jobs(RECALL)[0].values)


@pytest.mark.parametrize("filtered", [False, True])
def test_sac_cloning_filters_demonstrations_by_the_critics(filtered: bool, build: Build) -> None:
    plain = build(toy("sac_from_data", **{"algo.cloning_coef": 0.0})).agent
    agent: Any = build(toy("sac_from_data", **{"algo.cloning_coef": 0.5, "algo.cloning_filter": filtered})).agent
    batch, noise = pendulum(40) | {"shown": (torch.arange(40) % 3 > 0).float()}, torch.randn(40, 1)
    with torch.no_grad():
        action, _ = agent.actor(batch["obs"]).sample(noise)
        value = agent.critic(batch["obs"], action).amin(0)
        error = (torch.tanh(agent.actor(batch["obs"]).mean) - batch["action"]).squeeze(-1) ** 2
        better = agent.critic(batch["obs"], batch["action"]).amin(0) > value
    assert 5 < better.sum() < 35, "else the filter is not seen"
    kept = batch["shown"] * (better if filtered else 1)
    own, both = plain.update_actor(batch, noise)["loss/actor"], agent.update_actor(batch, noise)["loss/actor"]
    torch.testing.assert_close(both - own, (0.5 * value.abs().mean() * kept * error).mean())


def test_sac_cloning_without_demonstrations_is_sac(build: Build) -> None:
    changes = {"algo.cloning_coef": 0.0, "algo.loop": toy("sac")["algo"]["loop"]}
    one, other = train(build(toy("sac_from_data", **changes)), 4), train(build(toy("sac")), 4)
    for left, right in zip(one.agent.parameters(), other.agent.parameters(), strict=True):
        assert torch.equal(left, right)
