"""Sequences from replay end where the episode or the stored rows end, and hold the extras of the agent."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from toys import toy, train

from rlrun.agents.actor_critic.taac import TAAC
from rlrun.buffers.consecutive import with_next_action
from rlrun.buffers.replay import Reading, Replay
from rlrun.core.addon import Addons
from rlrun.core.data import Data
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.settings import config, register
from rlrun.testing import check_resuming
from rlrun.types import Batch, Context, Metrics, Spec

ENVS, LENGTH, SIDE = 3, 6, 36
EXTRAS = {
    "policy": spaces.Box(0.0, 1.0, (2,), np.float32),
    "start.state": spaces.Box(0.0, 1e9, (2,), np.float32),
    "start.mode": spaces.Discrete(9),
}
VECTOR = spaces.Dict({"place": spaces.Box(-1e9, 1e9, (2,), np.float32), "action_mask": spaces.MultiBinary(4)})
FRAMES = spaces.Box(0, 255, (4, SIDE, SIDE), np.uint8)


def replay(rows: int, obs: spaces.Space = VECTOR, stack: int = 1, length: int | None = LENGTH, **given: int) -> Replay:
    spec = Spec(obs, spaces.Discrete(4), ENVS, frame_stack=stack)
    reading = Reading(0.9, sequence_length=length, extras=EXTRAS, **given)
    cfg = Replay.Config(
        capacity=rows * ENVS, reward_clip=None, reward_scale=1.0, standardize_reward=False, compression=None, dtypes={}
    )
    return Replay(cfg, spec, reading, 0, torch.device("cpu"))


def history(steps: int, seed: int = 0) -> list[dict[str, Tensor]]:
    """Returns every vector step in a list; a tenth of the steps terminate, are truncated, or are masked."""
    draw, rows = np.random.default_rng(seed), []
    for t in range(steps):
        kind = draw.choice(["", "terminated", "truncated", "lost"], ENVS, p=[0.7, 0.12, 0.12, 0.06])
        place = torch.tensor([[t, env] for env in range(ENVS)], dtype=torch.float32)
        rows.append(
            {
                "place": place,
                "action": torch.as_tensor(draw.integers(4, size=ENVS)),
                "reward": torch.as_tensor(draw.normal(size=ENVS), dtype=torch.float32),
                "policy": torch.as_tensor(draw.random((ENVS, 2)), dtype=torch.float32),
                "start.state": place + 100,
                "start.mode": torch.full((ENVS,), t % 9),
                "terminated": torch.as_tensor(kind == "terminated"),
                "truncated": torch.as_tensor((kind == "truncated") | (kind == "lost")),
                "weight": torch.as_tensor(kind != "lost").float(),
            }
        )
    return rows


def store(buffer: Replay, rows: list[dict[str, Tensor]]) -> None:
    for row in rows:
        mask = torch.ones(ENVS, 4, dtype=torch.int8)
        obs, after = ({"place": row["place"] + shift, "action_mask": mask} for shift in (0.0, 0.5))
        step = row | {"obs": obs, "next_obs": after, "executed": row["action"], "carry.other": row["reward"]}
        buffer.add(step)


@pytest.mark.parametrize("rows", [100, 23])  # without and with overwriting
def test_replay_sequences_stay_within_their_episode(rows: int) -> None:
    kept, buffer = history(60), replay(rows)
    store(buffer, kept)
    index = torch.arange(buffer.first * ENVS, buffer.first * ENVS + len(buffer))
    batch = buffer.read(index)
    ends = set()
    for place, number in enumerate(index.tolist()):
        first, env = divmod(number, ENVS)
        row, last = first, first
        for t in range(LENGTH):
            there = row < 60 and bool(kept[row]["weight"][env]) if row is not None else False
            assert batch["mask"][t, place] == there
            last = row if there else last
            for name in ("action", "reward", "policy", "terminated", "truncated"):
                assert torch.equal(batch[name][t, place], kept[last][name][env].to(batch[name].dtype)), name
            assert torch.equal(batch["obs"]["place"][t, place], kept[last]["place"][env])
            assert torch.equal(batch["next_obs"]["place"][t, place], kept[last]["place"][env] + 0.5)
            assert batch["n_steps"][t, place] == 1
            assert batch["terminated"][t, place] == kept[last]["terminated"][env]
            if there and (kept[row]["terminated"] | kept[row]["truncated"])[env]:
                ends.add(t)
                row = None
            elif row is not None:
                row = row + 1 if there else None
        assert torch.equal(batch["start.state"][place], kept[first]["start.state"][env])
        assert batch["start.mode"][place] == kept[first]["start.mode"][env]
        assert batch["weight"][place] == kept[first]["weight"][env]
        assert batch["index"][place] == number and batch["age"][place] == 59 - first
    assert ends == set(range(LENGTH)), "episodes ended everywhere in a sequence"


@pytest.mark.parametrize("rows", [100, 23])
def test_extras_of_the_start_are_those_of_the_first_step_after_the_burn_in_is_cut(rows: int) -> None:
    kept = history(60)
    buffer, steps = replay(rows, burn_in=3, num_next_steps=2), replay(rows, length=None, n_step=2)
    store(buffer, kept)
    store(steps, kept)
    first, last = buffer.span
    index = torch.arange(first, last)
    batch, next_steps = buffer.read(index), buffer.read(index)["next_steps"]
    assert batch["start.state"].shape == (len(index), 2) and batch["start.mode"].dtype == torch.int64
    begins = set()
    for place, number in enumerate(index.tolist()):
        burned = int(batch["mask"][:3, place].sum())
        if batch["mask"][3, place]:
            begins.add(burned)
            row, env = divmod(number, ENVS)
            assert torch.equal(batch["start.state"][place], kept[row - burned]["place"][env] + 100)
            assert torch.equal(next_steps["start.state"][place], kept[row]["place"][env] + 100)
    assert begins == {0, 1, 2, 3}
    for alone in (steps.read(index), steps.stored()):
        assert torch.equal(alone["start.mode"], index // ENVS % 9), "of single steps, they are their own"
    assert not any(name.startswith("start.") for name in buffer.packing.fields), "they are not read T times"


@pytest.mark.parametrize("rows", [100, 23])
def test_fields_and_ends_of_episodes_are_read_at_any_position(rows: int) -> None:
    kept, buffer = history(60), replay(rows)
    store(buffer, kept)
    data = Data(buffer, Addons())
    first, last = buffer.span
    index = torch.arange(first, last)
    places = data.field("obs.place", index.view(3, -1)).flatten(0, 1)
    modes = data.field("start.mode", index)
    left = data.steps_to_episode_end(index)
    begins, finishes = data.episode_of(index)
    assert data.span == (first, last)
    for place, number in enumerate(index.tolist()):
        row, env = divmod(number, ENVS)
        assert torch.equal(places[place], kept[row]["place"][env])
        assert modes[place] == kept[row]["start.mode"][env]
        end = row
        ends = kept[end]["terminated"] | kept[end]["truncated"]
        while end < 59 and not ends[env] and kept[end + 1]["weight"][env]:
            end += 1
            ends = kept[end]["terminated"] | kept[end]["truncated"]
        assert left[place] == end - row and finishes[place] == end * ENVS + env
        if not kept[row]["weight"][env]:
            continue  # no step of any episode
        begin = row
        while begin * ENVS > first and not kept[begin - 1]["terminated"][env] | kept[begin - 1]["truncated"][env]:
            begin -= 1
        assert begins[place] == begin * ENVS + env
    with pytest.raises(KeyError, match=r"obs\.velocity"):
        data.field("obs.velocity", index)


def test_fields_of_images_have_all_frames() -> None:
    buffer = replay(30, FRAMES, 4, length=None)
    draw = torch.Generator().manual_seed(0)
    for row in history(40):
        obs, after = (torch.randint(256, (ENVS, 4, SIDE, SIDE), generator=draw, dtype=torch.uint8) for _ in range(2))
        buffer.add(row | {"obs": obs, "next_obs": after, "executed": row["action"]})
    index = torch.arange(*buffer.span)
    batch = buffer.read(index)
    for name in ("obs", "next_obs"):
        assert torch.equal(buffer.field(name, index.view(-1, ENVS)).flatten(0, 1), batch[name])


def test_replay_stores_missing_extras_as_0() -> None:
    buffer, row = replay(10, length=1), history(1)[0]
    del row["policy"]
    obs = {"place": row["place"], "action_mask": torch.ones(ENVS, 4)}
    buffer.add(row | {"obs": obs, "next_obs": obs, "executed": row["action"]})
    assert not buffer.read(torch.arange(ENVS))["policy"].any()


def test_replay_sequences_of_frames_equal_transitions_in_a_row() -> None:
    """Stacks in a sequence are those of single transitions, including the last frame of a truncated episode."""
    single, buffer = replay(30, FRAMES, 4), replay(30, FRAMES, 4)
    single.reading = single.reading._replace(sequence_length=None)
    draw = torch.Generator().manual_seed(0)
    for row in history(40):
        obs, after = (torch.randint(256, (ENVS, 4, SIDE, SIDE), generator=draw, dtype=torch.uint8) for _ in range(2))
        step = row | {"obs": obs, "next_obs": after, "executed": row["action"]}
        for each in (single, buffer):
            each.add(step)
    index = torch.arange(buffer.first * ENVS, buffer.first * ENVS + len(buffer))
    batch = buffer.read(index)
    for t in range(LENGTH):
        there = batch["mask"][t] > 0
        alone = single.read(index[there] + t * ENVS)
        for name in ("obs", "next_obs", "reward"):
            assert torch.equal(batch[name][t, there], alone[name]), (t, name)


def test_replay_refuses_sequences_longer_than_the_buffer() -> None:
    with pytest.raises(ConfigError, match="5 timesteps fit, but the agent learns from 6"):
        replay(5)


@pytest.mark.parametrize("n_step", [1, 3])
def test_transitions_with_the_next_action_are_the_same_from_replay_and_from_a_rollout(n_step: int) -> None:
    """A masked step has weight 0 in both; what else its transition holds is of no account."""
    rows = history(60)
    spec = Spec(VECTOR, spaces.Discrete(4), ENVS)
    cfg = Replay.Config(
        capacity=60 * ENVS, reward_clip=None, reward_scale=1.0, standardize_reward=False, compression=None, dtypes={}
    )
    reading = Reading(0.9, n_step, sequence_length=n_step + 1, extras=EXTRAS)
    buffer = Replay(cfg, spec, reading, 0, torch.device("cpu"))
    store(buffer, rows)
    replayed = with_next_action(buffer.all(), n_step, 0.9)
    rollout = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    place = {"place": rollout["place"]}, {"place": rollout["place"] + 0.5}
    collected = with_next_action(rollout | dict(zip(("obs", "next_obs"), place, strict=True)), n_step, 0.9)
    kinds = []
    for number in range(60 * ENVS):
        t, env = divmod(number, ENVS)
        if not rows[t]["weight"][env]:
            assert replayed["weight"][number] == collected["weight"][number] == 0
            continue
        expected = 0.0
        for k in range(n_step):
            step = rows[t + k]
            expected += 0.9**k * float(step["reward"][env])
            terminated = bool(step["terminated"][env])
            end = t + k + 1
            goes_on = not (terminated or step["truncated"][env]) and end < 60 and bool(rows[end]["weight"][env])
            if not goes_on:
                break
        for batch in (replayed, collected):
            assert float(batch["reward"][number]) == pytest.approx(expected, abs=1e-5)
            assert batch["n_steps"][number] == end - t
            assert batch["terminated"][number] == terminated and batch["has_next_action"][number] == goes_on
            assert torch.equal(batch["obs"]["place"][number], rows[t]["place"][env])
            assert torch.equal(batch["next_obs"]["place"][number], rows[end - 1]["place"][env] + 0.5)
            assert batch["action"][number] == rows[t]["action"][env]
            if goes_on:
                assert batch["next_action"][number] == rows[end]["action"][env]
        kinds.append((terminated, goes_on))
    assert min(kinds.count(kind) for kind in ((True, False), (False, True), (False, False))) > 5


@register("algo", "test_starts")
class Starts(TAAC):
    """Stores the trajectory before each timestep for the first timestep of a sequence alone."""

    cfg: "Config"

    @config
    class Config(TAAC.Config):
        pass

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.stores = {**self.stores, "start.trajectory": self.stores["trajectory"]}

    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        action, extras = super().act(obs, carry, explore, params)
        return action, extras | {"start.trajectory": extras["trajectory"]}

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        assert torch.equal(batch["start.trajectory"], batch["trajectory"][0])
        return super().update(batch, ctx)


@pytest.mark.parametrize("changes", [{}, {"algo.loop.shards": 2}])
def test_extras_of_the_start_reach_updates_and_snapshots(changes: Any, build: Callable[..., Any]) -> None:
    values = toy("taac", **{"algo.name": "test_starts", "algo.loop.warmup_policy": "agent"} | changes)
    loop, other = train(build(values), 4), build(values, begin=False)
    check_resuming(loop, other)
    index = torch.arange(*loop.buffer.span)
    stored = loop.buffer.field("start.trajectory", index)
    assert stored.any() and torch.equal(stored, other.buffer.field("start.trajectory", index))
