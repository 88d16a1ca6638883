"""Normalisation of observations and rewards: statistics, scaling, and evaluation without changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from toys import NOT_NORMALIZED, equal, toy, train

from rlrun.addons.normalise import normalisers
from rlrun.core.loop import Loop
from rlrun.envs.config import NormalizeConfig
from rlrun.errors import ConfigError
from rlrun.testing import check_resuming
from rlrun.types import Context, Spec, Step

SPEC = Spec(spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2), 3)
CONTEXT = Context(0, 0, 0.0)


def rewarded(reward: torch.Tensor, done: torch.Tensor | None = None) -> Step:
    no = torch.zeros(3, dtype=torch.bool)
    terminated = no if done is None else done
    return {"reward": reward, "terminated": terminated, "truncated": no, "weight": torch.ones(3)}


def settings(kind: str, **changes: Any) -> NormalizeConfig:
    return replace(NOT_NORMALIZED, **{"kind": kind, "clip_obs": 10.0, "clip_reward": 10.0, **changes})


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


@pytest.mark.parametrize("reward_by", ["returns", "rewards"])
def test_reward_normalisation_discounts_each_component_by_its_own_gamma(reward_by: str) -> None:
    gammas = (0.0, 0.9, 1.0)
    vector = replace(SPEC, reward_dim=3)
    together: Any = normalisers(settings("reward", reward_by=reward_by), vector, gammas)[0]
    apart = [of_rewards(gamma, reward_by=reward_by) for gamma in gammas]
    reward = torch.randn(20, 3, 3) + 1  # [time, env, component]
    n_steps = torch.randint(1, 4, (20, 3)).float()
    for t in range(20):
        together.on_step(rewarded(reward[t]) | {"n_steps": n_steps[t]})
        for i, addon in enumerate(apart):
            addon.on_step(rewarded(reward[t, :, i]) | {"n_steps": n_steps[t]})
    rows = {"n_steps": n_steps, "weight": torch.ones(20, 3)}
    expected = [addon.relabel(rows | {"reward": reward[..., i]})["reward"] for i, addon in enumerate(apart)]
    torch.testing.assert_close(together.relabel(rows | {"reward": reward})["reward"], torch.stack(expected, -1))
    if reward_by == "returns":  # with gamma=0, they are the rewards
        torch.testing.assert_close(expected[0], reward[..., 0] / reward[..., 0].std(correction=0))


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


@pytest.mark.parametrize(("name", "algo"), [("adaptive", "ppo"), ("ema", "sac"), ("window", "sac")])
def test_runs_with_other_statistics_resume_exactly(name: str, algo: str, build: Callable[..., Loop]) -> None:
    part = {"adaptive": {"speed": 4.0}, "ema": {"rate": 0.1}, "window": {"size": 9}}[name] | {"name": name}
    words = {"env.normalize.kind": "both", "env.normalize.statistics": part, "env.normalize.max_updates": 3}
    if algo == "sac":
        words |= {"env.normalize.reward_by": "rewards", "env.normalize.update_on": "replay", "algo.n_step": 1}
    values = toy(algo, **words)
    loop: Any = train(build(values), 2)
    observations, rewards = loop.addons
    assert observations.statistics.live.count > 0 and rewards.updates == 2
    check_resuming(loop, build(values))


def test_statistics_of_rewards_stay_as_they_are_after_max_updates() -> None:
    addon = of_rewards(0.9, max_updates=2)
    states = []
    for reward in torch.randn(4, 3):
        addon.on_step(rewarded(reward))
        addon.update({}, CONTEXT)
        states.append(addon.statistics.live.var.item())
    assert states[0] != states[1] == states[2] == states[3]


@pytest.mark.parametrize("zero_mean", [True, False])
def test_means_are_subtracted_by_option(zero_mean: bool) -> None:
    rows = torch.tensor([[1.0, 5.0], [3.0, 9.0]])
    observations = of_observations(zero_mean=zero_mean, epsilon=1e-12)
    observations.on_step({"following": rows})
    observations.update({}, CONTEXT)
    subtracted = torch.tensor([2.0, 7.0]) if zero_mean else torch.zeros(2)
    expected = (rows - subtracted) / torch.tensor([1.0, 2.0])
    torch.testing.assert_close(observations.see(rows, {}, True)[0], expected)
    rewards = of_rewards(0.9, zero_mean=zero_mean, reward_by="rewards", epsilon=1e-12)
    rewards.on_step(rewarded(torch.tensor([1.0, 2.0, 3.0])))
    batch = {"reward": torch.tensor([4.0]), "n_steps": torch.tensor([2.0]), "weight": torch.ones(1)}
    mean = 2.0 * (1 + 0.9) if zero_mean else 0.0
    assert rewards.relabel(batch)["reward"].item() == pytest.approx((4 - mean) / (2 / 3) ** 0.5, rel=1e-5)


NESTED = spaces.Dict(
    arm=spaces.Dict(angles=spaces.Box(-9, 9, (2,), np.float32)),
    goal=spaces.Box(-9, 9, (1,), np.float32),
    image=spaces.Box(0, 255, (20, 20, 3), np.uint8),
)


def test_only_the_named_fields_are_normalised() -> None:
    addon = of_observations(Spec(NESTED, spaces.Discrete(2), 2), fields=["arm.angles"])
    obs = {"arm": {"angles": torch.randn(2, 2)}, "goal": torch.randn(2, 1), "image": torch.zeros(2, 20, 20, 3)}
    addon.on_step({"following": obs})
    addon.update({}, CONTEXT)
    seen = addon.see(obs, {}, True)[0]
    assert seen["goal"] is obs["goal"] and not torch.equal(seen["arm"]["angles"], obs["arm"]["angles"])


@pytest.mark.parametrize(
    ("obs", "changes", "line"),
    [
        (NESTED, {"fields": ["goal", "image"]}, r"fields=.*: must be among arm\.angles, goal, the vectors of floats$"),
        (SPEC.obs, {"fields": ["obs"]}, r"fields=.*: names entries of a Dict, but observations are a Box; set \[\]$"),
        (SPEC.obs, {"update_on": "pretrain"}, "update_on=pretrain: algo.loop has no such phase; choose rollout or rep"),
        (
            SPEC.obs,
            {"kind": "both", "update_on": "replay"},
            "update_on=replay: batches hold no returns of whole episodes; set env.normalize.reward_by=rewards$",
        ),
        (
            SPEC.obs,
            {"kind": "both", "update_on": "replay", "reward_by": "rewards"},
            "update_on=replay: with algo.n_step=3, batches hold sums of rewards, not single ones; set .*=rollout$",
        ),
    ],
)
def test_normalisation_without_rows_is_refused_in_one_line(obs: Any, changes: dict[str, Any], line: str) -> None:
    cfg = replace(settings("obs"), **changes)
    with pytest.raises(ConfigError, match=r"^env\.normalize\." + line):
        normalisers(cfg, Spec(obs, spaces.Discrete(2), 3), 0.9, 3, ("rollout", "replay"))


def test_only_the_chosen_phase_changes_statistics(build: Callable[..., Loop]) -> None:
    """The phases are the steps, the batches of the offline updates, and the batches of the updates after them."""
    changed = {}
    for phase in ("rollout", "pretrain", "replay"):
        words = {"env.normalize.kind": "both", "env.normalize.reward_by": "rewards", "env.normalize.update_on": phase}
        loop: Any = build(toy("sac_from_data", **words, **{"algo.loop.online_after": 2, "algo.n_step": 1}))
        changed[phase] = [counts(loop)]
        for updates in (2, 4):
            train(loop, updates)
            changed[phase].append(counts(loop))
            if updates == 2:
                assert loop.steps == loop.updates == 2, "offline"
    for phase, (begun, offline, online) in changed.items():
        for before, after, later in zip(begun, offline, online, strict=True):
            assert (after > before) == (phase == "pretrain")
            assert (later > after) == (phase in ("rollout", "replay"))


def counts(loop: Loop) -> list[float]:
    """Returns the number of rows in the statistics of each normaliser, pending ones too."""
    found: list[Any] = list(loop.addons)
    return [float(addon.statistics.live.count + addon.statistics.pending.count) for addon in found]


def test_batches_of_replay_update_statistics_before_they_are_relabelled() -> None:
    addons = normalisers(
        settings("both", update_on="replay", reward_by="rewards"), SPEC, 0.9, phases=("rollout", "replay")
    )
    obs, reward = torch.randn(2, 4, 2), torch.randn(2, 4)
    mask = torch.tensor([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]])
    sequences = {"obs": obs, "reward": reward, "weight": torch.ones(4), "mask": mask}
    transitions = {"obs": obs[0], "reward": reward[0], "weight": mask[0]}
    observations: Any = addons[0]
    rewards: Any = addons[1]
    for addon in addons:
        addon.on_step(rewarded(reward[0, :3]) | {"following": obs[0, :3]})
        addon.on_batch(sequences, "pretrain")
        addon.on_batch(sequences, "replay")
        addon.on_batch(transitions, "replay")
    assert observations.statistics.live.count == 0, "they are published after the update"
    assert torch.equal(observations.see(obs[0], {}, True)[0], obs[0])
    rows = torch.cat([reward[mask > 0], reward[0][mask[0] > 0]]).double()
    mean, var = rewards.statistics.available()
    torch.testing.assert_close((mean, var), (rows.mean(), rows.var(correction=0)))
    for addon in addons:
        addon.update({}, CONTEXT)
    torch.testing.assert_close(
        observations.statistics.live.mean, torch.cat([obs[mask > 0], obs[0][mask[0] > 0]]).double().mean(0)
    )


def test_the_mean_of_rewards_is_reported_once_where_episodes_terminate(caplog: pytest.LogCaptureFixture) -> None:
    for changes, expected in (({}, 1), ({"zero_mean": False}, 0)):
        addon = of_rewards(0.9, reward_by="rewards", **changes)
        caplog.clear()
        for done in (False, True, True):
            addon.on_step(rewarded(torch.ones(3), torch.tensor([False, done, False])))
            addon.update({}, CONTEXT)
            assert len(caplog.messages) == expected * done
    addon = of_rewards(0.9, reward_by="rewards")
    addon.on_step(rewarded(torch.ones(3)) | {"truncated": torch.ones(3, dtype=torch.bool)})
    addon.update({}, CONTEXT)
    assert not caplog.messages, "a truncated episode is bootstrapped"
