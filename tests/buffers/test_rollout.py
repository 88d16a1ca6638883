"""Rollouts, and the minibatches made of them."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rlrun import memory
from rlrun.buffers.minibatches import minibatches
from rlrun.buffers.rollout import Rollout, check_fits, moved, packed, unpacked
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.indexed import dense, num_bytes
from rlrun.types import Batch, Spec

TIME, ENVS = 6, 5


def numbered() -> Batch:
    """Returns a rollout in which every step has its own number; observations are nested."""
    number = torch.arange(TIME * ENVS).view(TIME, ENVS)
    return {"n": number, "obs": {"a": number[..., None].expand(TIME, ENVS, 2)}, "weight": torch.ones(TIME, ENVS)}


@pytest.mark.parametrize("size", [1, 7, 10, 30, 64])
def test_minibatches_use_every_step_once_an_epoch(size: int) -> None:
    orders = []
    for epoch in minibatches(numbered(), 3, size, Stream(0, "test")):
        numbers = torch.cat([batch["n"] for batch in epoch])
        assert numbers.sort().values.tolist() == list(range(TIME * ENVS))
        assert all(len(batch["n"]) == size for batch in epoch[:-1])
        assert all(torch.equal(batch["obs"]["a"][:, 1], batch["n"]) for batch in epoch)
        orders.append(tuple(numbers.tolist()))
    assert len(set(orders)) == 3, "epochs are shuffled anew"


@pytest.mark.parametrize("size", [6, 12, 30, 48])
def test_minibatches_of_whole_time_lines_use_each_once_an_epoch(size: int) -> None:
    for epoch in minibatches(numbered(), 2, size, Stream(0, "test"), length=TIME):
        lines = torch.cat([batch["n"] for batch in epoch], 1)
        assert lines.shape == (TIME, ENVS)
        assert lines[0].sort().values.tolist() == list(range(ENVS))
        assert ((lines[1:] - lines[:-1]) == ENVS).all(), "steps of a line are in order"
        assert all(batch["obs"]["a"].shape == (*batch["n"].shape, 2) for batch in epoch)


def test_minibatches_of_sequences_are_shorter_at_the_end_of_time_lines() -> None:
    """Time lines of 6 are cut to sequences of 4 and 2; a minibatch of 8 rows holds two sequences of 4 or four of 2."""
    (epoch,) = minibatches(numbered(), 1, 8, Stream(0, "test"), length=4)
    assert [tuple(batch["n"].shape) for batch in epoch] == [(4, 2), (4, 2), (4, 1), (2, 4), (2, 1)]
    starts = torch.cat([batch["n"][0] for batch in epoch])
    assert starts.sort().values.tolist() == [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]
    assert all(((batch["n"][1:] - batch["n"][:-1]) == ENVS).all() for batch in epoch)


def test_minibatches_without_a_stream_keep_the_stored_order() -> None:
    (epoch,) = minibatches(numbered(), 1, 4, None)
    assert torch.cat([batch["n"] for batch in epoch]).tolist() == list(range(TIME * ENVS))
    (epoch,) = minibatches(numbered(), 1, 9, None, length=3)
    assert torch.cat([batch["n"][0] for batch in epoch]).tolist() == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]


@pytest.mark.parametrize("length", [1, 2, TIME])
def test_minibatches_depend_on_their_stream(length: int) -> None:
    def numbers(seed: int) -> list[int]:
        epochs = minibatches(numbered(), 2, 2, Stream(seed, "test"), length)
        return [n for epoch in epochs for batch in epoch for n in batch["n"].flatten().tolist()]

    assert numbers(0) == numbers(0) != numbers(1)


def collected(
    num_frames: int,
    steps: int,
    ends: set[tuple[int, int]],
    images: bool,
    colours: tuple[int, ...] = (),
    scale: float = 1.0,
    dtypes: Any = None,
) -> tuple[Batch, Batch]:
    """Returns a rollout of two environments, and the same observations stored whole.

    Episodes end at the (timestep, environment) of `ends`. An observation joins the last frames of its episode.
    """
    frame: tuple[int, ...] = ()
    space = spaces.Box(-np.inf, np.inf, (num_frames,))
    if images:
        frame = (16, 16, *colours)
        space = spaces.Box(0, 255, (num_frames, *frame), np.uint8)
    drawn = torch.Generator().manual_seed(0)

    def draw() -> Tensor:
        drawn_now = torch.randint(256, (2, *frame), generator=drawn)
        return drawn_now.to(torch.uint8) if images else drawn_now * scale

    rollout = Rollout(Spec(space, spaces.Discrete(4), 2, frame_stack=num_frames), dtypes or {})
    obs = torch.stack([draw() for _ in range(num_frames)], 1)
    whole: dict[str, list[Tensor]] = {"obs": [], "next_obs": []}
    first = torch.tensor([False, True])
    for t in range(steps):
        done = torch.tensor([(t, env) in ends for env in range(2)])
        final = torch.cat([obs[:, 1:], draw()[:, None]], 1)
        fresh = draw()[:, None].expand_as(final)
        after = final
        if done.any():
            after = torch.where(done.view(2, *[1] * (final.dim() - 1)), fresh, final)
        step = {
            "obs": obs,
            "next_obs": final,
            "following": after,
            "action": torch.tensor([t, t]),
            "reward": torch.tensor([t, -t]).float(),
            "terminated": done,
            "truncated": ~done & done,
            "weight": torch.ones(2),
            "first": first,
            "log_prob": torch.tensor([0.5, t]),
        }
        rollout.add(step)
        whole["obs"].append(obs)
        whole["next_obs"].append(final)
        obs, first = after, done
    return rollout.batch(), {key: torch.stack(parts) for key, parts in whole.items()}


ENDS = [set(), {(2, 0)}, {(0, 0), (1, 0), (5, 1), (11, 1)}, {(t, env) for t in range(12) for env in range(2)}]


@pytest.mark.parametrize("ends", ENDS, ids=["none", "one", "several", "all"])
@pytest.mark.parametrize(
    ("num_frames", "images", "colours"), [(4, True, ()), (3, True, (3,)), (1, True, ()), (3, False, ())]
)
def test_rollout_observations_equal_those_of_the_steps(
    num_frames: int, images: bool, colours: tuple[int, ...], ends: Any
) -> None:
    batch, whole = collected(num_frames, 12, ends, images, colours)
    for key in ("obs", "next_obs"):
        assert batch[key].shape == whole[key].shape and batch[key].dtype == whole[key].dtype
        assert torch.equal(dense(batch[key]), whole[key]), key
    assert batch["reward"][:, 1].tolist() == [-t for t in range(12)]
    assert batch["log_prob"][:, 1].tolist() == [*range(12)]
    for env in range(2):
        assert batch["first"][1:, env].tolist() == [(t, env) in ends for t in range(11)]


def test_rollout_stores_every_observation_once() -> None:
    """Observations acted on, successors of the last step, and final observations of episodes that ended before."""
    batch, _ = collected(3, 12, ENDS[2], images=False)
    rows = batch["next_obs"].rows
    assert len(rows) == (12 + 1) * 2 + 3
    assert batch["obs"].data_ptr() == rows.data_ptr(), "`obs` is a view of the same rows"


def test_rollout_of_stacked_images_stores_every_frame_once() -> None:
    batch, whole = collected(4, 128, {(30, 0), (70, 0), (100, 1)}, images=True)
    frame = whole["obs"][0, 0, 0].nbytes
    per_step = num_bytes({key: batch[key] for key in ("obs", "next_obs")}) / (128 * 2)
    assert batch["obs"].rows.dtype == torch.uint8
    assert per_step < 1.2 * frame + 2 * 4 * 4, "indices of int32 come in addition, which are large beside 16x16 pixels"
    (epoch,) = minibatches(batch, 1, 32, Stream(0, "test"))
    assert all(type(part["obs"]) is Tensor and part["obs"].shape == (32, 4, 16, 16) for part in epoch)
    assert torch.equal(torch.cat([part["obs"] for part in epoch]).sum(), whole["obs"].sum())


@pytest.mark.parametrize("length", [4, 20])
def test_minibatches_of_sequences_hold_the_stacks_of_their_steps(length: int) -> None:
    batch, whole = collected(4, 12, ENDS[2], images=True)
    numbers = {"n": torch.arange(24).view(12, 2)}
    (epoch,) = minibatches(batch | numbers, 1, 12, Stream(0, "test"), length)
    for part in epoch:
        for key in ("obs", "next_obs"):
            assert torch.equal(part[key], whole[key].flatten(0, 1)[part["n"]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("num_frames", [1, 3])
def test_rollout_stores_floats_of_observations_in_the_chosen_type(num_frames: int, dtype: Any) -> None:
    plain, whole = collected(num_frames, 12, ENDS[2], images=False, scale=1 / 3)
    batch, _ = collected(num_frames, 12, ENDS[2], images=False, scale=1 / 3, dtypes={"obs": dtype})
    chosen = getattr(torch, dtype)
    assert batch["next_obs"].rows.dtype == chosen and batch["next_obs"].rows.nbytes == plain["next_obs"].rows.nbytes / 2
    (epoch,) = minibatches(batch, 1, 24, None)
    for found in (batch, unpacked(packed(batch)), {key: epoch[0][key].view(12, 2, -1) for key in ("obs", "next_obs")}):
        for key in ("obs", "next_obs"):
            assert found[key].dtype == dense(found[key]).dtype == torch.float32
            assert torch.equal(dense(found[key]), whole[key].to(chosen).float())
    assert not torch.equal(dense(batch["obs"]), whole["obs"])


def test_rollout_with_16_bits_stores_successors_only_where_an_episode_ended() -> None:
    rollout = Rollout(Spec(spaces.Box(-1, 1, (1,)), spaces.Discrete(2), 1), {"obs": "float16"})
    obs, after, other = torch.tensor([[[0.1]], [[0.2]], [[0.3]]])
    rollout.add({"obs": obs, "next_obs": after, "following": after})
    rollout.add({"obs": after, "next_obs": obs, "following": other})
    assert [final is None for final in rollout.final] == [True, False]


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 2)])
def test_rollout_that_does_not_fit_into_memory_is_refused(
    dtype: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[int] = []
    monkeypatch.setattr(memory, "check_fits", lambda setting, size, device: wanted.append(size))
    spec = Spec(spaces.Box(-1, 1, (7,)), spaces.Discrete(2), 3)
    check_fits("algo.loop.rollout_steps=9", 9, spec, {"obs": dtype}, torch.device("cpu"))
    assert wanted == [7 * size * 10 * 3]


def test_rollout_stores_images_as_integers_beside_other_floats() -> None:
    batch, whole = collected(4, 12, ENDS[2], images=True, dtypes={"obs": "float16"})
    assert batch["obs"].rows.dtype == torch.uint8 and torch.equal(dense(batch["obs"]), whole["obs"])


def test_rollout_refuses_numbers_that_its_type_cannot_hold() -> None:
    with pytest.raises(ConfigError, match=r"algo.loop.dtypes.obs=float16: is too small for .* an observation"):
        collected(1, 2, set(), images=False, scale=1e6, dtypes={"obs": "float16"})


@pytest.mark.parametrize("num_frames", [1, 4])
def test_moved_rollout_is_equal_and_leaves_the_storage_as_it_was(num_frames: int) -> None:
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices.append("cuda")
    batch, whole = collected(num_frames, 12, ENDS[2], images=True)
    copy = moved(batch, torch.device("meta"))
    assert copy["obs"].device.type == copy["next_obs"].device.type == copy["reward"].device.type == "meta"
    assert copy["obs"].shape == copy["next_obs"].shape == whole["obs"].shape
    assert batch["obs"].device.type == "cpu"
    for device in devices:
        again = moved(moved(batch, torch.device(device)), torch.device("cpu"))
        assert again.keys() == batch.keys()
        assert all(torch.equal(dense(again[key]), dense(batch[key])) for key in batch)
        assert all(torch.equal(dense(again[key]), whole[key]) for key in ("obs", "next_obs"))


@pytest.mark.parametrize("size", [None, 7, 20])
def test_minibatches_pad_the_last_one_with_masked_steps(size: int | None) -> None:
    rollout = numbered()
    rollout["weight"][2] = 0
    rollout["weight"][5, 3] = 0
    counted = rollout["n"][rollout["weight"] > 0].tolist()
    for epoch in minibatches(rollout, 2, size, Stream(0, "test")):
        numbers, weights = (torch.cat([batch[name] for batch in epoch]) for name in ("n", "weight"))
        assert numbers[weights > 0].sort().values.tolist() == counted
        assert {len(batch["n"]) for batch in epoch} == {size or len(counted)}
        assert len(epoch) == (1 if size is None else -(-len(counted) // size))


@pytest.mark.parametrize(("num", "sizes"), [(1, [30]), (3, [10, 10, 10]), (4, [8, 8, 8, 6])])
def test_minibatches_by_number_use_every_step_once(num: int, sizes: list[int]) -> None:
    for epoch in minibatches(numbered(), 2, None, Stream(0, "test"), num=num):
        assert [len(batch["n"]) for batch in epoch] == sizes
        assert torch.cat([batch["n"] for batch in epoch]).sort().values.tolist() == list(range(TIME * ENVS))


@pytest.mark.parametrize(("length", "shapes"), [(9, [(6, 1)] * 5), (3, [(3, 2)] * 5), (4, [(4, 1), (2, 1)] * 5)])
def test_minibatches_of_sequences_by_number_are_divided_by_environments(length: int, shapes: Any) -> None:
    first, second = minibatches(numbered(), 2, None, Stream(0, "test"), length, num=5)
    orders = []
    for epoch in (first, second):
        assert sorted(tuple(batch["n"].shape) for batch in epoch) == sorted(shapes)
        envs = [set((batch["n"] % ENVS).flatten().tolist()) for batch in epoch]
        assert all(len(one) == 1 for one in envs), "no sequence is shared between minibatches"
        assert torch.cat([batch["n"].flatten() for batch in epoch]).sort().values.tolist() == list(range(TIME * ENVS))
        orders.append([one.pop() for one in envs])
    assert orders[0] != orders[1]


def test_minibatches_of_a_rollout_without_transitions_are_none() -> None:
    assert list(minibatches(numbered() | {"weight": torch.zeros(TIME, ENVS)}, 1, None, Stream(0, "test"))) == [[]]
