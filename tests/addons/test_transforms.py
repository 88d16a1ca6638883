"""The list `env.transforms`: equal to the bit from rollouts and replay, in every legal order; rewards by hand."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import torch
from gymnasium import spaces
from toys import NOT_NORMALIZED, equal, toy, train

from rlrun.addons.normalise import normalisers
from rlrun.addons.transforms import transforms_of
from rlrun.buffers.replay import Reading, Replay
from rlrun.buffers.rollout import Rollout
from rlrun.core.addon import Addon, Addons, RewardModule, Transform
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.settings import config, register, registry
from rlrun.testing import check_resuming
from rlrun.types import Batch, Obs, Spec, Step

CPU = torch.device("cpu")
BOX = spaces.Box(-9.0, 9.0, (3,))
REWARDS: list[dict[str, Any]] = [
    {"name": "reward_clip", "low": -1.0, "high": 0.5},
    {"name": "reward_scale", "scale": 0.3},
    {"name": "reward_shift", "bias": -0.2},
]


@register("transform", "halved")
class Halved(Transform):
    """Observations times 0.5."""

    changes = True

    @config
    class Config:
        pass

    def __init__(self, cfg: object, spec: Spec, replays: bool):
        super().__init__(cfg, spec, replays)
        self.limit = float(spec.obs.high.max())

    def spec_after(self, spec: Spec) -> Spec:
        return replace(spec, obs=spaces.Box(-0.5 * self.limit, 0.5 * self.limit, (3,)))

    def see(self, obs: Any, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        return 0.5 * obs, {}

    def relabel(self, batch: Batch) -> Batch:
        return batch | {key: 0.5 * batch[key] for key in ("obs", "next_obs")}


@register("transform", "fetching")
class Fetching(Transform):
    """Reads other steps."""

    fetches = True

    @config
    class Config:
        pass


HALVED, RAW = {"name": "halved"}, {"name": "untransformed"}
PAIRS: list[list[dict[str, Any]]] = [
    [*first, *rest] for first in ([], [RAW]) for count in (1, 2) for rest in permutations([*REWARDS, HALVED], count)
]
TRIPLES = [[*rest] for rest in permutations([*REWARDS, HALVED], 3)]
LEGAL = [(sections, columns) for columns in (1, 2) for sections in PAIRS] + [(sections, 1) for sections in TRIPLES]
IDS = ["-".join(values["name"].removeprefix("reward_") for values in sections) for sections, _ in LEGAL]


def spec_of(columns: int, num_envs: int = 2) -> Spec:
    return Spec(BOX, spaces.Discrete(2), num_envs, reward_dim=columns)


def scripted(columns: int, count: int = 100) -> list[Step]:
    """Returns steps of two environments. Some terminate, some are truncated."""
    torch.manual_seed(0)
    obs, steps = torch.randn(2, 3), []
    first = torch.ones(2, dtype=torch.bool)
    for _ in range(count):
        next_obs = torch.randn(2, 3)
        terminated, truncated = torch.rand(2) < 0.1, torch.rand(2) < 0.05
        following = torch.where((terminated | truncated).unsqueeze(-1), torch.randn(2, 3), next_obs)
        step = {"obs": obs, "next_obs": next_obs, "following": following, "weight": torch.ones(2), "first": first}
        step |= {"reward": torch.randn(2, columns).squeeze(-1), "terminated": terminated, "truncated": truncated}
        action = torch.randint(2, (2,))
        steps.append(step | {"action": action, "executed": action})
        obs, first = following, terminated | truncated
    return steps


def replay_of(steps: list[Step], columns: int, reading: Reading, **given: Any) -> Replay:
    settings: dict[str, Any] = {"reward_clip": None, "reward_scale": 1.0, "standardize_reward": False}
    cfg = Replay.Config(capacity=200, compression=None, dtypes={}, **settings | given)
    buffer = Replay(cfg, spec_of(columns), reading, 0, CPU)
    for step in steps:
        buffer.add(step)
    return buffer


STEPS = {columns: scripted(columns) for columns in (1, 2)}
STORED = {columns: replay_of(STEPS[columns], columns, Reading()) for columns in (1, 2)}
INDEX = torch.arange(200)


@pytest.mark.parametrize(("sections", "columns"), LEGAL, ids=IDS)
def test_transforms_of_steps_rollouts_and_replay_are_equal(sections: Any, columns: int) -> None:
    steps, spec = STEPS[columns], spec_of(columns)
    replays, rolls_out = (Addons(transforms_of(sections, spec, replays)) for replays in (True, False))
    rollout, expected = Rollout(spec), Rollout(spec)
    transformed = []
    for step in steps:
        rollout.add(step)
        single = step
        for transform in rolls_out.transforms:
            single = transform.of_step(single)
        seen, extras = rolls_out.see(step["obs"], {}, True)
        assert torch.equal(seen, single["obs"]) and not extras
        assert torch.equal(rolls_out.see(step["following"], {}, False)[0], single["following"])  # type: ignore[arg-type]
        transformed.append({name: single[name] for name in step})
        expected.add(transformed[-1])
    found, batch = rolls_out.relabel(rollout.batch()), expected.batch()
    for name in ("obs", "next_obs", "reward"):
        assert torch.equal(found[name] + 0, batch[name] + 0), name
    has_raw = RAW in sections
    assert ("untransformed.reward" in found) == has_raw
    if has_raw:
        assert torch.equal(found["untransformed.reward"], rollout.batch()["reward"])
        assert torch.equal(found["untransformed.obs"] + 0, rollout.batch()["obs"] + 0)
    buffer, plain = STORED[columns], replay_of(transformed, columns, Reading())
    for n_step in (1, 3):
        raw = Reading(0.9, n_step, own_rewards=columns)
        buffer.reading = plain.reading = raw
        unchanged, batch = buffer.read(INDEX), plain.read(INDEX)
        buffer.reading = raw._replace(per_step=replays.per_step, keeps_raw=has_raw)
        found = replays.relabel(buffer.read(INDEX))
        for name in ("obs", "next_obs", "reward", "n_steps"):
            assert torch.equal(found[name], batch[name]), (name, n_step)
        assert ("untransformed.reward" in found) == has_raw
        if has_raw:
            assert torch.equal(found["untransformed.reward"], unchanged["reward"])
            assert torch.equal(found["untransformed.obs"], unchanged["obs"])


def test_reward_transforms_change_scalars_and_every_component() -> None:
    reward = torch.tensor([-3.0, -0.5, 0.25, 2.0])
    by_hand = ([-1.0, -0.5, 0.25, 0.5], [-0.9, -0.15, 0.075, 0.6], [-3.2, -0.7, 0.05, 1.8])
    for values, expected in zip(REWARDS, by_hand, strict=True):
        (transform,) = transforms_of([values], spec_of(2), False)
        assert transform.per_step(reward).tolist() == pytest.approx(expected)
        assert transform.relabel({"reward": reward.view(2, 2)})["reward"].flatten().tolist() == pytest.approx(expected)
    (default,) = transforms_of([{"name": "reward_clip"}], spec_of(1), False)
    assert default.per_step(reward).tolist() == [-1.0, -0.5, 0.25, 1.0]


def test_replay_transforms_rewards_before_its_own_clipping_and_not_those_of_reward_modules() -> None:
    transforms = Addons(transforms_of([RAW, {"name": "reward_scale", "scale": 10.0}], spec_of(1), True))
    reading = Reading(0.5, 2, per_step=transforms.per_step, keeps_raw=True)
    steps = []
    for step in STEPS[1][:3]:
        no = torch.zeros(2, dtype=torch.bool)
        reward = torch.tensor([[0.1, 0.3], [1.0, 7.0]])  # of the environment, and of a module
        steps.append(step | {"reward": reward, "terminated": no, "truncated": no})
    batch = replay_of(steps, 2, reading, reward_clip=5.0).read(torch.tensor([0, 1]))
    torch.testing.assert_close(batch["reward"], torch.tensor([[1.5, 0.45], [7.5, 7.5]]))
    torch.testing.assert_close(batch["untransformed.reward"], torch.tensor([0.15, 1.5]))
    buffer = replay_of(steps, 2, reading, reward_scale=3.0)
    torch.testing.assert_close(buffer.read(torch.tensor([0]))["untransformed.reward"], torch.tensor([0.15]))
    stored = buffer.stored()
    assert torch.equal(stored["reward"][0], torch.tensor([0.1, 0.3])) and "untransformed.reward" not in stored


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (
            ["halved", "fetching"],
            "fetching reads other steps from replay, so it must stand before halved, which changes them; the right "
            r"order is \[fetching, halved\]",
        ),
        (
            ["untransformed", "halved", "halved", "fetching"],
            r"fetching reads .* halved, .* is \[untransformed, fetching, halved, halved\]",
        ),
        (["fetching", "untransformed"], r"untransformed must stand before fetching; .* is \[untransformed, fetching\]"),
        (["halved", "untransformed"], r"untransformed must stand before halved; .* is \[untransformed, halved\]"),
        (["untransformed", "untransformed"], "lists untransformed and untransformed, of which each must be first"),
        (["reward_up"], "unknown name 'reward_up'"),
    ],
)
def test_illegal_orders_are_refused_in_one_line(names: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=line + ("$" if "unknown" not in line else "")) as error:
        transforms_of([{"name": name} for name in names], spec_of(1), True)
    assert len(error.value.faults) == 1


def test_legal_orders_with_a_fetching_transform() -> None:
    for names in (["fetching", "halved"], ["untransformed", "fetching", "halved"], ["fetching"]):
        transforms = transforms_of([{"name": name} for name in names], spec_of(1), True)
        assert [transform.registered for transform in transforms] == names


@pytest.mark.parametrize(
    ("values", "spec", "line"),
    [
        ({"name": "reward_clip", "low": 1.0}, spec_of(1), "reward_clip: low=1.0 must be below high=1.0$"),
        (
            {"name": "reward_scale", "scale": 2.0},
            replace(spec_of(1), holds=True),
            "reward_scale does not support the wrapper hold, which sums rewards$",
        ),
        ({"name": "reward_scale"}, spec_of(1), r"^env\.transforms\.0\.scale: missing"),
    ],
)
def test_transforms_refuse_what_they_cannot_change(values: Any, spec: Spec, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        transforms_of([values], spec, True)


def test_transforms_are_built_for_the_spec_of_those_before_them() -> None:
    transforms: Any = transforms_of([HALVED, REWARDS[0], HALVED], spec_of(1), True)
    assert [transforms[0].limit, transforms[2].limit] == [9.0, 4.5]
    assert Addons(transforms).spec_after(spec_of(1)).obs.high.tolist() == [2.25] * 3


def test_loops_that_learn_from_returns_refuse_transforms_of_rewards(build: Callable[..., Loop]) -> None:
    line = "env.transforms: reward_clip has no effect, because algo.loop learns from the returns of whole episodes"
    with pytest.raises(ConfigError, match=line):
        build(toy("cem", **{"env.transforms": [{"name": "reward_clip"}]}))
    assert transforms_of([HALVED], spec_of(1), False, relabels=False)


class Copied(RewardModule):
    """The reward of the environment once more, as this module gets it."""

    def reward(self, step: Step) -> torch.Tensor:
        return step["reward"] + 0


def test_reward_modules_get_transformed_rewards_and_batches_are_split_before_statistics_get_them() -> None:
    spec, step = spec_of(1), STEPS[1][0]
    transforms = transforms_of([{"name": "reward_scale", "scale": 10.0}], spec, True)
    cfg = replace(NOT_NORMALIZED, kind="reward", reward_by="rewards", update_on="replay")
    (rewards,) = normalisers(cfg, spec, 0.9, phases=("replay",))
    addons = Addons([*transforms, Copied(), rewards])
    stored = addons.on_step(step)["reward"]
    assert torch.equal(stored, torch.stack([step["reward"], 10.0 * step["reward"]], -1))
    addons.on_batch({"reward": stored, "weight": torch.ones(2)}, "replay")
    pending: Any = rewards
    torch.testing.assert_close(pending.statistics.pending.mean, step["reward"].double().mean())


class Spy(Addon):
    """Notes the rewards and the observations of steps."""

    def __init__(self, reads_raw_steps: bool):
        super().__init__()
        self.reads_raw_steps = reads_raw_steps  # type: ignore[misc]
        self.seen: list[float] = []

    def on_step(self, step: Step) -> None:
        self.seen += [float(step["reward"][0]), float(step["following"][0, 0])]


def test_normalisers_get_transformed_steps_and_limits_raw_ones() -> None:
    spec = spec_of(1)
    cfg = replace(NOT_NORMALIZED, kind="both")
    raw, changed = Spy(True), Spy(False)
    transforms = transforms_of([HALVED, {"name": "reward_scale", "scale": 10.0}], spec, True)
    addons = Addons([*transforms, *normalisers(cfg, spec, 0.9), raw, changed])
    step = STEPS[1][0]
    assert addons.on_step(step) is step, "replay stores the raw step"
    reward, x = float(step["reward"][0]), float(step["following"][0, 0])
    assert raw.seen == [reward, x] and changed.seen == pytest.approx([10 * reward, x / 2])
    _, _, observations, rewards = list(addons)[:4]
    pending: Any = [observations, rewards]
    torch.testing.assert_close(pending[0].statistics.pending.mean, 0.5 * step["following"].double().mean(0))
    torch.testing.assert_close(pending[1].statistics.pending.var, (10 * step["reward"]).double().var(correction=0))


def test_limits_are_of_raw_rewards() -> None:
    spec = spec_of(2)
    values = toy("ppo_lagrangian")["algo"]["reward_weights"] | {"thresholds": [None, -1.0], "initial_weights": None}
    limits: Any = registry.build("reward_weights", values, spec)
    addons = Addons([*transforms_of([{"name": "reward_scale", "scale": 10.0}], spec, False), limits])
    step = STEPS[2][0]
    addons.on_step(step)
    torch.testing.assert_close(limits.seen, step["reward"].sum(0))


@pytest.mark.parametrize("algo", ["sac", "ppo", "sac_lagrangian"])
def test_runs_learn_from_transformed_rewards_and_resume(algo: str, build: Callable[..., Loop]) -> None:
    words: dict[str, Any] = {"env.transforms": [RAW, {"name": "reward_shift", "bias": 5.0}]}
    if algo != "ppo":
        words["algo.n_step"] = 3
    values = toy(algo, **words)
    loop: Any = train(build(values), 2)
    added = torch.tensor(5.0)
    if algo != "ppo":
        added = 5.0 * (1 - loop.agent.cfg.gamma ** loop.batch["n_steps"]) / (1 - loop.agent.cfg.gamma)
    if algo == "sac_lagrangian":
        added = added.unsqueeze(-1)
    torch.testing.assert_close(loop.batch["reward"], loop.batch["untransformed.reward"] + added, rtol=1e-4, atol=1e-3)
    assert equal(loop.batch["untransformed.obs"], loop.batch["obs"])
    check_resuming(loop, build(values))
