"""Recurrent networks: an unroll over time equals single steps, and states are reset at episode starts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium import Space, spaces
from toys import toy, train

from rlrun.addons.memory import RecurrentState
from rlrun.buffers.minibatches import minibatches
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.networks.recurrent import StateLayout
from rlrun.settings import registry
from rlrun.tensors import flat
from rlrun.testing import check_resuming

Build = Callable[..., Loop]

TIME, ENVS = 7, 3
VECTOR = spaces.Box(-1, 1, (2,))
NESTED = spaces.Dict({"x": VECTOR, "n": spaces.Discrete(2)})


def torso(name: str, space: Space = VECTOR, layers: int = 1) -> Any:
    values = {"name": name, "hidden": [4], "activation": "tanh", "init": "uniform", "norm": "none", "features": 5,
              "layers": layers, "sequence_length": 3, "burn_in": 0, "start": "stored", "previous": []}  # fmt: skip
    return registry.build("network", values, [space], None, path="network")


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize(("space", "layers"), [(VECTOR, 1), (NESTED, 1), (VECTOR, 3)], ids=["vector", "dict", "layers"])
def test_recurrent_unroll_equals_single_steps_with_resets(name: str, space: Space, layers: int) -> None:
    net = torso(name, space, layers)
    x, memory = torch.randn(TIME, ENVS, 2), torch.randn(ENVS, net.size)
    obs = {"x": x, "n": torch.randint(2, (TIME, ENVS))} if space is NESTED else {"obs": x}
    first = torch.rand(TIME, ENVS) < 0.3
    first[3] = torch.tensor([True, False, True])
    together = net(obs | {"hidden_state": memory.expand(TIME, -1, -1), "first": first})
    state = memory
    for t in range(TIME):
        now = {key: value[t] for key, value in obs.items()} | {"hidden_state": state * ~first[t].unsqueeze(-1)}
        torch.testing.assert_close(together[t], net(now), rtol=0, atol=1e-6)
        state = net.next_state(now)


@pytest.mark.parametrize(("name", "kind"), [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)])
@pytest.mark.parametrize("layers", [1, 3])
def test_recurrent_layers_equal_torch(name: str, kind: Any, layers: int) -> None:
    net, x = torso(name, layers=layers), torch.randn(TIME, ENVS, 2)
    reference = kind(net.encoder.features, 5, layers)
    state = {}
    for i, cell in enumerate(net.cells()):
        state |= {f"{key}_l{i}": value for key, value in cell.state_dict().items()}
    reference.load_state_dict(state)
    expected, _ = reference(net.encoder(x.flatten(0, 1)).unflatten(0, (TIME, ENVS)))
    none = torch.zeros(TIME, ENVS, dtype=torch.bool)
    seen = net({"obs": x, "hidden_state": torch.zeros(TIME, ENVS, net.size), "first": none})
    torch.testing.assert_close(seen, expected)
    start = torch.zeros(ENVS, net.size)
    encoded = net.encode(x, ENVS)
    torch.testing.assert_close(net.unroll(encoded, start), expected)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_recurrent_layers_unroll_from_any_state_as_in_single_steps(name: str) -> None:
    net = torso(name, layers=2)
    x, state = torch.randn(TIME, ENVS, net.encoder.features), torch.randn(ENVS, net.size)
    together = net.unroll(x, state)
    for t in range(TIME):
        state = net.step(x[t], state)
        torch.testing.assert_close(together[t], state[:, -net.layer_size :][:, :5], rtol=0, atol=1e-6)


@pytest.mark.parametrize("algo", ["ppo_lstm", "recurrent_sac", "r2d2"])
def test_recurrent_layers_learn_and_resume_bit_for_bit(algo: str, build: Build) -> None:
    values = toy(algo, **{"network.layers": 2})
    loop = build(values)
    upper = [param for name, param in loop.agent.named_parameters() if "upper_cells.0" in name and param.requires_grad]
    before = [param.clone() for param in upper]
    train(loop, 3)
    assert before and not any(torch.equal(now, old) for now, old in zip(upper, before, strict=True))
    check_resuming(loop, build(values, begin=False))


def test_recurrent_gradients_stop_at_the_start_of_an_episode() -> None:
    net, x = torso("lstm"), torch.randn(TIME, 1, 2, requires_grad=True)
    first = torch.zeros(TIME, 1, dtype=torch.bool)
    first[4] = True
    out = net({"obs": x, "hidden_state": torch.zeros(TIME, 1, net.size), "first": first})
    (grad,) = torch.autograd.grad(out[-1].sum(), x)
    assert (grad[:4] == 0).all() and (grad[4:].abs().sum(-1) > 0).all()


def test_recurrent_torsos_of_one_agent_have_separate_states() -> None:
    memory, one, other = StateLayout(), torso("lstm"), torso("gru")
    memory.add(one)
    memory.add(other)
    assert (memory.size, memory.sequence_length) == (15, 3)
    obs = {"obs": torch.randn(ENVS, 2), "hidden_state": torch.randn(ENVS, 15)}
    after = memory.next_state(obs)
    torch.testing.assert_close(after[:, :10], one.next_state(obs))
    torch.testing.assert_close(after[:, 10:], other.next_state(obs))


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_recurrent_state_runs_every_cell_once_per_step(name: str) -> None:
    memory, net = StateLayout(), torso(name)
    memory.add(net)
    obs = {"obs": torch.randn(ENVS, 2), "hidden_state": torch.randn(ENVS, net.size)}
    carry = {"first": torch.zeros(ENVS, dtype=torch.bool), "carry.memory": obs["hidden_state"]}
    plain, steps, step = net(obs), [], net.step
    net.step = lambda x, state: (steps.append(1), step(x, state))[1]
    seen, _ = RecurrentState(memory).see({"obs": obs["obs"]}, carry, True)
    assert torch.equal(net(seen), plain) and len(steps) == 1


def test_recurrent_sequences_of_a_rollout_reproduce_the_collected_outputs(build: Build) -> None:
    """If stored states, resets and order are right, log-probabilities before an update equal the collected ones."""
    loop = build(toy("ppo_lstm", **{"env.max_episode_steps": 5}))
    seen = []

    def update(rollout: Any, ctx: Any) -> Any:
        agent = loop.agent
        data = {key: rollout[key] for key in ("obs", "action", "log_prob", "weight")}
        values = agent.critic.network(flat(rollout["obs"])).view_as(rollout["reward"])
        for batch in next(minibatches(data | {"value": values}, 1, 8, agent.shuffle, length=3)):
            assert batch["weight"].dim() == 2
            torch.testing.assert_close(agent.policy(batch["obs"]).log_prob(batch["action"]), batch["log_prob"])
            torch.testing.assert_close(agent.critic.network(batch["obs"]), batch["value"])
            seen.append(batch["obs"]["first"][1:].any().item())
        same = ~rollout["first"][1:]
        after = agent.critic.network(flat(rollout["next_obs"])).view_as(values)
        torch.testing.assert_close(after[:-1][same], values[1:][same])
        return {}

    object.__setattr__(loop.agent, "update", update)
    train(loop, 3)
    assert any(seen), "an episode began inside a sequence"


@pytest.mark.parametrize("algo", ["a2c", "vpg", "ppo1", "ppo2", "ppo_critic_first", "vtrace"])
def test_recurrent_on_policy_algorithms_learn_also_with_masked_actions(algo: str, build: Build) -> None:
    probe = {"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"observation": "tuple", "masks": "info"}}
    loop = build(toy(algo, network=toy("ppo_lstm")["network"], **probe))
    before = {name: param.clone() for name, param in loop.agent.named_parameters()}
    train(loop, 2)
    still = {name for name, param in loop.agent.named_parameters() if torch.equal(param, before[name])}
    assert all(name.endswith("weight_hh") for name in still), "there is nothing to remember in episodes of one step"


@pytest.mark.parametrize("algo", ["cem", "muzero", "maml", "svpg", "neural_greedy"])
def test_recurrent_networks_are_refused_by_algorithms_that_learn_from_single_steps(algo: str, build: Build) -> None:
    network = toy("ppo_lstm")["network"]
    with pytest.raises(ConfigError, match="network=lstm is not supported"):
        build(toy(algo, network=network))
