"""Latent states of models in place of observations: whose losses move the model, runs, resumes, workers, refusals."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_runs import composed
from torch import Tensor
from toys import equal, put, train, weights

from rlrun.cli import main
from rlrun.core import ownership
from rlrun.core.loop import Loop
from rlrun.engine.accelerate import MatmulBackend, kernels
from rlrun.testing import check_resuming, save

Build = Callable[..., Loop]
MODELS = ("autoencoder", "vae", "discrete_vae", "vq_vae")
LOCAL = {"cluster": {"name": "local", "workers": None, "on_lost": "fail", "state_every": 100}}


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([param.detach().flatten() for param in module.parameters()])


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_only_its_own_loss_moves_the_model_of_an_encoding(algo: str, build: Build) -> None:
    loop: Any = train(build(composed(algo, "autoencoder")), 2)
    addon = loop.addons[0]
    raw = loop.buffer.sample(8) if loop.buffer else loop.collect_rollout()
    batch = loop.addons.relabel(raw)
    before = flat(addon.model)
    loop.agent.update(batch, loop.context())
    assert torch.equal(before, flat(addon.model))
    addon.update(batch, loop.context())
    assert not torch.equal(before, flat(addon.model))
    found = ownership.weights(loop.agent, loop.addons)
    owners = {tuple(weight.owners) for weight in found if weight.names[0].startswith("addons.0.model")}
    assert owners == {("addons.0.optim",)}


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_agents_of_an_encoding_get_latent_states(algo: str, build: Build) -> None:
    loop: Any = train(build(composed(algo, "autoencoder")), 2)
    addon = loop.addons[0]
    assert loop.agent.spec.obs == addon.model.latent and loop.agent.spec.obs.shape == (4,)
    raw = loop.buffer.sample(8) if loop.buffer else loop.collect_rollout()
    batch = loop.addons.relabel(raw)
    with torch.no_grad():
        for key in ("obs", "next_obs"):
            torch.testing.assert_close(batch[key], addon.model.encode(raw[key]))
    acted, extras = addon.see(loop.obs, {}, explore=False)
    assert torch.equal(acted, addon.model.encode(loop.obs)) and extras == {}


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_an_encoding_by_an_autoencoder_is_a_prediction_of_no_steps(algo: str, build: Build) -> None:
    predictive = {
        "name": "predictive", "latent": 4, "unroll_steps": 0, "decode": {"obs": 1.0}, "hidden": [8],
        "network": None, "dynamics_network": None, "learning_rate": 0.01, "learning_rates": {},
        "epochs": 2, "minibatch_size": 8,
    }  # fmt: skip
    one = train(build(composed(algo, "autoencoder")), 4)
    values = composed(algo, "autoencoder")
    values["algo"]["representation"] = predictive
    two = train(build(values), 4)
    torch.testing.assert_close(flat(one.agent), flat(two.agent))
    torch.testing.assert_close(flat(one.addons), flat(two.addons))


PREVIOUS = "algo.representation.previous=[action,reward]"


def test_models_read_the_previous_step_of_replayed_steps(build: Build) -> None:
    values = put(composed("sac", "autoencoder", PREVIOUS), {"env.max_episode_steps": 5, "algo.buffer.capacity": 100})
    loop: Any = train(build(values), 40)
    stored, rows = loop.buffer.stored(), loop.addons.relabel(loop.buffer.sample(60))
    seen, num_envs = rows["training_batch"]["obs"], loop.env.spec.num_envs
    assert loop.agent.spec.obs == loop.addons[1].model.latent
    starts = 0
    for i, row in enumerate(rows["index"].tolist()):
        last = row - num_envs
        is_first = last < 0 or bool(stored["truncated"][last])
        action, reward = (0, 0) if is_first else (stored["action"][last], stored["reward"][last])
        assert seen["previous_action"][i] == action and seen["previous_reward"][i] == reward
        starts += is_first
    assert 0 < starts < 60
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize("trained_by", ["own", "both"])
def test_rollouts_have_the_log_probabilities_of_models_that_read_the_previous_step(
    trained_by: str, build: Build
) -> None:
    """Only if updates encode the previous step with which the agent acted."""
    by = f"algo.representation.trained_by={trained_by}"
    loop: Any = train(build(put(composed("ppo", "vae", PREVIOUS, by), {"env.max_episode_steps": 5})), 1)
    raw = loop.collect_rollout()
    rollout = loop.addons.relabel(raw)
    torch.testing.assert_close(loop.agent.policy(rollout["obs"]).log_prob(rollout["action"]), rollout["log_prob"])
    other = loop.addons.relabel(raw | {"previous_reward": raw["previous_reward"] + 1})
    assert not torch.allclose(loop.agent.policy(other["obs"]).log_prob(rollout["action"]), rollout["log_prob"])


def test_weights_of_rows_count_in_the_loss_of_a_model(build: Build) -> None:
    """A row of weight 2 counts twice, and one of weight 0 not at all."""
    loop: Any = build(composed("ppo", "autoencoder"))
    addon, obs = loop.addons[0], torch.randn(4, 4)
    start = {key: value.clone() for key, value in addon.state_dict().items() if isinstance(value, Tensor)}
    addon.fit({"obs": obs[[0, 1, 1]], "weight": torch.ones(3)}, {})
    expected = flat(addon.model)
    addon.load_state_dict(start, strict=False)
    _, metrics = addon.model.loss({"obs": obs[[0, 1]], "weight": torch.ones(2)}, {})
    found = addon.fit({"obs": obs[[0, 1, 2]], "weight": torch.tensor([1.0, 2.0, 0.0])}, {})
    torch.testing.assert_close(flat(addon.model), expected)
    torch.testing.assert_close(found, metrics)


@pytest.mark.parametrize("model", MODELS)
def test_a_shard_with_an_encoding_equals_a_run_without_shards(model: str, build: Build) -> None:
    values = composed("ppo", model)
    plain, sharded = build(values), build(put(values, {"algo.loop.shards": 1}))
    for _ in range(3):
        assert equal(plain.tick(), sharded.tick())
    assert equal(weights(plain), weights(sharded)) and equal(plain.obs, sharded.obs)


WITH_INFORMATION = [
    "algo.representation.information=mutual_information",
    "algo.representation.information.buffer_size=20",
]


@pytest.mark.parametrize("product", ["buffer", "double_buffer", "shuffle", "shift"])
def test_information_of_latent_states_is_logged_and_moves_no_model(product: str, build: Build) -> None:
    words = [*WITH_INFORMATION, f"algo.representation.information.product={product}"]
    values = composed("sac", "vae", *words)
    loop: Any = train(build(values), 3)
    assert "loss/representation_information" in loop.tick() or loop.tick()
    rows = loop.addons.relabel(loop.buffer.sample(8))["training_batch"]
    addon = loop.addons[0]
    before = flat(addon.model), flat(addon.information)
    addon.fit_information(rows, addon.information.noise(8, addon.draws))
    assert torch.equal(before[0], flat(addon.model)) and not torch.equal(before[1], flat(addon.information))
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize("product", ["buffer", "double_buffer", "shuffle"])
def test_recorded_estimates_of_information_have_the_bits_of_eager(product: str, build: Build) -> None:
    states = []
    words = [*WITH_INFORMATION, f"algo.representation.information.product={product}"]
    for engine in ("eager", "auto"):
        loop = train(build(put(composed("sac", "autoencoder", *words), {"trainer.engine": engine})), 16)
        states.append((loop.agent.state_dict(), loop.addons.state_dict()))
    assert equal(*states)
    taped: Any = loop.addons[0].fit_information
    assert taped.method.tapes and not taped.method.refused and taped.method.failed is None


@pytest.mark.parametrize("model", MODELS)
def test_runs_with_an_encoding_resume_bit_for_bit(model: str, build: Build) -> None:
    values = composed("ppo", model)
    loop = train(build(values), 3)
    assert "loss/representation_obs" in (loop.tick() or loop.tick())
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize("model", MODELS)
def test_recorded_updates_of_an_encoding_have_the_bits_of_eager(model: str, build: Build) -> None:
    states = []
    for engine in ("eager", "auto"):
        loop = train(build(put(composed("sac", model), {"trainer.engine": engine})), 16)
        states.append((loop.agent.state_dict(), loop.addons.state_dict()))
    assert equal(*states)
    for mark in ("is_kernel", "is_policy"):
        for module, name in kernels(loop.addons, mark):
            taped: Any = getattr(module, name)
            if isinstance(taped, MatmulBackend):
                taped = taped.method
            is_called = name != "fit_information"
            assert bool(taped.tapes) == is_called and not taped.refused and taped.failed is None


IMAGES = {
    "deconvolution": ["algo.representation.model.decoder.convolutions=[[4,4,2],[4,3,2]]"],
    "broadcast": ["algo.representation.model.decoder.channels=[4]"],
    "residual": ["algo.representation.model.decoder.sections=[4,4]"],
}


@pytest.mark.parametrize("decoder", IMAGES)
def test_runs_that_decode_images_have_recordings_and_resume_bit_for_bit(decoder: str, build: Build) -> None:
    words = [
        "env.kwargs.pixels=16", "algo.representation.model.network=cnn",
        "algo.representation.model.network.convolutions=[[4,4,2],[4,3,2]]",
        f"algo.representation.model.decoder={decoder}", "algo.representation.model.decoder.loss=bce", *IMAGES[decoder],
    ]  # fmt: skip
    values = composed("sac", "vae", *words, env="PointMass")
    states = []
    for engine in ("eager", "auto"):
        loop: Any = train(build(put(values, {"trainer.engine": engine})), 12)
        states.append((loop.agent.state_dict(), loop.addons.state_dict()))
    assert equal(*states)
    taped = loop.addons[0].fit.method
    assert taped.tapes and not taped.refused and taped.failed is None
    check_resuming(loop, build(put(values, {"trainer.engine": "auto"}), begin=False))


@pytest.mark.parametrize("model", MODELS)
def test_workers_with_an_encoding_equal_one_process(model: str, build: Build, tmp_path: Path) -> None:
    values = put(composed("sac", model), {"algo.loop.shards": 2, "env.num_envs": 4})
    here, there = build(values), build(put(values, LOCAL))
    digests = [save(train(loop, 4), tmp_path / "run").digest for loop in (here, there)]
    assert digests[0] == digests[1]


def test_losses_of_models_draw_no_numbers(build: Build) -> None:
    """`noise` draws all of them, so a loss repeats, and kernels that call it can be recorded."""
    for model in MODELS:
        addon = build(composed("ppo", model)).addons[0]
        rows = {"obs": torch.randn(6, 4), "weight": torch.ones(6)}
        noise = addon.model.noise(rows, addon.draws)
        drawn = [torch.get_rng_state(), addon.draws.generator.get_state()]
        losses = []
        for again in (addon.model, copy.deepcopy(addon.model)):
            loss, _ = copy.deepcopy(again).loss(rows, noise)
            losses.append(loss)
        assert equal(drawn, [torch.get_rng_state(), addon.draws.generator.get_state()])
        assert losses[0].shape == (6,) and torch.equal(*losses)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["algo.representation.model.decoder=broadcast"], "decoder=broadcast: needs images of bytes, but observations"),
        (["algo.representation.model.decoder.loss=bce"], "decoder.loss=bce: needs observations from 0 to 1"),
        (["algo.representation.model.decoder.loss=huber"], "decoder.loss='huber'"),
        (["algo.representation.model.decoder=deconvolutions"], "did you mean deconvolution?"),
        (
            ["algo.representation.model=vae", "algo.representation.model.prior=[a]"],
            "model.prior=a: must be an entry of",
        ),
        (["algo.representation.model=autoencoders"], "did you mean autoencoder?"),
        (["algo.representation.model.network=lstm"], "algo.representation.model.network=lstm: unknown name"),
        (
            [WITH_INFORMATION[0], "algo.representation.information.bound=ml"],
            "information: bound=ml and product=distribution",
        ),
        ([WITH_INFORMATION[0], "algo.representation.information.bound=mine"], "information.bound='mine'"),
        (["algo.representation.previous=[velocity]"], "algo.representation.previous.0='velocity': must"),
        (["network=lstm"], "network=lstm is not supported with algo.representation, which takes no sequences"),
    ],
)
def test_train_refuses_models_that_do_not_fit(
    words: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    given = ["algo=sac", "env=Pendulum", "algo.representation=encoding", *words, f"run_dir={run}"]
    assert main(["train", *given]) == 2
    error = capsys.readouterr().err
    assert fault in error and "Traceback" not in error and len(error.splitlines()) == 1 and not run.exists()
