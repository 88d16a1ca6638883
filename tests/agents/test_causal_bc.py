"""Causal cloning: losses by hand, and a gain that plain cloning estimates wrongly."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.types import Context

Build = Callable[..., Loop]


def pairs(rows: int = 6) -> dict[str, Any]:
    torch.manual_seed(0)
    mask = torch.ones(2, rows)
    mask[1, 2] = 0
    return {"obs": torch.randn(2, rows, 3), "action": torch.randn(2, rows, 1), "mask": mask, "weight": torch.ones(rows)}


def test_causal_bc_losses_by_hand(build: Build) -> None:
    agent: Any = build(toy("causal_bc", **{"algo.cloning_coef": 0.3, "algo.norm_coef": 0.2})).agent
    batch = pairs()
    with torch.no_grad():
        left = (batch["action"][1] - agent.actor(batch["obs"][1])).squeeze(-1)
        said = agent.adversary(batch["obs"][0]).squeeze(-1)
    counts = torch.tensor([1.0, 1, 0, 1, 1, 1])
    policy = (counts * (2 * left * said + 0.3 * left**2)).mean()
    adversary = -(counts * (2 * left * said - said**2)).mean() + 0.2 * (counts * said.abs()).mean()
    torch.testing.assert_close(type(agent).update_adversary(agent, batch)["loss/adversary"], adversary)
    agent = build(toy("causal_bc", **{"algo.cloning_coef": 0.3, "algo.norm_coef": 0.2})).agent
    torch.testing.assert_close(agent.update_actor(batch)["loss/actor"], policy)


def test_causal_bc_updates_are_separate_and_mask_episode_boundaries(build: Build) -> None:
    agent: Any = train(build(toy("causal_bc")), 2).agent
    before = agent.actor_optim.flat.clone(), agent.adversary_optim.flat.clone()
    agent.update_adversary(pairs())
    assert torch.equal(before[0], agent.actor_optim.flat) and not torch.equal(before[1], agent.adversary_optim.flat)
    found: list[torch.Tensor] = []
    for optim in (agent.actor_optim, agent.adversary_optim):
        object.__setattr__(optim, "apply", lambda grads: found.append(grads))
    for torn in (pairs(), pairs() | {"action": pairs()["action"].index_fill(1, torch.tensor([2]), 1e6)}):
        type(agent).update_actor(agent, torn)
        type(agent).update_adversary(agent, torn)
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])


GAIN = -0.4  # of the demonstrator: a = GAIN s + u + previous u, s' = s + a


def shown(seed: int, episodes: int = 200, steps: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns demonstrated states and actions, [steps, episodes]."""
    draw = torch.Generator().manual_seed(seed)
    u = torch.randn(steps + 1, episodes, generator=draw)
    s, states, actions = torch.randn(episodes, generator=draw), [], []
    for t in range(steps):
        a = GAIN * s + u[t + 1] + u[t]
        states.append(s)
        actions.append(a)
        s = s + a
    return torch.stack(states), torch.stack(actions)


@pytest.mark.parametrize("seed", range(5))
def test_causal_bc_recovers_a_gain_that_plain_cloning_misses(seed: int, build: Build) -> None:
    states, actions = shown(seed)
    now, before, action = states[1:].flatten(), states[:-1].flatten(), actions[1:].flatten()
    found = {}
    for algo in ("causal_bc", "bc"):
        values = jobs([f"algo={algo}", "env=Pendulum", "preset=none", "network=linear"])[0].values
        rates = {"algo.learning_rate": 0.005}
        rates |= {"algo.adversary_learning_rate": 0.05} if algo == "causal_bc" else {}
        agent: Any = build(put(values, rates | {"seed": seed}), begin=False).agent
        obs = torch.nn.functional.pad(torch.stack([before, now])[..., None], (0, 2))  # a state and two zeros
        batch = {"obs": obs, "action": torch.stack([action, action])[..., None], "mask": torch.ones(2, len(now))}
        batch["weight"] = torch.ones(len(now))
        if algo == "bc":
            batch = {"obs": obs[1], "action": batch["action"][1], "weight": batch["weight"]}
        for i in range(800):
            agent.update(batch, Context(i, i, 0.0))
        probe = torch.tensor([[1.0, 0, 0], [0.0, 0, 0]])
        said = agent.act(probe, {}, False)[0]
        found[algo] = abs(float(said[0] - said[1]) - GAIN)
    print(found)
    assert found["causal_bc"] < 0.5 * found["bc"]
