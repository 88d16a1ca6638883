"""Encoders of models that the agent trains: which optimisers hold and move them, what acts with them, refusals."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_runs import ENVS, composed
from torch import Tensor
from toys import Values, equal, put, toy, train

import rlrun
from rlrun.cli import main
from rlrun.core import ownership
from rlrun.core.loop import Loop
from rlrun.engine.accelerate import MatmulBackend, kernels
from rlrun.errors import ConfigError
from rlrun.run.policy import Policy
from rlrun.testing import check_resuming, save

Build = Callable[..., Loop]
MODES = ("own", "agent", "both")
# the optimiser of the agent that holds a shared encoder
OWNERS = {
    "sac": "agent.critic_optim", "td3": "agent.critic_optim", "dqn": "agent.optim",
    "discrete_sac": "agent.critic_optim", "ppo": "agent.optim", "a2c": "agent.optim",
}  # fmt: skip
ENVIRONMENTS = ENVS | {
    "td3": "Pendulum", "discrete_sac": "CartPole", "a2c": "CartPole", "a2c_split": "CartPole", "sac_hold": "Pendulum",
}  # fmt: skip
# each algorithm with one mode; the other is tested with `-m slow`
DEFAULT = {"sac": "both", "td3": "agent", "dqn": "both", "discrete_sac": "both", "ppo": "both", "a2c": "agent"}
EACH = [
    pytest.param(algo, trained_by, marks=[] if DEFAULT[algo] == trained_by else [pytest.mark.slow])
    for algo in OWNERS
    for trained_by in ("agent", "both")
]
LOCAL = {"cluster": {"name": "local", "workers": 2, "on_lost": "fail", "state_every": 100}}


def shared(algo: str, trained_by: str, model: str = "autoencoder", *words: str) -> Values:
    by = f"algo.representation.trained_by={trained_by}"
    return composed(algo, model, by, *words, env=ENVIRONMENTS[algo])


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([param.detach().flatten() for param in module.parameters()])


@pytest.mark.parametrize(
    ("algo", "owner"),
    [*OWNERS.items(), ("a2c_split", "agent.critic.optim"), ("sac_hold", "agent.critic_optim")],
)
def test_every_weight_has_one_optimiser_and_with_both_a_declared_second(algo: str, owner: str, build: Build) -> None:
    own = {"own": ("addons.0.optim",), "agent": (owner,), "both": (owner, "addons.0.encoder_optim")}
    for trained_by in MODES:
        loop: Any = build(shared(algo, trained_by), begin=False)
        found = ownership.weights(loop.agent, loop.addons)
        assert all(len(weight.owners) == weight.is_trained for weight in found)
        of_encoder = [weight for weight in found if weight.names[-1].startswith("addons.0.model.encoder")]
        assert {tuple(weight.optimisers) for weight in of_encoder} == {own[trained_by]} and len(of_encoder) == 4
        of_decoder = [weight for weight in found if weight.names[0].startswith("addons.0.model.decoder")]
        assert {weight.is_trained for weight in of_decoder} == {trained_by != "agent"} and len(of_decoder) == 4
        assert {tuple(weight.optimisers) for weight in of_decoder} == {() if trained_by == "agent" else own["own"]}


@pytest.mark.parametrize("algo", OWNERS)
def test_20_updates_move_what_the_chosen_losses_train(algo: str, build: Build) -> None:
    for trained_by in ("own", "agent"):
        loop: Any = build(shared(algo, trained_by))
        if trained_by == "own":
            loop.update_addons = lambda ctx: {}  # updates of the agent alone
        model = loop.addons[0].model
        before = copy.deepcopy(model)
        train(loop, 20)
        assert torch.equal(flat(before.encoder), flat(model.encoder)) == (trained_by == "own")
        assert torch.equal(flat(before.decoder), flat(model.decoder))


def test_gradients_of_the_critic_in_a_linear_encoder_equal_those_by_hand(build: Build) -> None:
    linear = ["algo.representation.model.network=linear", "algo.representation.model.latent=2", "network=linear"]
    loop: Any = build(shared("sac", "agent", "network", *linear), begin=False)
    agent, obs, action = loop.agent, torch.randn(8, 3), torch.rand(8, 1)
    q = agent.critic(obs, action)  # [members, batch], q = w (x E + c) + v action + b
    latent = loop.addons[0].model.latent.shape[0]
    weight = agent.critic.output.weight[:, :latent, 0].sum(0)  # of the latent state, summed over the members
    by_hand = torch.cat([torch.outer(obs.sum(0), weight).flatten(), 8 * weight])
    torch.testing.assert_close(agent.critic_optim.grads(q.sum())[: len(by_hand)], by_hand)


def test_losses_of_an_actor_with_its_own_optimiser_do_not_move_the_encoder(build: Build) -> None:
    loop: Any = train(build(shared("sac", "agent")), 1)
    batch, encoder = loop.batch, loop.addons[0].model.encoder
    before, noise = flat(encoder), torch.zeros_like(batch["action"])
    loop.agent.update_actor(batch, noise)
    assert torch.equal(before, flat(encoder))
    loop.agent.update_critic(batch, noise)
    assert not torch.equal(before, flat(encoder))


@pytest.mark.parametrize(("algo", "moves"), [("ppo", True), ("a2c_split", False)])
def test_policy_losses_move_the_encoder_if_their_optimiser_owns_it(algo: str, moves: bool, build: Build) -> None:
    loop: Any = build(put(shared(algo, "agent"), {"algo.critic_update.value_coef": 0.0}))
    data, encoder = loop.agent.advantages(loop.collect_rollout()), loop.addons[0].model.encoder
    before = flat(encoder)
    loop.agent.update_minibatch({name: value.flatten(0, 1) for name, value in data.items()})
    assert torch.equal(before, flat(encoder)) != moves


def test_moments_of_the_second_optimiser_are_those_of_adam_by_hand(build: Build) -> None:
    loop: Any = build(shared("sac", "both"))
    agent, addon = loop.agent, loop.addons[0]
    encoder, second = addon.model.encoder, addon.encoder_optim
    rate, eps = float(second.learning_rate), second.eps
    mean, square = torch.zeros_like(second.exp_avg), torch.zeros_like(second.exp_avg)
    for step in range(1, 4):
        rows = {"obs": torch.randn(8, 3), "weight": torch.ones(8)}
        loss, _ = addon.model.loss(rows, {})
        grads = torch.cat([grad.flatten() for grad in torch.autograd.grad(loss.mean(), [*encoder.parameters()])])
        mean, square = 0.9 * mean + 0.1 * grads, 0.999 * square + 0.001 * grads.square()
        moved = flat(encoder) - rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + eps)
        moments = agent.critic_optim.exp_avg.clone()
        addon.fit(rows, {})
        torch.testing.assert_close(second.exp_avg, mean)
        torch.testing.assert_close(second.exp_avg_sq, square)
        torch.testing.assert_close(flat(encoder), moved)
        assert torch.equal(moments, agent.critic_optim.exp_avg), "the agent has moments of its own"


def test_information_of_an_encoder_that_the_agent_trains_is_estimated(build: Build) -> None:
    words = "algo.representation.information=mutual_information"
    loop: Any = train(build(shared("sac", "agent", "network", words)), 1)
    before = flat(loop.addons[0].model.encoder)
    metrics = loop.addons.update(loop.batch, loop.context())
    assert [*metrics] == ["loss/representation_information"]
    assert torch.equal(before, flat(loop.addons[0].model.encoder))


def test_both_optimisers_step_the_same_memory(build: Build) -> None:
    loop: Any = train(build(shared("sac", "both")), 3)
    encoder, critic_optim = loop.addons[0].model.encoder, loop.agent.critic_optim
    start = critic_optim.flat.data_ptr()
    end = start + critic_optim.flat.numel() * 4
    assert all(start <= param.data_ptr() < end for param in encoder.parameters())
    assert loop.agent.critic.torso.encoder.network is encoder
    assert (critic_optim.exp_avg != 0).any() and (loop.addons[0].encoder_optim.exp_avg != 0).any()


@pytest.mark.parametrize(("algo", "trained_by"), EACH)
def test_runs_with_a_shared_encoder_resume_bit_for_bit(algo: str, trained_by: str, build: Build) -> None:
    values = shared(algo, trained_by)
    check_resuming(train(build(values), 3), build(values, begin=False))


@pytest.mark.parametrize("trained_by", ["agent", "both"])
@pytest.mark.parametrize("prior", [None, ["desired_goal"]])
def test_agents_train_the_means_of_a_vae_and_of_its_prior(trained_by: str, prior: Any, build: Build) -> None:
    by, env = f"algo.representation.trained_by={trained_by}", "Pendulum"
    if prior is not None:
        env = "PointReach"
    values = put(composed("sac", "vae", by, env=env), {"algo.representation.model.prior": prior})
    loop: Any = build(values)
    model = loop.addons[0].model
    read = [model.encoder] if prior is None else [model.encoder, model.prior]
    before = [flat(module) for module in read]
    found = ownership.weights(loop.agent, loop.addons)
    assert all(len(weight.owners) == weight.is_trained for weight in found)
    check_resuming(train(loop, 3), build(values, begin=False))
    assert not any(torch.equal(old, flat(module)) for old, module in zip(before, read, strict=True))


@pytest.mark.parametrize(("algo", "trained_by"), EACH)
def test_all_kernels_of_a_shared_encoder_are_recorded(algo: str, trained_by: str, build: Build) -> None:
    states = []
    for engine in ("eager", "auto"):
        loop = train(build(put(shared(algo, trained_by), {"trainer.engine": engine})), 16)
        states.append((loop.agent.state_dict(), loop.addons.state_dict()))
    assert equal(*states)
    found = [*kernels(loop.agent, "is_kernel"), *kernels(loop.addons, "is_kernel")]
    taped: list[Any] = [getattr(module, name) for module, name in found]
    plain = [tape.method if isinstance(tape, MatmulBackend) else tape for tape in taped]
    used = [tape for tape in plain if tape.tapes]
    assert all(not tape.refused and tape.failed is None for tape in plain) and len(used) >= 1 + (trained_by == "both")


def test_targets_read_the_same_encoder_or_a_copy_that_follows(build: Build) -> None:
    loop: Any = train(build(shared("td3", "agent")), 1)
    agent, batch = loop.agent, loop.buffer.sample(4)
    critic, actor = agent.target_critic(batch["obs"], batch["action"]), agent.target_actor(batch["obs"])
    with torch.no_grad():
        loop.addons[0].model.encoder.output.weight.add_(1.0)
    assert torch.equal(agent.target_critic(batch["obs"], batch["action"]), critic)
    assert not torch.equal(agent.target_actor(batch["obs"]), actor)
    agent.target_critic.track()
    assert not torch.equal(agent.target_critic(batch["obs"], batch["action"]), critic)


@pytest.mark.parametrize("model", ["autoencoder", "network"])
@pytest.mark.parametrize("algo", ["sac", "ppo", "dqn"])
def test_shards_with_a_shared_encoder_in_workers_equal_those_in_the_run(
    algo: str, model: str, build: Build, tmp_path: Path
) -> None:
    trained_by = "both" if model == "autoencoder" else "agent"
    values = put(shared(algo, trained_by, model), {"algo.loop.shards": 2, "env.num_envs": 4})
    here, there = build(values), build(put(values, LOCAL))
    digests = [save(train(loop, 4), tmp_path / "run").digest for loop in (here, there)]
    assert digests[0] == digests[1]


def test_workers_act_with_the_encoder_as_it_is_now(build: Build) -> None:
    """The encoder is no part of the actor in the module tree, so it is sent beside it."""
    loop: Any = build(put(shared("sac", "agent"), {"algo.loop.warmup_steps": 0}))
    acting = [*loop.agent.acting(), *loop.addons.acting()]
    params = {id(param) for module in acting for param in module.parameters()}
    assert params >= {id(param) for param in loop.addons[0].model.encoder.parameters()}
    assert not params & {id(param) for param in loop.addons[0].model.decoder.parameters()}


@pytest.mark.parametrize("algo", ["sac", pytest.param("dqn", marks=pytest.mark.slow)])
def test_exported_and_downloaded_policies_include_a_shared_encoder(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    small = ["total_steps=40", "network.hidden=[8]", "algo.loop.warmup_steps=16", "algo.loop.batch_size=8",
             "algo.representation.model.latent=4", "trainer.eval_episodes=1", "logger=[tensorboard]"]  # fmt: skip
    words = [f"algo={algo}", f"env={ENVIRONMENTS[algo]}", "preset=none", "algo.representation=encoding", *small]
    assert main(["train", *words, "algo.representation.trained_by=both", f"run_dir={run}"]) == 0
    assert main(["export", str(run), "format=torch"]) == 0
    policy: Policy = rlrun.load(run)
    program: Any = torch.export.load(run / "policy.pt2").module()
    obs = np.stack([policy.observation_space.sample() for _ in range(50)]) * np.float32(1e-2)
    with torch.no_grad():
        exported = program({"obs": torch.as_tensor(obs)})["action"].numpy()
    np.testing.assert_allclose(exported, policy.act(obs), atol=1e-5)
    with torch.no_grad():
        for param in policy.addons[0].model.encoder.parameters():
            param.zero_()
    moved = policy.act(obs)
    assert len(np.unique(moved)) == 1, "with a blind encoder, all observations are the same"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["model=network"], "trained_by=own: algo.representation.model=network has no loss of its own; set "),
        (["model=network", "trained_by=both"], "trained_by=both: algo.representation.model=network has no loss of its"),
        (["trained_by=agents"], "algo.representation.trained_by='agents'"),
        (
            ["model=vq_vae", "trained_by=agent"],
            "no gradient passes through the latent states of algo.representation.mod",
        ),
        (["model=discrete_vae", "trained_by=both"], "model=discrete_vae; set algo.representation.trained_by=own"),
    ],
)
def test_train_refuses_losses_that_the_model_lacks(
    words: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["algo=sac", "env=Pendulum", "algo.representation=encoding"]
    given += [f"algo.representation.{word}" for word in words]
    assert main(["train", *given, f"run_dir={tmp_path / 'run'}"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert fault in error and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["algo=recurrent_sac", "env=Pendulum"], "network=lstm is not supported with algo.representation"),
        (["algo=sac", "env=Pendulum", "algo.goals=categorical"], "is not supported with goals"),
        (["algo=vpg", "env=CartPole"], "needs one optimiser of the agent that trains the encoder"),
    ],
)
def test_train_refuses_agents_that_cannot_share_an_encoder(
    words: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*words, "preset=none", "algo.representation=encoding", "algo.representation.trained_by=agent"]
    assert main(["train", *given, f"run_dir={tmp_path / 'run'}"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert fault in error and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("algo", "fault"),
    [
        ("q_learning", "is not supported by algo=q_learning, which trains no network on observations"),
        ("muzero", "is not supported by algo=muzero with these settings, because it learns from sequences"),
        ("svpg", "trained_by=both: needs one optimiser of the agent .* but algo=svpg has 2"),
        ("cem", "convolutions and encoders of algo.representation are not supported"),
    ],
)
def test_agents_that_cannot_share_an_encoder_refuse_it(algo: str, fault: str, build: Build) -> None:
    representation = shared("sac", "both")["algo"]["representation"]
    with pytest.raises(ConfigError, match=fault) as refused:
        build(put(toy(algo), {"algo.representation": representation}))
    assert len(refused.value.faults) == 1


@pytest.mark.slow
@pytest.mark.parametrize("trained_by", MODES)
@pytest.mark.parametrize(
    ("algo", "env", "steps", "least"), [("sac", "Pendulum", 8_000, -400.0), ("ppo", "CartPole", 50_000, 300.0)]
)
def test_agents_learn_with_an_autoencoder(
    algo: str, env: str, steps: int, least: float, trained_by: str, tmp_path: Path
) -> None:
    model = "algo.representation.model"
    words = [
        f"algo={algo}", f"env={env}", "algo.representation=encoding", f"algo.representation.trained_by={trained_by}",
        f"{model}.latent=16", f"{model}.network.hidden=[64]", f"{model}.decoder.hidden=[64]", "network.hidden=[64,64]",
        f"total_steps={steps}", "trainer.eval_every=0", "trainer.eval_episodes=20", "logger=[console]",
    ]  # fmt: skip
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["final_return"] >= least
