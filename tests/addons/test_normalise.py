"""Normalisation of observations and rewards: statistics, scaling, and evaluation without changes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from toys import equal, toy, train

from rlrun.addons.normalise import normalisers
from rlrun.core.loop import Loop
from rlrun.envs.config import NormalizeConfig
from rlrun.errors import ConfigError
from rlrun.types import Context, Spec, Step

SPEC = Spec(spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2), 3)
CONTEXT = Context(0, 0, 0.0)


def rewarded(reward: torch.Tensor, done: torch.Tensor | None = None) -> Step:
    no = torch.zeros(3, dtype=torch.bool)
    terminated = no if done is None else done
    return {"reward": reward, "terminated": terminated, "truncated": no, "weight": torch.ones(3)}


def settings(kind: str, **changes: Any) -> NormalizeConfig:
    return NormalizeConfig(
        **{"kind": kind, "clip_obs": 10.0, "clip_reward": 10.0, "reward_by": "returns", "epsilon": 1e-8}
        | {"gamma": None, **changes}
    )


def of_observations(spec: Spec = SPEC, **changes: Any) -> Any:
    return normalisers(settings("obs", **changes), spec, None)[0]


def of_rewards(gamma: float, **changes: Any) -> Any:
    return normalisers(settings("reward", **changes), SPEC, gamma)[0]


@pytest.mark.parametrize(("kind", "count"), [("none", 0), ("obs", 1), ("reward", 1), ("both", 2)])
def test_normalisers_follow_the_setting(kind: str, count: int) -> None:
    assert len(normalisers(settings(kind), SPEC, 0.9)) == count


def test_observation_normalisation_clips_and_adds_epsilon_as_set() -> None:
    obs = torch.tensor([[0.0, 10.0], [2.0, 10.0], [4.0, 10.0]])
    for clip, largest, epsilon in ((1.0, 1.0, 1e-8), (None, np.inf, 0.25)):
        addon = of_observations(clip_obs=clip, epsilon=epsilon)
        addon.on_step({"following": obs})
        addon.update({}, CONTEXT)
        out = addon.see(torch.tensor([[102.0, 12.0]]), {}, True)[0]
        expected = np.array([100.0, 2.0]) / np.sqrt(np.array([8 / 3, 0.0]) + epsilon)
        torch.testing.assert_close(out[0].double(), torch.as_tensor(expected).clamp(max=largest), rtol=1e-6, atol=0)


def test_reward_normalisation_clips_and_adds_epsilon_as_set() -> None:
    reward = torch.tensor([1.0, 3.0, 5.0])
    for clip, largest, epsilon in ((1.5, 1.5, 1e-8), (None, np.inf, 2.0)):
        addon = of_rewards(0.9, clip_reward=clip, epsilon=epsilon)
        addon.on_step(rewarded(reward))
        scaled = addon.relabel({"reward": reward})["reward"]
        expected = (reward / np.sqrt(8 / 3 + epsilon)).clamp(max=largest)
        torch.testing.assert_close(scaled, expected)


def test_reward_normalisation_uses_its_own_discount_if_set() -> None:
    for gamma in (0.9, None):
        addon: Any = normalisers(settings("reward", gamma=0.5), SPEC, gamma)[0]
        assert addon.gamma == 0.5
    with pytest.raises(ConfigError, match=r"env\.normalize=reward: .* no gamma; set env\.normalize\.gamma$"):
        normalisers(settings("reward"), SPEC, None)


def test_observation_normalisation_standardises_vectors_of_a_dict() -> None:
    space = spaces.Dict(
        arm=spaces.Dict({"joint.angles": spaces.Box(-9, 9, (2,), np.float32), "grip": spaces.Discrete(3)}),
        camera=spaces.Box(0, 255, (4, 4, 3), np.uint8),
        depth=spaces.Box(0, 1, (4, 4, 1), np.float32),
        goal=spaces.Box(-9, 9, (1,), np.float32),
    )
    addon = of_observations(Spec(space, spaces.Discrete(2), 5))
    obs = {
        "arm": {"joint.angles": torch.randn(5, 2) * 3 + 1, "grip": torch.arange(5)},
        "camera": torch.ones(5, 4, 4, 3, dtype=torch.uint8),
        "depth": torch.rand(5, 4, 4, 1),
        "goal": torch.randn(5, 1) - 2,
    }
    addon.on_step({"following": obs})
    addon.update({}, CONTEXT)
    out = addon.see(obs, {}, True)[0]
    for vector in (out["arm"]["joint.angles"], out["goal"]):
        torch.testing.assert_close(vector.mean(0), torch.zeros(vector.shape[1]), atol=1e-6, rtol=0)
        torch.testing.assert_close(vector.std(0, correction=0), torch.ones(vector.shape[1]))
    for key in ("camera", "depth"):
        assert out[key] is obs[key]
    assert out["arm"]["grip"] is obs["arm"]["grip"] and list(out) == list(obs)
    copied = of_observations(Spec(space, spaces.Discrete(2), 5))
    copied.load_state_dict(addon.state_dict())
    relabelled = copied.relabel({"obs": obs})["obs"]
    assert equal(relabelled, out)


def test_normalised_observations_have_mean_0_and_std_1_after_an_update() -> None:
    addon, obs = of_observations(), torch.randn(50, 3, 2) * 7 + 3
    for rows in obs:
        addon.on_step({"following": rows})
    assert torch.equal(addon.see(obs[0], {}, True)[0], obs[0].clamp(-10, 10)), "nothing counts before an update"
    addon.update({}, CONTEXT)
    out = addon.see(obs.flatten(0, 1), {}, True)[0]
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std(0, correction=0), torch.ones(2))
    assert addon.see(torch.full((1, 2), 1e6), {}, True)[0].tolist() == [[10, 10]]


def test_normalised_observations_are_equal_in_acting_and_learning() -> None:
    addon, obs = of_observations(), torch.randn(4, 3, 2) * 5
    for rows in obs:
        addon.on_step({"following": rows})
    addon.update({}, CONTEXT)
    batch = {"obs": obs, "next_obs": obs + 1, "reward": torch.ones(4)}
    out = addon.relabel(batch)
    assert torch.equal(out["obs"], addon.see(obs, {}, True)[0])
    assert torch.equal(out["next_obs"], addon.see(obs + 1, {}, True)[0])
    assert torch.equal(out["reward"], batch["reward"])
    assert torch.equal(batch["obs"], obs), "what is stored stays raw"


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3), spaces.Box(0, 255, (4,), np.uint8), spaces.Dict(a=spaces.Discrete(2))], ids=str
)
def test_observation_normalisation_refuses_other_spaces(space: Any) -> None:
    with pytest.raises(ConfigError, match=r"env\.normalize: observations must be a Box of floats"):
        of_observations(Spec(space, spaces.Discrete(2), 1))


def test_reward_normalisation_divides_by_std_of_discounted_returns() -> None:
    gamma, addon = 0.9, of_rewards(0.9)
    reward, done = torch.randn(60, 3) * 4, torch.rand(60, 3) < 0.1
    seen: list[float] = []
    running = [0.0] * 3
    for t in range(60):
        addon.on_step(rewarded(reward[t], done[t]))
        for env in range(3):
            running[env] = gamma * running[env] + reward[t, env].item()
            seen.append(running[env])
            if done[t, env]:
                running[env] = 0.0
    addon.update({}, CONTEXT)
    scaled = addon.relabel({"reward": reward})["reward"]
    expected = reward / np.std(seen)
    torch.testing.assert_close(scaled, expected.clamp(-10, 10).float(), rtol=1e-5, atol=1e-6)
    assert done.any() and scaled.dtype == torch.float32


def test_reward_normalisation_ignores_masked_steps() -> None:
    plain, other = (of_rewards(0.9) for _ in range(2))
    reward = torch.tensor([1.0, 2.0, 3.0])
    for addon in (plain, other):
        addon.on_step(rewarded(reward, torch.ones(3, dtype=torch.bool)))
    other.on_step(rewarded(torch.zeros(3)) | {"weight": torch.zeros(3)})
    for addon in (plain, other):
        addon.update({}, CONTEXT)
    assert torch.equal(plain.statistics.live.var, other.statistics.live.var) and other.statistics.live.count == 3


def test_reward_normalisation_scales_the_first_batch_by_itself() -> None:
    addon = of_rewards(0.0)
    reward = torch.tensor([100.0, 200.0, 300.0])
    addon.on_step(rewarded(reward))
    scaled = addon.relabel({"reward": reward})["reward"]
    torch.testing.assert_close(scaled, (reward / reward.std(correction=0)).float())


@pytest.mark.parametrize("algo", ["sac", "ppo"])
def test_normalisation_statistics_change_by_training_steps_alone(algo: str, build: Callable[..., Loop]) -> None:
    loop = train(build(toy(algo, **{"env.normalize.kind": "both"})), 3)
    observations, rewards = loop.addons
    for addon in (observations, rewards):
        assert addon.statistics.live.count + addon.statistics.pending.count == loop.steps
        assert addon.statistics.pending.count == 0, "an update takes what was collected"
    before = {name: value.clone() for name, value in loop.addons.state_dict().items()}
    loop.addons.see(loop.obs + 100, loop.carry, False)
    loop.addons.relabel({"obs": loop.obs, "reward": torch.ones(2)})
    assert all(torch.equal(value, before[name]) for name, value in loop.addons.state_dict().items())


def test_normalisation_state_restores_statistics_and_running_returns() -> None:
    first, second = (normalisers(settings("both"), SPEC, 0.9) for _ in range(2))
    for addon in first:
        for _ in range(5):
            addon.on_step(rewarded(torch.randn(3)) | {"following": torch.randn(3, 2)})
        addon.update({}, CONTEXT)
        addon.on_step(rewarded(torch.randn(3)) | {"following": torch.randn(3, 2)})
    for addon, other in zip(first, second, strict=True):
        other.load_state_dict(addon.state_dict())
    batch = {"obs": torch.randn(3, 2), "reward": torch.randn(3)}
    step = rewarded(torch.randn(3)) | {"following": torch.randn(3, 2)}
    for addon, other in zip(first, second, strict=True):
        for one in (addon, other):
            one.on_step(step)
            one.update({}, CONTEXT)
        out, copied = addon.relabel(batch), other.relabel(batch)
        assert all(torch.equal(out[key], copied[key]) for key in batch)
