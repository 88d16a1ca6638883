"""Sequences from replay end where the episode or the stored rows end, and hold the extras of the agent."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.buffers.consecutive import with_next_action
from rlrun.buffers.replay import Reading, Replay
from rlrun.errors import ConfigError
from rlrun.types import Spec

ENVS, LENGTH, SIDE = 3, 6, 36
EXTRAS = {"policy": spaces.Box(0.0, 1.0, (2,), np.float32)}
VECTOR = spaces.Dict({"place": spaces.Box(-1e9, 1e9, (2,), np.float32), "action_mask": spaces.MultiBinary(4)})
FRAMES = spaces.Box(0, 255, (4, SIDE, SIDE), np.uint8)


def replay(rows: int, obs: spaces.Space = VECTOR, stack: int = 1, length: int = LENGTH) -> Replay:
    spec = Spec(obs, spaces.Discrete(4), ENVS, frame_stack=stack)
    reading = Reading(0.9, sequence_length=length, extras=EXTRAS)
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
        assert batch["weight"][place] == kept[first]["weight"][env]
        assert batch["index"][place] == number and batch["age"][place] == 59 - first
    assert ends == set(range(LENGTH)), "episodes ended everywhere in a sequence"


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
