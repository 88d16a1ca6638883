"""An autoencoder before the agent's torsos: whose losses move its encoder, and which optimiser holds its weights."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss
from toys import Values, equal, put, toy, train

from rlrun.cli import main
from rlrun.core import ownership
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.testing import check_resuming

Build = Callable[..., Loop]
MODES = ("own", "agent", "both")
LINEAR = {
    "name": "autoencoder", "latent": 2, "trained_by": "both", "hidden": [], "learning_rate": 0.01, "epochs": 1,
    "minibatch_size": None,
}  # fmt: skip


def encoded(algo: str, trained_by: str, **changes: Any) -> Values:
    return put(toy(algo, **changes), {"algo.representation": LINEAR | {"trained_by": trained_by}})


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([param.detach().flatten() for param in module.parameters()])


def linear_sac(trained_by: str, build: Build) -> tuple[Any, Any, Any]:
    """Returns agent and add-on of SAC whose networks and encoder are linear, and a batch of 8 transitions."""
    loop: Any = build(encoded("sac", trained_by, network={"name": "linear"}), begin=False)
    batch = {
        "obs": torch.randn(8, 3), "next_obs": torch.randn(8, 3), "action": torch.rand(8, 1), "reward": torch.randn(8),
        "terminated": torch.zeros(8), "n_steps": torch.ones(8), "weight": torch.ones(8),
    }  # fmt: skip
    return loop.agent, loop.addons[0], batch


def test_gradients_of_the_critic_in_a_linear_encoder_equal_those_by_hand(build: Build) -> None:
    agent, addon, batch = linear_sac("agent", build)
    q = agent.critic(batch["obs"], batch["action"])  # [members, batch], q = w (x E + c) + v action + b
    ours = agent.critic_optim.grads(q.sum())
    weight = agent.critic.output.weight[:, :2, 0].sum(0)  # of the latent state, summed over the members
    by_hand = torch.cat([torch.outer(batch["obs"].sum(0), weight).flatten(), 8 * weight])
    assert addon.encoder.output.weight.shape == (3, 2)
    torch.testing.assert_close(ours[: len(by_hand)], by_hand)


@pytest.mark.parametrize("trained_by", MODES)
def test_only_the_chosen_losses_move_the_encoder(trained_by: str, build: Build) -> None:
    agent, addon, batch = linear_sac(trained_by, build)
    noise = torch.zeros_like(batch["action"])

    def moves(step: Callable[[], object]) -> bool:
        before = flat(addon.encoder)
        step()
        return not torch.equal(before, flat(addon.encoder))

    assert moves(lambda: agent.update_critic(batch, noise)) == (trained_by != "own")
    assert not moves(lambda: agent.update_actor(batch, noise))
    assert moves(lambda: addon.update(batch, None)) == (trained_by != "agent")


@pytest.mark.parametrize(
    ("algo", "changes", "expected"),
    [("ppo", {}, True), ("ppo", {"algo.critic_update.name": "shared"}, True), ("a2c_split", {}, False)],
)
def test_policy_losses_move_the_encoder_if_their_optimiser_owns_it(
    algo: str, changes: Values, expected: bool, build: Build
) -> None:
    loop: Any = build(encoded(algo, "agent", **{"algo.critic_update.value_coef": 0.0} | changes))
    data, encoder = loop.agent.advantages(loop.collect_rollout()), loop.addons[0].encoder
    before = flat(encoder)
    loop.agent.update_minibatch({name: value.flatten(0, 1) for name, value in data.items()})
    assert torch.equal(before, flat(encoder)) != expected


def test_both_losses_step_the_encoder_as_two_adams_of_torch(build: Build) -> None:
    agent, addon, batch = linear_sac("both", build)
    critic, decoder = copy.deepcopy((agent.critic, addon.decoder))
    encoder = critic.torso.encoder
    of_agent = torch.optim.Adam(critic.parameters(), agent.cfg.critic_learning_rate)
    own = torch.optim.Adam([*decoder.parameters(), *encoder.parameters()], LINEAR["learning_rate"])

    def regression(network: Any, target: Tensor) -> Tensor:
        loss, _, _ = agent.ensemble.regress(network(batch["obs"], batch["action"]), target, batch["weight"])
        return loss

    for _ in range(3):
        target = torch.randn(8)
        agent.critic_optim.step(regression(agent.critic, target))
        addon.fit(batch)
        of_agent.zero_grad()
        regression(critic, target).backward()
        of_agent.step()
        own.zero_grad()
        smooth_l1_loss(decoder(encoder(batch["obs"])), batch["obs"]).backward()
        own.step()
    torch.testing.assert_close(flat(agent.critic), flat(critic), atol=1e-6, rtol=0)
    torch.testing.assert_close(flat(addon.decoder), flat(decoder), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("algo", "changes", "owner"),
    [
        ("sac", {}, "agent.critic_optim"),
        ("td3", {}, "agent.critic_optim"),
        ("dqn", {}, "agent.optim"),
        ("ppo", {}, "agent.optim"),
        ("ppo", {"algo.critic_update.name": "shared"}, "agent.optim"),
        ("a2c_split", {}, "agent.critic.optim"),
        ("sac_hold", {}, "agent.critic_optim"),
    ],
)
def test_one_optimiser_owns_the_encoder(algo: str, changes: Values, owner: str, build: Build) -> None:
    owners = {"own": ["addons.0.optim"], "agent": [owner], "both": [owner]}
    for trained_by in MODES:
        loop: Any = build(encoded(algo, trained_by, **changes), begin=False)
        found = ownership.weights(loop.agent, loop.addons)
        assert all(len(weight.owners) == weight.is_trained for weight in found)
        of_encoder = [weight for weight in found if "addons.0.encoder.output.weight" in weight.names]
        assert [weight.owners for weight in of_encoder] == [owners[trained_by]]
        assert ("addons.0.encoder_optim" in of_encoder[0].optimisers) == (trained_by == "both")


def test_target_critics_copy_an_encoder_that_the_agent_trains_and_target_actors_share_it(build: Build) -> None:
    loop: Any = train(build(encoded("td3", "agent")), 1)
    agent, batch = loop.agent, loop.buffer.sample(4)
    inputs = batch["obs"], batch["action"]
    critic, actor = agent.target_critic(*inputs), agent.target_actor(batch["obs"])
    with torch.no_grad():
        loop.addons[0].encoder.output.weight.add_(1.0)
    assert torch.equal(agent.target_critic(*inputs), critic)
    assert not torch.equal(agent.target_actor(batch["obs"]), actor)
    agent.target_critic.track()
    assert not torch.equal(agent.target_critic(*inputs), critic)


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_an_autoencoder_trained_by_itself_is_a_representation_that_predicts_no_steps(algo: str, build: Build) -> None:
    predictive = {key: value for key, value in LINEAR.items() if key != "trained_by"}
    predictive |= {"name": "predictive", "unroll_steps": 0, "decode": {"obs": 1.0}}
    one = train(build(encoded(algo, "own")), 4)
    two = train(build(put(toy(algo), {"algo.representation": predictive})), 4)
    torch.testing.assert_close(flat(one.agent), flat(two.agent))
    torch.testing.assert_close(flat(one.addons), flat(two.addons))


@pytest.mark.parametrize("trained_by", MODES)
@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_runs_with_an_autoencoder_resume_bit_for_bit(algo: str, trained_by: str, build: Build) -> None:
    values = encoded(algo, trained_by)
    check_resuming(train(build(values), 3), build(values, begin=False))


@pytest.mark.parametrize(("algo", "trained_by"), [("sac", "own"), ("sac", "agent"), ("sac", "both"), ("ppo", "both")])
def test_recorded_updates_of_an_autoencoder_have_the_bits_of_eager(algo: str, trained_by: str, build: Build) -> None:
    states = []
    for engine in ("eager", "auto"):
        values = encoded(algo, trained_by, **{"trainer.engine": engine})
        loop = train(build(values), 16)
        states.append((loop.agent.state_dict(), loop.addons.state_dict()))
    assert equal(*states)


@pytest.mark.parametrize(
    ("algo", "trained_by", "changes", "fault"),
    [
        ("q_learning", "own", {}, "not supported by algo=q_learning, which trains no network on observations"),
        ("ppo_lstm", "both", {}, "not supported by algo=ppo with these settings, because it learns from sequences"),
        ("muzero", "own", {}, "not supported by algo=muzero with these settings, because it learns from sequences"),
        ("ppo", "agent", {"algo.goals": {"name": "categorical", "num_goals": 2}}, "not supported with goals"),
        ("iql", "both", {}, "trained_by=both: needs one optimiser .* but algo=iql has 2; set .*=own"),
        ("svpg", "both", {}, "trained_by=both: needs one optimiser .* but algo=svpg has 2; set .*=own"),
        ("vpg", "agent", {}, "trained_by=agent: needs one optimiser .* but algo=a2c has 0; set .*=own"),
        ("cem", "agent", {}, "convolutions and encoders of algo.representation are not supported"),
    ],
)
def test_an_autoencoder_refuses_agents_that_it_does_not_support(
    algo: str, trained_by: str, changes: Values, fault: str, build: Build
) -> None:
    with pytest.raises(ConfigError, match=fault) as refused:
        build(put(encoded(algo, trained_by), changes))
    assert len(refused.value.faults) == 1


def test_train_refuses_an_autoencoder_with_a_recurrent_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["algo=recurrent_sac", "env=Pendulum", "algo.representation=autoencoder"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 2
    assert "network=lstm is not supported with algo.representation, which takes no sequences" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("trained_by", MODES)
@pytest.mark.parametrize(
    ("algo", "env", "steps", "least"), [("sac", "Pendulum", 8_000, -400.0), ("ppo", "CartPole", 50_000, 300.0)]
)
def test_agents_learn_with_an_autoencoder(
    algo: str, env: str, steps: int, least: float, trained_by: str, tmp_path: Path
) -> None:
    words = [
        f"algo={algo}", f"env={env}", "algo.representation=autoencoder", f"algo.representation.trained_by={trained_by}",
        "algo.representation.latent=16", "algo.representation.hidden=[64]", "network.hidden=[64,64]",
        f"total_steps={steps}", "trainer.eval_every=0", "trainer.eval_episodes=20", "logger=[console]",
    ]  # fmt: skip
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["final_return"] >= least
