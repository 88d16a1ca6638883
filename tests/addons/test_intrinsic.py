"""Intrinsic rewards: returns, scale, and the rewards of RND and ICM."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from toys import put, toy, train

from rlrun.addons.rewards.intrinsic.bonus import SeparateBonus
from rlrun.addons.rewards.intrinsic.inputs import IntrinsicInputs
from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.addons.rewards.total import RewardSum
from rlrun.agents.policy.columns import columns, combined
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.core.parts import Parts
from rlrun.core.statistics import Statistics
from rlrun.errors import ConfigError
from rlrun.functional.returns import gae
from rlrun.settings import registry
from rlrun.types import Batch, Bonus, Context, Spec

Build = Callable[..., Loop]
CTX = Context(0, 0, 0.0)
SPEC = Spec(Box(-np.inf, np.inf, (3,), np.float32), Discrete(2), num_envs=2)


def model_of(name: str, spec: Spec = SPEC, **changes: Any) -> Any:
    values = toy(f"ppo_{name}")["algo"]["intrinsic"] | changes
    return registry.build("intrinsic", values, spec, Parts(0, torch.device("cpu"), {}, spec, "intrinsic"))


class Scaled(Intrinsic):
    """A model whose raw reward is a factor times the next observation, which is a number."""

    def __init__(self, factor: float, **changes: Any):
        values = toy("ppo_rnd")["algo"]["intrinsic"] | {"obs_statistics": {"name": "none"}} | changes
        super().__init__(SimpleNamespace(**values), SPEC, Parts(0, torch.device("cpu"), {}, SPEC, "intrinsic"))
        self.factor = factor

    def raw_reward(self, rows: Batch) -> torch.Tensor:
        return self.factor * rows["next_obs"]


def rollout(time: int = 6, envs: int = 2) -> Batch:
    no = torch.zeros(time, envs, dtype=torch.bool)
    return {
        "obs": torch.randn(time, envs, 3), "next_obs": torch.randn(time, envs, 3), "reward": torch.randn(time, envs),
        "action": torch.randint(2, (time, envs)), "weight": torch.ones(time, envs),
        "terminated": no.clone(), "truncated": no.clone(),
    }  # fmt: skip


def test_bonus_returns_cross_episodes_unless_episodic() -> None:
    """Every step ends an episode. Rewards 1, 2, 3 and bonuses 1, 2, 3, no values."""
    batch = rollout(3, 1)
    batch["terminated"][:] = True
    batch["reward"] = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1).expand(3, 1, 3)
    zeros = torch.zeros(3, 1, 3)
    found = columns(batch, zeros, zeros, 0.9, (Bonus(0.5, False, 2.0), Bonus(0.5, True, 1.0)))
    own, free, bound = (gae(*column, 1.0).flatten().tolist() for column in found)
    assert own == bound == [1.0, 2.0, 3.0]
    assert free == [1 + 0.5 * (2 + 0.5 * 3), 2 + 0.5 * 3, 3.0]


def test_bonus_returns_bootstrap_from_the_next_episode_or_final_observation() -> None:
    batch = rollout(4, 1)
    batch["terminated"][0] = batch["truncated"][1] = batch["truncated"][3] = True
    batch["weight"][2] = 0
    batch["reward"] = torch.zeros(4, 1, 2)
    value, next_value = torch.arange(8.0).view(4, 1, 2), 10 + torch.arange(8.0).view(4, 1, 2)
    _, free = columns(batch, value, next_value, 0.9, (Bonus(0.5, False, 1.0),))
    following = free.next_value.flatten()[[0, 1, 3]]  # row 2 is masked
    assert following.tolist() == [value[1, 0, 1], next_value[1, 0, 1], next_value[3, 0, 1]]
    assert free.done.flatten().tolist() == [False, True, False, False]
    assert not free.terminated.any()


def test_bonus_advantages_are_added_by_coefficient() -> None:
    own, one, two = torch.randn(3, 4)
    bonuses = (Bonus(0.9, True, 0.5), Bonus(0.9, True, 2.0))
    torch.testing.assert_close(combined([own, one, two], bonuses), own + 0.5 * one + 2 * two)
    assert torch.equal(combined([own], ()), own)


@pytest.mark.parametrize("algo", ["a2c", "vtrace", "ppo_lstm", "ppo_critic_first", "vpg"])
def test_separate_bonus_adds_a_column_for_on_policy_algorithms(algo: str, build: Build) -> None:
    loop: Any = build(put(toy(algo), {"algo.intrinsic": toy("ppo_rnd")["algo"]["intrinsic"]}))
    train(loop, 2)
    assert loop.batch["reward"].shape == (*loop.batch["weight"].shape, 2)
    data = loop.agent.advantages(loop.batch)
    assert data["advantage"].shape == data["weight"].shape
    assert data["return"].shape == data["value"].shape == loop.batch["reward"].shape


def test_intrinsic_reward_is_invariant_to_scale() -> None:
    reward, weight = torch.rand(5, 7, 2), torch.ones(7, 2)
    one, thousand = SeparateBonus(Scaled(1)), SeparateBonus(Scaled(1000))
    for part in reward:
        batch = rollout(7) | {"next_obs": part, "weight": weight}
        torch.testing.assert_close(one.relabel(batch)["reward"], thousand.relabel(batch)["reward"])


def test_intrinsic_reward_is_divided_by_std_of_discounted_sums() -> None:
    model, sums = Scaled(1, gamma=0.5), []
    for _ in range(3):
        reward, weight = torch.rand(4, 2), torch.ones(4, 2)
        reward[3, 1] = weight[3, 1] = 0
        total = torch.zeros(2)
        for t in reversed(range(4)):
            total = reward[t] + 0.5 * total
            sums += [x for x, w in zip(total.tolist(), weight[t].tolist(), strict=True) if w]
        batch = rollout(4) | {"next_obs": reward, "weight": weight}
        bonuses = SeparateBonus(model).relabel(batch)["reward"][..., 1]
        torch.testing.assert_close(bonuses, reward / np.std(sums))
    assert SeparateBonus(Scaled(1, clip=0.1)).relabel(batch)["reward"][..., 1].max() == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["rnd", "icm"])
def test_intrinsic_reward_of_familiar_rollouts_falls(name: str) -> None:
    torch.manual_seed(0)
    model, known, novel = model_of(name, hidden=[32], epochs=10), rollout(16), rollout(16)
    bonus = SeparateBonus(model)
    seen = bonus.relabel(known)

    def mean_reward(batch: Batch) -> float:
        return model.raw_reward(model.preprocess(batch)).mean().item()

    before = mean_reward(known)
    for _ in range(30):
        bonus.update(seen, CTX)
    assert mean_reward(known) < 0.2 * before
    assert mean_reward(known) < 0.5 * mean_reward(novel)


def test_icm_features_ignore_what_no_action_changes() -> None:
    """The first number of the next observation is the action, the others are noise: features depend on the first."""
    torch.manual_seed(0)
    model = model_of("icm", hidden=[32], epochs=1, minibatch_size=None)
    bonus = SeparateBonus(model)
    for _ in range(400):
        batch = rollout(64, 4)
        batch["obs"] = torch.zeros_like(batch["obs"])
        batch["next_obs"][..., 0] = batch["action"].float()
        bonus.update(bonus.relabel(batch), CTX)
    x = torch.randn(256, 3, requires_grad=True)
    # sensitivity of the difference between the actions' logits to each input
    score = model.inverse_model(torch.cat([model.encoder(torch.zeros(256, 3)), model.encoder(x)], -1)).logits
    (slope,) = torch.autograd.grad((score[:, 1] - score[:, 0]).sum(), x)
    action, *noise = slope.abs().mean(0).tolist()
    assert action > 3 * max(noise)


def test_rnd_view_standardises_the_newest_frame() -> None:
    space = Box(0, 255, (4, 36, 36), np.uint8)
    view = IntrinsicInputs(space, 4, 5.0, {"name": "all"}, frames=1)
    assert view.space.shape == (1, 36, 36)
    obs = torch.randint(256, (5, 2, 4, 36, 36), dtype=torch.uint8)
    view.add(obs, torch.ones(5, 2))
    newest = obs[:, :, 3:].double()
    expected = (newest - newest.mean((0, 1))) / newest.std((0, 1), correction=0)
    torch.testing.assert_close(view(obs), (expected * 255 / 5).float(), rtol=1e-4, atol=1e-3)


def test_rnd_view_keeps_the_newest_of_stacked_colour_images() -> None:
    space = Box(0, 255, (4, 36, 40, 3), np.uint8)  # [frames, height, width, channels]
    view = IntrinsicInputs(space, 4, 5.0, {"name": "all"}, frames=1)
    obs = torch.randint(256, (5, 2, 4, 36, 40, 3), dtype=torch.uint8)
    view.add(obs, torch.ones(5, 2))
    assert view(obs).shape == (5, 2, *view.space.shape) == (5, 2, 1, 36, 40, 3)
    assert torch.equal(view.newest_frames(obs), obs[:, :, 3:])


def test_rnd_view_standardises_entries_of_a_dict() -> None:
    space = Dict({"obs": Box(-np.inf, np.inf, (3,), np.float32), "goal": Discrete(4), "action_mask": Box(0, 1, (2,))})
    view = IntrinsicInputs(space, 1, 5.0, {"name": "all"})
    obs = {"obs": 3 + torch.randn(5, 2, 3), "goal": torch.zeros(5, 2), "action_mask": torch.ones(5, 2, 2)}
    view.add(obs, torch.ones(5, 2))
    seen = view(obs)
    assert [*seen] == [*view.space] == ["goal", "obs"]
    torch.testing.assert_close(seen["obs"].mean((0, 1)), torch.zeros(3), atol=1e-5, rtol=0)
    assert torch.equal(seen["goal"], obs["goal"])


def test_reward_sum_can_leave_out_the_environments_reward() -> None:
    assert not RewardSum([], 0.0).relabel(rollout())["reward"].any()


@pytest.mark.parametrize("name", ["icm", "rnd"])
def test_observations_of_intrinsic_rewards_are_standardised_by_option(name: str) -> None:
    batch = rollout(50, 4)
    batch["next_obs"] = 7 + 3 * batch["next_obs"]
    for part in ("none", "all"):
        model = model_of(name, obs_statistics={"name": part})
        SeparateBonus(model).relabel(batch)
        seen = model.preprocess(batch)["next_obs"]
        assert torch.equal(seen, batch["next_obs"]) == (part == "none")
        live = [module.live.count.item() for module in model.modules() if isinstance(module, Statistics)]
        assert live[0] == live[-1] == 200 or part == "none", "of rewards, and of observations"
    torch.testing.assert_close(seen.mean((0, 1)), torch.zeros(3), atol=1e-5, rtol=0)
    assert seen.abs().max() <= 5.0
    if name == "icm":
        mean, std = batch["next_obs"].mean((0, 1)), batch["next_obs"].std((0, 1), correction=0)
        torch.testing.assert_close(model.preprocess(batch)["obs"], ((batch["obs"] - mean) / std).clamp(-5, 5))


def test_rnd_without_statistics_gets_the_newest_frame_as_it_is() -> None:
    view = IntrinsicInputs(Box(0, 255, (4, 36, 36), np.uint8), 4, 5.0, {"name": "none"}, frames=1)
    obs = torch.randint(256, (5, 4, 36, 36), dtype=torch.uint8)
    assert torch.equal(view(obs), obs[:, 3:])


def test_scale_of_intrinsic_rewards_has_the_chosen_statistics() -> None:
    for part, count in (({"name": "none"}, 0), ({"name": "ema", "rate": 0.5}, 1), ({"name": "window", "size": 4}, 12)):
        model = Scaled(1.0, statistics=part)
        batch = rollout()
        batch["next_obs"] = batch["next_obs"][..., 0]
        raw = batch["next_obs"]
        bonus = SeparateBonus(model).relabel(batch)["reward"][..., 1]
        assert model.statistics.live.count == count
        assert torch.equal(bonus, raw) == (part["name"] == "none")


def test_rnd_target_network_is_constant() -> None:
    model = model_of("rnd")
    target = [param.clone() for param in model.target.parameters()]
    bonus = SeparateBonus(model)
    bonus.update(bonus.relabel(rollout()), CTX)
    assert all(map(torch.equal, target, model.target.parameters()))


def walk(steps: int, rng: np.random.Generator) -> Batch:
    """Returns steps of a random walk in a room of 5 x 5 cells, whose walls stop it; observations are coordinates."""
    moves = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    at = rng.integers(5, size=2)
    rows = []
    for action in rng.integers(4, size=steps):
        following = np.clip(at + moves[action], 0, 4)
        rows.append((at, action, following))
        at = following
    obs, action, next_obs = (torch.as_tensor(np.array(column)) for column in zip(*rows, strict=True))
    return {"obs": obs.float(), "action": action, "next_obs": next_obs.float(), "weight": torch.ones(steps)}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_icm_is_curious_about_the_room_that_it_has_not_visited(seed: int) -> None:
    """Two rooms of 5 x 5 cells side by side; the model learns in the left one."""
    torch.manual_seed(seed)
    spec = Spec(Box(-np.inf, np.inf, (2,), np.float32), Discrete(4), num_envs=1)
    model = model_of("icm", spec, hidden=[64, 64], learning_rate=1e-3)
    rng = np.random.default_rng(seed)
    for _ in range(300):
        model.fit(walk(128, rng))
    visited = walk(500, rng)
    shifted = {name: visited[name] + torch.tensor([6.0, 0.0]) for name in ("obs", "next_obs")}
    error, elsewhere = model.raw_reward(visited).mean(), model.raw_reward(visited | shifted).mean()
    assert elsewhere > 5 * error


def test_rnd_falls_steadily_on_repeated_states_and_jumps_on_novel_ones() -> None:
    torch.manual_seed(0)
    model, known = model_of("rnd", hidden=[32], epochs=1, learning_rate=1e-3), rollout(16)
    bonus = SeparateBonus(model)
    seen = bonus.relabel(known)
    rewards = []
    for _ in range(200):
        rewards.append(model.raw_reward(model.preprocess(known)).mean().item())
        bonus.update(seen, CTX)
    medians = np.median(np.reshape(rewards, (20, 10)), 1)
    assert (medians[1:] < 1.05 * medians[:-1]).all() and medians[-1] < 0.5 * medians[0]
    assert model.raw_reward(model.preprocess(rollout(16))).mean() > 1.5 * medians[-1]


@pytest.mark.parametrize(("frames", "kept"), [(0, 4), (1, 1), (2, 2), (4, 4)])
def test_rnd_gets_the_newest_frames(frames: int, kept: int) -> None:
    spec = Spec(Box(0, 255, (4, 36, 36), np.uint8), Discrete(2), num_envs=2, frame_stack=4)
    network = {"name": "cnn", "convolutions": [[2, 8, 4]], "hidden": [8], "activation": "relu", "init": "uniform",
               "norm": {"name": "none"}, "pixel_range": [0.0, 1.0]}  # fmt: skip
    model = model_of("rnd", spec, frames=frames, network=network)
    assert model.view.space.shape == (kept, 36, 36)
    obs = torch.randint(256, (5, 4, 36, 36), dtype=torch.uint8)
    assert torch.equal(model.view.newest_frames(obs), obs[:, -kept:])


@pytest.mark.parametrize("name", ["icm", "rnd"])
def test_networks_of_intrinsic_rewards_are_chosen(name: str) -> None:
    network = {"name": "mlp", "hidden": [5, 7], "activation": "tanh", "init": "uniform", "norm": {"name": "none"}}
    model = model_of(name, network=network, hidden=[3])
    chosen = {"icm": "encoder", "rnd": "target.torso"}[name]
    shapes = [tuple(weight.shape) for weight in model.get_submodule(chosen).parameters() if weight.dim() == 2]
    assert {5, 7} <= {size for shape in shapes for size in shape} and 3 in {size for shape in shapes for size in shape}


def test_recurrent_networks_of_intrinsic_rewards_are_refused(build: Build) -> None:
    (job,) = jobs(["algo=ppo_icm", "env=CartPole", "algo.intrinsic.network=gru"])
    with pytest.raises(ConfigError, match=r"algo\.intrinsic\.network=gru: is recurrent, but intrinsic rewards are"):
        build(job.values)
