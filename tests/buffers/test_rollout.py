"""Rollouts, and the minibatches made of them."""

import pytest
import torch

from rlrun.buffers.rollout import Rollout, minibatches
from rlrun.core.random import Stream
from rlrun.types import Batch, Step

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
    for epoch in minibatches(numbered(), 2, size, Stream(0, "test"), length=None):
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


@pytest.mark.parametrize("length", [1, 2, None])
def test_minibatches_depend_on_their_stream(length: int | None) -> None:
    def numbers(seed: int) -> list[int]:
        epochs = minibatches(numbered(), 2, 2, Stream(seed, "test"), length)
        return [n for epoch in epochs for batch in epoch for n in batch["n"].flatten().tolist()]

    assert numbers(0) == numbers(0) != numbers(1)


def test_rollout_stacks_its_steps_in_time() -> None:
    rollout = Rollout()
    no, weight = torch.tensor([False, False]), torch.ones(2)
    for t in range(3):
        obs, after, final = ({"x": torch.full((2, 4), float(t + part))} for part in (0.0, 0.1, 0.2))
        cut, first = torch.tensor([False, t == 1]), torch.tensor([t == 0, t == 2])
        step = Step(after, torch.tensor([t, -t]).float(), no, cut, final, torch.zeros(2), weight, {})
        rollout.add(obs, torch.tensor([t, t]), step, {"log_prob": torch.tensor([0.5, t])}, first)
    batch = rollout.batch()
    assert batch["obs"]["x"].shape == (3, 2, 4)
    assert batch["obs"]["x"][:, 0, 0].tolist() == [0, 1, 2]
    assert batch["next_obs"]["x"][:, 0, 0].tolist() == pytest.approx([0.2, 1.2, 2.2]), "the true successor"
    assert batch["reward"][:, 1].tolist() == [0, -1, -2]
    assert batch["truncated"][:, 1].tolist() == [False, True, False]
    assert batch["first"][:, 1].tolist() == [False, False, True]
    assert batch["log_prob"][:, 1].tolist() == [0, 1, 2]


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


def test_minibatches_of_a_rollout_without_transitions_are_none() -> None:
    assert list(minibatches(numbered() | {"weight": torch.zeros(TIME, ENVS)}, 1, None, Stream(0, "test"))) == [[]]
