"""`network.actor` and `network.critic` override settings for single networks of an agent."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from toys import toy, train

from rlrun.cli import main
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.networks.norm import Standardised
from rlrun.networks.recurrent import Gru, Lstm, Memoryless
from rlrun.run.assemble import build_loop
from rlrun.testing import check_resuming

Build = Callable[..., Loop]
WITHOUT_WARMUP = {"name": "batch_renorm", "momentum": 0.9}
CELL = {"features": 4, "layers": 1, "sequence_length": 4, "burn_in": 0, "start": "stored", "previous": []}
RENORM = WITHOUT_WARMUP | {"warmup": 1}


def widths(network: Any) -> list[int]:
    return [layer.weight.shape[-1] for layer in network.torso.stack.layers]


@pytest.mark.parametrize(
    ("algo", "actor", "critics"),
    [
        ("sac", "actor", ["critic"]),
        ("discrete_sac", "actor", ["critic"]),
        ("td3", "actor", ["critic"]),
        ("iql", "actor", ["critic", "value"]),
        ("ppo", "policy", ["critic.network"]),
        ("ppo_critic_first", "policy", ["critic.network"]),
    ],
)
def test_network_critic_and_actor_change_their_own_networks(
    algo: str, actor: str, critics: list[str], build: Build
) -> None:
    changes: dict[str, Any] = {"network.critic": {"hidden": [6, 7]}}
    agent = build(toy(algo, **changes)).agent
    assert widths(getattr(agent, actor)) == [8]
    assert all(widths(agent.get_submodule(critic)) == [6, 7] for critic in critics)
    agent = build(toy(algo, **changes, **{"network.actor": {"hidden": [5], "norm": "layer"}})).agent
    assert widths(getattr(agent, actor)) == [5]
    assert any(isinstance(module, Standardised) for module in getattr(agent, actor).modules())
    assert not any(isinstance(module, Standardised) for module in agent.get_submodule(critics[0]).modules())


def test_particles_have_roles_of_their_own(build: Build) -> None:
    agent: Any = build(toy("svpg", **{"network.critic": {"hidden": [6]}})).agent
    assert [widths(particle.critic.network) for particle in agent.particles] == [[6], [6]]


LSTM_BESIDE_MLP: dict[str, dict[str, Any]] = {  # of the algorithms, which of the two networks is recurrent
    "ppo_lstm": {"network.critic": {"name": "mlp"}},
    "ppo": {"network.actor": {"name": "lstm"} | CELL},
    "a2c": {"network.critic": {"name": "gru"} | CELL},
    "recurrent_sac": {"network.critic": {"name": "mlp"}},
}


@pytest.mark.parametrize("algo", LSTM_BESIDE_MLP)
def test_networks_of_actor_and_critic_may_be_of_different_kinds(algo: str, build: Build) -> None:
    """One is recurrent. Both learn, and a resumed run is the one that never stopped."""
    values = toy(algo, **LSTM_BESIDE_MLP[algo])
    loop: Any = build(values)
    before = copy.deepcopy(dict(loop.agent.named_parameters()))
    train(loop, 3)
    for name, param in loop.agent.named_parameters():
        assert name.startswith("target_") or not torch.equal(before[name], param), name
    (recurrent,) = loop.agent.memory.torsos
    assert isinstance(recurrent, Lstm | Gru)
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize("algo", LSTM_BESIDE_MLP)
def test_networks_of_different_kinds_read_the_same_dict(algo: str, build: Build) -> None:
    action = "box" if algo == "recurrent_sac" else "discrete"
    probe = {"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"observation": "dict", "action": action}}
    loop = train(build(toy(algo, **probe, **LSTM_BESIDE_MLP[algo])), 3)
    assert all(torch.isfinite(param).all() for param in loop.agent.parameters())


def test_memoryless_critic_reads_what_the_environment_shows(build: Build) -> None:
    """In rollouts, sequences, rows of replay and single steps, its values are those of the plain observations."""
    torso = torch.nn.Linear(3, 2)
    torso.features = 2  # type: ignore[assignment]
    memoryless = Memoryless(torso, Box(-1.0, 1.0, (3,)))
    obs = torch.randn(4, 2, 3)
    plain = torso(obs)
    first = torch.zeros(4, 2, dtype=torch.bool)
    assert torch.equal(memoryless({"obs": obs[0], "hidden_state": torch.ones(2, 5)}), torso(obs[0]))
    assert torch.equal(memoryless({"obs": obs[0], "first": first[0]}), torso(obs[0]))
    torch.testing.assert_close(memoryless({"obs": obs, "first": first}), plain)
    index = torch.tensor([5, 1, 2])
    torch.testing.assert_close(memoryless({"sequence": obs, "row_index": index}), plain.flatten(0, 1)[index])


@pytest.mark.parametrize(
    ("algo", "changes", "line"),
    [
        ("dqn", {"network.critic": {"hidden": [6]}}, "network.critic: algo=dqn has no separate network for the critic"),
        (
            "ppo",
            {"network.actor": {"hidden": [6]}, "algo.critic_update.name": "shared"},
            "network.actor: algo=ppo has no separate network for the actor",
        ),
        ("sac", {"network.norm": RENORM}, "network.norm=batch_renorm is not supported by algo=sac"),
        ("sac", {"network.critic": {"norm": RENORM}}, "network.norm=batch_renorm is not supported by algo=sac"),
        ("maml", {"network.norm": RENORM}, "network.norm=batch_renorm is not supported by algo=maml"),
        (
            "sac",
            {"network.critic": {"hiden": [6]}},
            "network.critic.hiden: unknown key; did you mean network.critic.hi",
        ),
        ("sac", {"network.critic": {"norm": 5}}, "network.critic.norm=5: must be the name of a part, or a section"),
        (
            "sac",
            {"network.critic": {"norm": WITHOUT_WARMUP}},
            "network.critic.norm.warmup: missing",
        ),
        ("sac", {"network.critic": {"name": "cnn"}}, "network.critic.convolutions: missing"),
        ("sac", {"network.critic": {"name": "mpl"}}, "network.critic.name=mpl: must be one of auto, cnn"),
        ("ppo_lstm", {"network.critic": {"name": "mlp", "features": 4}}, "network.critic.features: unknown key"),
        (
            "crossq",
            {"network.critic": {"name": "lstm"} | CELL},
            "network=lstm is not supported by algo=crossq, which keeps no recurrent state",
        ),
        (
            "a2c",
            {
                "network.actor": {"name": "gru"} | CELL,
                "network.critic": {"name": "lstm"} | CELL | {"sequence_length": 2},
            },
            "network.sequence_length: must be the same in the networks of actor and critic",
        ),
        ("sac", {"network.critic": 5}, "network.critic=5: must be a section"),
        ("recurrent_sac", {"network.actor": {"burn_in": 9}}, "network.actor.burn_in: is the same for the whole agent"),
    ],
)
def test_networks_of_a_role_are_refused_in_one_line(algo: str, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        build_loop(run_config(toy(algo, **changes)))
    assert str(refusal.value).startswith(line)
    assert "\n" not in str(refusal.value)


def test_show_says_where_the_network_of_a_role_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "algo=sac", "env=HalfCheetah", "network.critic.hidden=[64]", "network.norm=batch_renorm"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("network.")}
    assert "command line" in lines["network.critic.hidden"]
    assert "network settings that differ in the actor's network" in lines["network.actor"]
    assert "updates with plain batch normalisation" in lines["network.norm.warmup"]
