"""Named streams: independent of each other, the same on every machine, saved and restored."""

import struct

import pytest
import torch

from rlrun.core.random import Stream, seed_for, sequence


def test_random_stream_draws_are_stable_across_versions() -> None:
    # pinned: a change would make every recorded run irreproducible
    assert seed_for(0, "agent.act") == 450912178990864137
    assert sequence(7, "env").generate_state(2).tolist() == [1777673318, 4020585171]


def test_streams_differ_by_name_and_by_seed() -> None:
    draws = {
        tuple(Stream(seed, name).uniform(4).tolist()) for seed in (0, 1, 2) for name in ("act", "update", "replay")
    }
    assert len(draws) == 9


def test_random_streams_are_independent() -> None:
    first, second, alone = Stream(0, "a"), Stream(0, "b"), Stream(0, "b")
    before = torch.get_rng_state()
    first.normal(100), first.permutation(10), first.integers(5, 3)
    assert torch.equal(second.normal(8), alone.normal(8))
    assert torch.equal(before, torch.get_rng_state())


def test_the_global_seed_plays_no_part() -> None:
    torch.manual_seed(1)
    first = Stream(3, "a").normal(5)
    torch.manual_seed(2)
    assert torch.equal(first, Stream(3, "a").normal(5))


@pytest.mark.parametrize(("left", "position"), [(624, 624), (1, 0), (1, 624), (300, 326), (2, 700)])
def test_a_position_beyond_the_numbers_of_a_generator_is_refused(left: int, position: int) -> None:
    stream = Stream(0, "a")
    state = bytearray(stream.get_extra_state()["state"].numpy().tobytes())
    struct.pack_into("<i4xQ", state, 8, left, position)
    state[12:16] = (1).to_bytes(4, "little")  # whether the generator was seeded
    forged = {"device": "cpu", "state": torch.frombuffer(state, dtype=torch.uint8)}
    if (left, position) in ((1, 0), (1, 624)):
        stream.set_extra_state(forged)
    else:
        with pytest.raises(ValueError, match=f"has {left} numbers left at position {position} of 624"):
            stream.set_extra_state(forged)


def test_random_stream_resumes_from_its_state() -> None:
    stream, copy = Stream(0, "a"), Stream(9, "b")
    stream.normal(7)
    copy.load_state_dict(stream.state_dict())
    assert torch.equal(stream.uniform(5), copy.uniform(5))


@pytest.mark.parametrize("high", [2, 5])
def test_random_stream_draws_are_in_range(high: int) -> None:
    stream = Stream(0, "a")
    assert set(stream.integers(high, 1000).tolist()) == set(range(high))
    uniform = stream.uniform(10_000)
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert sorted(stream.permutation(high).tolist()) == list(range(high))
    normal = stream.normal(10_000)
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05


@pytest.mark.parametrize("draw", ["normal", "uniform", "integers", "gamma"])
def test_random_stream_split_rows_are_seeded_by_name(draw: str) -> None:
    def rows(names: str, after: int = 0) -> torch.Tensor:
        stream = Stream(0, "act")
        stream.normal(after)
        for row, name in enumerate(names):
            stream.split(row, name)
        shape = (len(names), 5)
        arguments: dict[str, tuple[object, ...]] = {"integers": (7, *shape), "gamma": (torch.ones(shape),)}
        drawn = torch.stack([getattr(stream, draw)(*arguments.get(draw, shape)) for _ in range(2)])
        before = stream.generator.get_state()
        stream.join()
        assert torch.equal(stream.generator.get_state(), before)
        return drawn

    assert torch.equal(rows("abc")[:, 1], rows("b")[:, 0])
    assert torch.equal(rows("abc"), rows("abc", after=9))
    assert not torch.equal(rows("ab")[:, 0], rows("ab")[:, 1])
