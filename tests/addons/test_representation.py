"""Predictive representations: inputs, masks, losses, and predictions of a linear system."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from toys import put, toy, train

from rlrun.buffers.consecutive import next_steps
from rlrun.core.loop import Loop
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.settings import registry
from rlrun.types import Batch, Context, Spec

Build = Callable[..., Loop]
CTX = Context(0, 0, 0.0)
VALUES = {
    "name": "predictive", "latent": 4, "unroll_steps": 3, "decode": {"obs": 1.0, "reward": 1.0}, "hidden": [8],
    "network": None, "dynamics_network": None, "learning_rate": 0.01, "learning_rates": {},
    "epochs": 1, "minibatch_size": None,
}  # fmt: skip
SPEC = Spec(Box(-np.inf, np.inf, (3,), np.float32), Box(-1.0, 1.0, (2,)), num_envs=2)


def part(spec: Spec = SPEC, **changes: Any) -> Any:
    return registry.build(
        "representation", VALUES | changes, spec, Parts(0, torch.device("cpu"), {}, spec, "representation")
    )


def rollout(time: int = 6, envs: int = 2) -> Batch:
    no = torch.zeros(time, envs, dtype=torch.bool)
    return {
        "obs": torch.randn(time, envs, 3), "next_obs": torch.randn(time, envs, 3), "reward": torch.randn(time, envs),
        "action": torch.rand(time, envs, 2) * 2 - 1, "weight": torch.ones(time, envs),
        "terminated": no.clone(), "truncated": no.clone(),
    }  # fmt: skip


def slowly(batch: Batch, row: int, env: int, length: int) -> list[tuple[float, float]]:
    """Returns (reward, mask) of the steps that follow a step, computed by a loop."""
    found, alive = [], 1.0
    for _ in range(length):
        found.append((batch["reward"][row, env].item(), alive))
        ended = batch["terminated"][row, env] or batch["truncated"][row, env]
        if ended or row + 1 == len(batch["weight"]) or batch["weight"][row + 1, env] == 0 or not alive:
            alive = 0.0
        else:
            row += 1
    return found


def test_next_steps_stop_at_episode_ends() -> None:
    batch = rollout(7)
    batch["terminated"][2, 0] = batch["truncated"][4, 1] = True
    batch["weight"][5, 1] = batch["weight"][4, 0] = 0
    rows = next_steps(batch, torch.arange(14), 4)
    for i in range(14):
        if batch["weight"][i // 2, i % 2]:
            expected = slowly(batch, i // 2, i % 2, 4)
            assert list(zip(rows["reward"][:, i].tolist(), rows["mask"][:, i].tolist(), strict=True)) == expected
        else:
            assert not rows["mask"][:, i].any()
    assert 0 < rows["mask"].mean() < 1


@pytest.mark.parametrize("algo", ["sac", "dqn", "rainbow"])
def test_next_steps_of_replay_equal_those_of_a_rollout(algo: str, build: Build) -> None:
    values = put(
        toy(algo, **{"algo.buffer.capacity": 200, "env.max_episode_steps": 5}), {"algo.representation": VALUES}
    )
    loop: Any = train(build(values), 40)
    everything = loop.buffer.all()
    line = {name: everything[name].view(-1, 2) for name in ("terminated", "truncated", "weight")}
    line = {name: value.bool() if name != "weight" else value for name, value in line.items()}
    line["reward"] = everything["next_steps"]["reward"][0].view(-1, 2)  # single rewards; the batch holds n-step sums
    expected = next_steps(line, torch.arange(len(everything["weight"])), 3)
    assert torch.equal(everything["next_steps"]["reward"], expected["reward"])
    assert torch.equal(everything["next_steps"]["mask"], expected["mask"])


def test_representation_ignores_steps_after_an_episode() -> None:
    batch = rollout(3, 1)
    batch["terminated"][1] = True
    other = {name: value.clone() for name, value in batch.items()}
    for name in ("obs", "next_obs", "reward", "action"):
        other[name][2] += 5.0
    one, two = part(), part()
    two.load_state_dict(one.state_dict())
    first = torch.tensor([0, 1])
    assert torch.equal(
        one.fit(next_steps(batch, first, 3))["loss/representation_reward"],
        two.fit(next_steps(other, first, 3))["loss/representation_reward"],
    )
    assert torch.equal(one.optim.flat, two.optim.flat)
    before = one.optim.flat.clone()
    one.fit(next_steps(batch, torch.tensor([2]), 3))
    assert not torch.equal(before, one.optim.flat)


def test_representation_losses_equal_a_plain_loop() -> None:
    model, batch = part(), rollout(5)
    batch["terminated"][1, 0] = True
    rows = next_steps(batch, torch.tensor([0, 3, 6]), 3)

    def huber(error: torch.Tensor) -> torch.Tensor:
        return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5)

    obs_errors, reward_errors = [], []
    for i in range(3):
        latent = model.encoder(rows["obs"][:1, i])[0]
        obs_errors.append(huber(model.decoders["obs"](latent) - rows["obs"][0, i]).mean())
        for k in range(3):
            latent = latent + model.dynamics(latent[None], rows["action"][k, i][None])[0]
            if rows["mask"][k, i]:
                obs_errors.append(huber(model.decoders["obs"](latent) - rows["next_obs"][k, i]).mean())
                reward_errors.append(huber(model.decoders["reward"](latent) - rows["reward"][k, i]).mean())
    metrics = model.fit(rows)
    torch.testing.assert_close(metrics["loss/representation_obs"], torch.stack(obs_errors).mean())
    torch.testing.assert_close(metrics["loss/representation_reward"], torch.stack(reward_errors).mean())
    assert len(reward_errors) == 2 + 3 + 2


def test_representation_predicts_rewards_of_a_linear_system() -> None:
    """x' = A x + B a is fully observed; the reward c x' has noise of standard deviation 0.2."""
    torch.manual_seed(0)
    a = torch.tensor([[0.9, 0.2, 0.0], [-0.2, 0.9, 0.1], [0.0, 0.0, 0.8]])
    b, c, noise = torch.randn(3, 2), torch.tensor([0.5, -0.3, 0.4]), 0.2

    def lived(time: int, envs: int) -> Batch:
        batch, x = rollout(time, envs), torch.randn(envs, 3)
        for t in range(time):
            batch["obs"][t] = x
            x = batch["next_obs"][t] = x @ a.T + 0.5 * batch["action"][t] @ b.T
            batch["reward"][t] = x @ c + noise * torch.randn(envs)
        return batch

    model = part(hidden=[], latent=6, unroll_steps=5, learning_rate=0.01, minibatch_size=256)
    for step in range(120):
        model.optim.learning_rate.fill_(0.01 if step < 80 else 0.001)
        model.update(model.relabel(lived(12, 64)), CTX)
    rows = next_steps(lived(5, 2000), torch.arange(2000), 5)
    predicted = model.predict_multi_step(model.encode(rows["obs"][0]), rows["action"].transpose(0, 1))["reward"]
    assert predicted.shape == (2000, 6, 1)
    error = (predicted[:, 1:, 0].T - rows["reward"]).square().mean(1)
    assert (error < 1.1 * noise**2).all() and (error > 0.9 * noise**2).all()  # for each of the next steps


def test_representation_without_unroll_is_an_autoencoder() -> None:
    model, batch = part(unroll_steps=0, decode={"obs": 2.0, "reward": 0.0}, hidden=[]), rollout(4)
    assert model.dynamics is None and [*model.decoders] == ["obs"]
    predicted = model.decoders["obs"](model.encoder(batch["obs"]))
    loss = torch.nn.functional.smooth_l1_loss(predicted, batch["obs"])
    metrics = model.update(model.relabel(batch), CTX)
    torch.testing.assert_close(metrics["loss/representation_obs"], loss)


def test_latent_state_of_stacked_frames_is_no_stack() -> None:
    frames = Box(0, 255, (4, 36, 36), np.uint8)
    spec = Spec(frames, Discrete(2), num_envs=2, frame_stack=4)
    assert part(spec).spec_after(spec).frame_stack == 1


def test_representation_keeps_the_action_mask() -> None:
    spec = Spec(Dict({"x": Discrete(5), "action_mask": Box(0, 1, (2,), np.int8)}), Discrete(2), num_envs=2)
    model = part(spec)
    obs = {"x": torch.tensor([1, 4]), "action_mask": torch.tensor([[1, 0], [1, 1]])}
    latent, _ = model.see(obs, {}, True)
    assert latent["obs"].shape == (2, 4) and torch.equal(latent["action_mask"], obs["action_mask"])
    assert [*model.spec_after(spec).obs] == ["action_mask", "obs"]


@pytest.mark.parametrize("algo", ["ppo", "a2c", "ppo_lstm", "vpg"])
def test_representation_is_equal_in_acting_and_learning(algo: str, build: Build) -> None:
    loop: Any = build(put(toy(algo), {"algo.representation": VALUES}))
    for _ in range(3):
        batch = loop.addons.relabel(loop.collect_rollout())
        flat = {name: batch[name].flatten(0, 1) for name in ("action", "log_prob", "weight")}
        obs = batch["obs"] if not isinstance(batch["obs"], dict) else None
        if obs is not None:
            predicted = loop.agent.policy(obs.flatten(0, 1)).log_prob(flat["action"])
            torch.testing.assert_close(predicted * flat["weight"], flat["log_prob"] * flat["weight"])
        loop.agent.update(batch, loop.context())
        loop.addons.update(batch, loop.context())


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_representation_learns_from_normalised_observations(algo: str, build: Build) -> None:
    loop: Any = build(put(toy(algo, **{"env.normalize.kind": "obs"}), {"algo.representation": VALUES}))
    train(loop, 3)
    model, raw = loop.addons[1], loop.buffer.sample(8) if loop.buffer else loop.collect_rollout()
    batch, before = loop.addons.relabel(raw), model.optim.flat.clone()
    steps = raw["next_steps"] if loop.buffer else raw
    assert torch.equal(batch["training_batch"]["obs"], loop.addons[0].normalise(steps["obs"]))
    loop.agent.update(batch, loop.context())
    assert torch.equal(before, model.optim.flat)  # the losses of the agent have no gradient in the representation
    metrics = model.update(batch, loop.context())
    assert not torch.equal(before, model.optim.flat)
    assert metrics.keys() == {"loss/representation_obs", "loss/representation_reward"}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"decode": {"colour": 1.0}}, r"decode\.colour: must name one or more of obs, reward, terminated"),
        ({"unroll_steps": 0}, r"decode\.reward: must name one or more of obs with unroll_steps=0"),
        ({"decode": {"obs": 0.0}}, r"decode: must name"),
    ],
)
def test_representation_refuses_unknown_fields(changes: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        part(**changes)
