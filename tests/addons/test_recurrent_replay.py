"""Recurrent networks and replay: rows of sequences with burn-in equal the outputs of acting."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from toys import put, toy, train

from rlrun.addons.memory import RecurrentState
from rlrun.agents.value.dqn import DQN
from rlrun.agents.value.soft_q import SoftQ
from rlrun.buffers.replay import Reading, Replay
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.functional.priorities import of_sequences
from rlrun.networks.heads import Head
from rlrun.networks.recurrent import Lstm, StateLayout
from rlrun.settings import registry
from rlrun.types import MASK, Spec

Build = Callable[..., Loop]
ENVS, LENGTH, BURN_IN, STEPS, GAMMA = 3, 4, 3, 30, 0.9
VECTOR = spaces.Box(-1, 1, (2,), np.float32)
NESTED = spaces.Dict({"x": VECTOR, MASK: spaces.MultiBinary(2)})


def lstm(space: spaces.Space, start: str) -> tuple[Any, StateLayout]:
    values = {"name": "lstm", "hidden": [4], "activation": "tanh", "init": "uniform", "features": 5, "layers": 2}
    values |= {"sequence_length": LENGTH, "burn_in": BURN_IN, "start": start, "previous": [], "norm": {"name": "none"}}
    net, memory = registry.build("network", values, [space], None, path="network"), StateLayout()
    memory.add(net)
    return net, memory


def played(net: Any, space: spaces.Space, seed: int) -> list[dict[str, Any]]:
    """Plays vector steps. Returns a list of them, with the hidden states before and after each. Some steps terminate,
    some are truncated, and some are masked."""
    draw, rows = np.random.default_rng(seed), []
    seen, state = torch.as_tensor(draw.normal(size=(ENVS, 2))).float(), torch.zeros(ENVS, net.size)
    for _ in range(STEPS):
        kind = draw.choice(["", "terminated", "truncated", "lost"], ENVS, p=[0.85, 0.05, 0.05, 0.05])
        after, new = (torch.as_tensor(draw.normal(size=(ENVS, 2))).float() for _ in range(2))
        next_state = net.next_state(observed(space, seen) | {"hidden_state": state}).detach()
        end = torch.as_tensor(kind != "")
        rows.append(
            {
                "x": seen, "final": after, "memory": state, "reward": torch.as_tensor(draw.normal(size=ENVS)).float(),
                "terminated": torch.as_tensor(kind == "terminated"), "lost": torch.as_tensor(kind == "lost"),
                "end": end, "after": next_state,
            }
        )  # fmt: skip
        seen, state = torch.where(end[:, None], new, after), next_state * ~end[:, None]
    return rows


def observed(space: spaces.Space, x: Tensor) -> dict[str, Tensor]:
    return {"x": x, MASK: (x > 0).float()} if space is NESTED else {"obs": x}


def stored(rows: list[dict[str, Any]], space: spaces.Space, memory: StateLayout, n_step: int, capacity: int) -> Replay:
    spec = Spec(space, spaces.Discrete(4), ENVS)
    reading = Reading(GAMMA, n_step, LENGTH + n_step - 1, BURN_IN, memory.stores)
    cfg = Replay.Config(
        capacity=capacity * ENVS, reward_clip=None, reward_scale=1.0, standardize_reward=False, compression=None,
        dtypes={},
    )  # fmt: skip
    buffer = Replay(cfg, spec, reading, 0, torch.device("cpu"))
    for row in rows:
        obs, final = (observed(space, row[key]) for key in ("x", "final"))
        obs, final = (value.get("obs", value) for value in (obs, final))
        step = {
            "obs": obs,
            "next_obs": final,
            "executed": torch.zeros(ENVS, dtype=torch.int64),
            "reward": row["reward"],
            "terminated": row["terminated"],
            "truncated": row["end"] & ~row["terminated"],
            "weight": (~row["lost"]).float(),
            "memory": row["memory"],
            "carry.memory": row["after"],
        }
        buffer.add(step)
    return buffer


@pytest.mark.parametrize("start", ["stored", "zero"])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("space", [VECTOR, NESTED], ids=["vector", "masked dict"])
@pytest.mark.parametrize("capacity", [STEPS, 12], ids=["kept", "overwritten"])
def test_recurrent_replay_rows_equal_a_plain_unroll(
    start: str, n_step: int, space: spaces.Space, capacity: int
) -> None:
    net, memory = lstm(space, start)
    rows = played(net, space, seed=n_step)
    buffer = stored(rows, space, memory, n_step, capacity)
    batch = RecurrentState(memory).relabel(buffer.all())
    numbers = batch["index"].tolist()
    shown, next_shown = (net(batch[key]).view(LENGTH, len(numbers), -1) for key in ("obs", "next_obs"))
    weight, reward, n_steps, terminated = (
        batch[key].view(LENGTH, -1) for key in ("weight", "reward", "n_steps", "terminated")
    )
    seen = set()
    for column, number in enumerate(numbers):
        row, env = divmod(number, ENVS)
        first = row
        while first > max(row - BURN_IN, STEPS - capacity) and not rows[first - 1]["end"][env]:
            first -= 1
        state = rows[first]["memory"][env] if start == "stored" else torch.zeros(net.size)
        states = {}  # hidden state before every row
        for t in range(first, STEPS + 1):
            states[t] = state
            if t == STEPS or rows[t]["lost"][env]:
                break
            here = {key: value[env : env + 1] for key, value in observed(space, rows[t]["x"]).items()}
            state = net.next_state(here | {"hidden_state": state[None]})[0]
            if rows[t]["end"][env]:
                states[t + 1] = state
                break
        last = max(states) - 1  # weights of the steps that continue from this one
        for t in range(LENGTH):
            assert weight[t, column] == (row + t <= last), (number, t)
            if row + t > last:
                continue
            steps = min(n_step, last - row - t + 1)
            end = rows[row + t + steps - 1]
            rewards = [rows[row + t + i]["reward"][env].item() * GAMMA**i for i in range(steps)]
            assert reward[t, column].item() == pytest.approx(sum(rewards), abs=1e-5)
            assert n_steps[t, column] == steps and terminated[t, column] == end["terminated"][env]
            for found, key, x, before in (
                (shown, "obs", rows[row + t]["x"], states[row + t]),
                (next_shown, "next_obs", end["final"], states[row + t + steps]),
            ):
                here = {name: value[env : env + 1] for name, value in observed(space, x).items()}
                expected = net(here | {"hidden_state": before[None]})[0]
                torch.testing.assert_close(found[t, column], expected, rtol=0, atol=1e-5)
                if space is NESTED:
                    mask = batch[key][MASK].view(LENGTH, len(numbers), -1)[t, column]
                    assert torch.equal(mask.float(), here[MASK][0])
            seen.add((row - first, steps, bool(end["terminated"][env])))
    assert {before for before, *_ in seen} == {*range(BURN_IN + 1)} and len({steps for _, steps, _ in seen}) == n_step


def test_recurrent_replay_gradients_stop_at_burn_in() -> None:
    net, memory = lstm(VECTOR, "stored")
    buffer = stored(played(net, VECTOR, 0), VECTOR, memory, 1, STEPS)
    batch = RecurrentState(memory).relabel(buffer.all())
    obs = batch["obs"]
    for key in ("burn_in_obs", "sequence", "hidden_state"):
        obs[key] = obs[key].clone().requires_grad_()
    last = net(obs).view(LENGTH, len(batch["index"]), -1)[-1]
    before, seen, start = torch.autograd.grad(
        last.sum(), [obs["burn_in_obs"], obs["sequence"], obs["hidden_state"]], allow_unused=True
    )
    assert before is None and start is None
    assert (seen[:LENGTH].abs().sum(-1) > 0).all() and (seen[LENGTH:] == 0).all()


def recurrent(algo: str, **changes: Any) -> Any:
    network = put(toy("recurrent_sac")["network"], {"burn_in": 2, "sequence_length": LENGTH})
    return toy(algo, network=network, **{"algo.buffer.capacity": 200} | changes)


def outputs(agent: Any, obs: Any, action: Tensor) -> Tensor:
    """Returns outputs of the actor and of all critics, or action values, in columns: [rows, outputs]."""
    if isinstance(agent, DQN):
        return agent.predict(agent.q, obs).movedim(1, 0).flatten(1)
    critic = Head.forward(agent.critic, obs, *[action] * (agent.actions is spaces.Box))  # [members, rows, ...]
    if isinstance(agent, SoftQ):
        return torch.cat([*critic], -1)
    return torch.cat([Head.forward(agent.actor, obs), *critic], -1)


@pytest.mark.parametrize(
    "algo", ["recurrent_sac", "redq", "discrete_sac", "soft_q", "td3", "ddpg", "dqn", "r2d2", "qr_dqn"]
)
def test_recurrent_replay_reproduces_outputs_of_acting(algo: str, build: Build) -> None:
    """With stored states, for all networks, each with its part of the hidden state."""
    loop = build(recurrent(algo, **{"algo.loop.warmup_policy": "agent"}))
    agent, act, said, checked = loop.agent, loop.agent.act, [], set()

    def watched(obs: Any, carry: Any, explore: bool) -> Any:
        action, extras = act(obs, carry, explore)
        said.append(outputs(agent, obs, action))
        return action, extras

    def update(batch: Any, ctx: Any) -> Any:
        found = outputs(agent, batch["obs"], batch["action"]).unflatten(0, (LENGTH, -1))
        then = torch.cat(said)
        for t, column in batch["weight"].view(LENGTH, -1).nonzero().tolist():
            number = batch["index"][column] + t * loop.env.spec.num_envs
            torch.testing.assert_close(found[t, column], then[number], rtol=0, atol=1e-5)
            checked.add(t)
        return {}

    object.__setattr__(agent, "act", watched)
    object.__setattr__(agent, "update", update)
    train(loop, 12)
    assert checked == {*range(LENGTH)}


@pytest.mark.parametrize("network", ["lstm", "gru"])
@pytest.mark.parametrize(
    "algo",
    ["sac", "redq", "discrete_sac", "td3", "ddpg", "dqn", "double_dqn", "dueling_dqn", "noisy_dqn", "prioritized_dqn",
     "c51", "qr_dqn", "rainbow", "r2d2"],
)  # fmt: skip
def test_recurrent_replay_trains_every_weight(algo: str, network: str, build: Build) -> None:
    discrete = algo not in ("sac", "redq", "td3", "ddpg")
    env = (
        {"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"observation": "tuple", "masks": "info"}} if discrete else {}
    )
    loop = build(recurrent(algo, **{"network.name": network} | env))
    before = {name: param.clone() for name, param in loop.agent.named_parameters()}
    train(loop, 8)
    still = {name for name, param in loop.agent.named_parameters() if torch.equal(param, before[name])}
    assert all(discrete and name.endswith("weight_hh") for name in still), "episodes of one step leave no memory"


@pytest.mark.parametrize("algo", ["recurrent_sac", "discrete_sac", "td3", "r2d2"])
def test_recurrent_replay_without_state_equals_single_steps(
    algo: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses, priorities and weights are equal, also for the last step of an episode."""

    def unroll(self: Any, x: Tensor, state: Tensor) -> Tensor:
        used = sum(0 * param.sum() for param in self.cell.parameters())  # so that every weight has a gradient
        return x @ self.cell.weight_ih[:4].T + used

    monkeypatch.setattr(Lstm, "unroll", unroll)
    monkeypatch.setattr(Lstm, "step", lambda self, x, state: torch.cat([self.unroll(x, state), state[..., 4:]], -1))
    loop = train(build(recurrent(algo, **{"network.features": 4})), 5)
    batch = loop.addons.relabel(loop.buffer.sample(32))
    assert 0 < (batch["weight"] == 0).sum() < 32

    def single(obs: Any) -> Any:
        x = obs["sequence"].flatten(0, 1)[obs["row_index"]]
        return {"obs": x, "hidden_state": torch.randn(len(x), loop.agent.memory.size)}

    flat = batch | {key: single(batch[key]) for key in ("obs", "next_obs")}
    results = []
    for given in (batch, flat):
        agent = copy.deepcopy(loop.agent)
        out = agent.update(given, loop.context())
        results.append([out, [*agent.parameters()]])
    torch.testing.assert_close(*results)


def test_sequence_priority_mixes_maximum_and_mean_error() -> None:
    error = torch.tensor([[4.0, 1.0], [2.0, 9.0]])
    assert of_sequences(error, torch.ones(2, 2)).tolist() == pytest.approx([0.9 * 4 + 0.1 * 3, 0.9 * 9 + 0.1 * 5])
    assert of_sequences(error, torch.tensor([[1.0, 0.5], [1.0, 0.0]]))[1] == 1.0, "what is no step counts nowhere"


def test_sequence_priority_belongs_to_the_sampled_step(build: Build) -> None:
    loop = train(build(recurrent("r2d2")), 1)
    batch = loop.addons.relabel(loop.buffer.sample(2))
    number = batch["index"]
    error = torch.arange(1.0, 2 * LENGTH + 1) * batch["weight"].sign()
    loop.buffer.feedback(batch, error)
    expected = (of_sequences(error.view(LENGTH, 2), batch["weight"].view(LENGTH, 2)).double() + 1e-5) ** 0.9
    torch.testing.assert_close(loop.buffer.tree.get(number % 200), expected)


@pytest.mark.parametrize(
    ("algo", "changes", "says"),
    [
        (
            "sac",
            {"network.sequence_length": 1, "network.start": "zero", "network.burn_in": 0},
            "hidden state is always 0",
        ),
        ("ppo", {"network.burn_in": 2}, "learns from rollouts"),
        ("ppo", {"network.burn_in": 0, "network.start": "zero"}, "learns from rollouts"),
        ("sac_composite", {}, "not supported with algo"),
        ("dqn", {"algo.buffer.capacity": 8}, "4 timesteps fit, but the agent learns from 6"),
    ],
)
def test_recurrent_settings_are_refused_in_a_line_for_each_fault(
    algo: str, changes: Any, says: str, build: Build
) -> None:
    values = toy(algo, network=recurrent("sac")["network"])
    with pytest.raises(ConfigError) as refused:
        build(put(values, changes))
    assert refused.value.faults and all(says in fault and "\n" not in fault for fault in refused.value.faults)
