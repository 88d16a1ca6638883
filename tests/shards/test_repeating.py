"""Workers of shards that are lost: their successors repeat what is missing, and no result changes."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toys import put, toy, train

from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.workers import LostError
from rlrun.shards.group import Group
from rlrun.shards.repeating import LOSSES, Repeating
from rlrun.shards.shard import Steps
from rlrun.testing import load, save

Build = Callable[..., Any]
TWO = {"algo.loop.shards": 2, "env.num_envs": 4, "env.normalize.kind": "obs"}
LAG = {"algo.loop.lag": 1}
LOCAL = {"cluster": {"name": "local", "workers": None, "on_lost": "repeat", "state_every": 3}}


class Counters(Group):
    """Stands in for a worker of two shards. Each adds its weight to its sum in every step, and yields the sum.

    Its first successor sends the steps of `advance` in other numbers than it does.
    """

    def __init__(self, lost: list[int]):
        """lost: numbers of results, of all workers together, before which the worker is lost; the first is removed."""
        super().__init__([4, 5])
        self.lost = lost
        self.together = 1 + len(lost)
        self.sums, self.weights = [0, 0], [0, 0]
        self.results: list[list[Any]] = []
        self.closed = False
        self.log: list[str] = []

    def call(self, method: str, given: Any) -> None:
        assert not self.closed
        self._live()
        self.log.append(method)
        steps, found = 1, []
        if method in ("advance", "episodes"):
            steps = next(word for word in given[0] if isinstance(word, int))
        for _ in range(steps):
            for shard, words in enumerate(given):
                if method == "load_state":
                    (self.sums[shard],) = words
                elif method in ("advance", "episodes", "load_weights"):
                    weights = next(word for word in words if isinstance(word, dict))
                    self.weights[shard] = weights.get("weight", self.weights[shard])
                if method in ("advance", "episodes"):
                    self.sums[shard] += self.weights[shard]
            found.append([*self.sums])
        if method == "episodes":
            found.append([None, None])
        if method == "advance":
            starts = range(0, steps, self.together)
            groups = [[*zip(*found[start : start + self.together], strict=True)] for start in starts]
            found = [[Steps({}, {}, own) for own in group] for group in groups]  # type: ignore[arg-type]
        self.results += found

    def result(self) -> list[Any]:
        assert not self.closed
        self._live()
        return self.results.pop(0)

    def close(self, terminate: bool = False) -> None:
        self.closed = True

    def _live(self) -> None:
        if self.lost:
            self.lost[0] -= 1
            if self.lost[0] < 0:
                self.lost.pop(0)
                raise LostError(0, "gone")


def sums(lost: list[int], state_every: int = 3, method: str = "advance") -> tuple[list[Any], Repeating]:
    group = Repeating(Counters(lost), lambda: Counters(lost), state_every)
    found = []
    for count, weights in [(2, {"weight": 1}), (2, {}), (1, {"weight": 5}), (4, {}), (1, {})]:
        group.call(method, [[count, weights] if method == "advance" else [weights, count]] * 2)
        until = len(found) + count
        while len(found) < until:
            result = group.result()
            if method == "advance":
                found += [[*sums] for sums in zip(*(steps.events for steps in result), strict=True)]
            else:
                found.append(result)
        if method == "episodes":
            assert group.result() == [None, None]
    return found, group


@pytest.mark.parametrize("method", ["advance", "episodes"])
@pytest.mark.parametrize("state_every", [1, 3, 100])
def test_a_successor_repeats_only_what_is_missing(state_every: int, method: str) -> None:
    expected, alone = sums([], state_every, method)
    assert expected == [[x, x] for x in (1, 2, 3, 4, 9, 14, 19, 24, 29, 34)] and not alone.notices
    for first in range(25):
        for again in (0, 3, 9):
            found, group = sums([first, again], state_every, method)
            assert found == expected and len(group.notices) <= 2


def test_calls_before_the_last_kept_state_are_forgotten() -> None:
    _, group = sums([], method="episodes")
    assert [call.method for call in group.calls] == ["episodes", "episodes", "state"]
    assert group.weights == {"weight": 5} and group.states == [9, 9]
    _, group = sums([])
    assert [call.method for call in group.calls] == ["advance"] and group.states == [29, 29]
    assert group.weights == {"weight": 5}


def test_a_worker_that_is_lost_again_and_again_ends_the_run() -> None:
    with pytest.raises(LostError, match="gone"):
        sums([5, *[0] * LOSSES])
    assert len(sums([5, *[0] * (LOSSES - 1)])[1].notices) == 1, "the last one stayed"


def test_an_error_of_an_environment_is_not_repeated() -> None:
    class Failing(Counters):
        def result(self) -> list[Any]:
            raise EnvError(0, "an error")

    group = Repeating(Failing([]), lambda: pytest.fail("no successor"), 3)
    group.call("status", [[], []])
    with pytest.raises(EnvError, match="an error"):
        group.result()


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Kills the worker that a Repeating calls or waits for, before the calls and results with the numbers `kill`."""
    plan: dict[str, Any] = {"kill": set(), "count": 0}
    result, call = Repeating.result, Repeating.call

    def strike(group: Any) -> None:
        plan["count"] += 1
        if plan["count"] in plan["kill"]:
            os.kill(group.worker.pipe.process.pid, signal.SIGKILL)

    def struck_result(self: Any) -> Any:
        strike(self)
        return result(self)

    def struck_call(self: Any, *given: Any) -> Any:
        strike(self)
        return call(self, *given)

    monkeypatch.setattr(Repeating, "result", struck_result)
    monkeypatch.setattr(Repeating, "call", struck_call)
    yield plan


@pytest.mark.parametrize(("algo", "changes"), [("ppo", LAG), ("sac", LAG), ("cem", {})])
def test_workers_that_are_killed_change_no_result(
    algo: str, changes: dict[str, Any], build: Build, tmp_path: Path, killing: dict[str, Any]
) -> None:
    values = toy(algo, **TWO, **changes)
    here, there = build(values), build(put(values, LOCAL))
    killing.update(count=0, kill={7, 22})
    digests = [save(train(loop, 8), tmp_path / "run").digest for loop in (here, there)]
    assert digests[0] == digests[1]
    assert killing["count"] > 22 and sum("repeats its steps" in line for line in there.notices) == 2
    assert "died, exit code -9; another worker repeats its steps" in there.notices[0]
    killing.update(count=0, kill={1})  # before it is restored
    resumed = load(build(put(values, LOCAL), begin=False), save(there, tmp_path / "run"))
    digests = [save(train(loop, 12), tmp_path / "run").digest for loop in (here, resumed)]
    assert digests[0] == digests[1]
