"""Workers of shards that are lost: their successors repeat what is missing, and no result changes."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from toys import put, toy, train

from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.workers import LostError
from rlrun.errors import ConfigError
from rlrun.shards import placement, repeating
from rlrun.shards.repeating import LOSSES, Repeating
from rlrun.shards.shard import Steps
from rlrun.shards.worker import Worker, WorkerGroup, Workers
from rlrun.testing import load, save

Build = Callable[..., Any]
TWO = {"algo.loop.shards": 2, "env.num_envs": 4, "env.normalize.kind": "obs"}
LAG = {"algo.loop.lag": 1}
LOCAL = {"cluster": {"name": "local", "workers": None, "on_lost": "repeat", "state_every": 3}}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeating, "LOOK_S", 0.0)


class CountingWorker(Worker):
    """Stands in for a worker. lost: numbers of calls and results before which it is lost; each loss is removed."""

    def __init__(self, lost: list[int], ready: Iterator[bool], fault: Exception | None = None):
        super().__init__()
        self.lost, self.is_ready, self.fault = lost, ready, fault
        self.log: list[str] = []

    def group(self, shards: Any) -> "Counters":
        return Counters(self, shards)

    def drop(self, shards: Any) -> None:
        self.log.append(f"drop {shards}")

    def end(self, terminate: bool) -> None:
        self.log.append("end")

    def live(self) -> None:
        assert "end" not in self.log
        if self.lost:
            self.lost[0] -= 1
            if self.lost[0] < 0:
                self.lost.pop(0)
                raise LostError(0, "gone")


class Counters(WorkerGroup):
    """Stands in for two shards. Each adds its weight to its sum in every step, and yields the sum."""

    worker: CountingWorker

    def __init__(self, worker: CountingWorker, shards: list[int]):
        super().__init__(worker, shards)
        self.together = 1 + len(worker.lost)  # steps; those after a loss come in other numbers
        self.sums, self.weights = [0, 0], [0, 0]
        self.results: list[Any] = []

    def wait(self) -> None:
        self.worker.log.append(f"build {self.shards}")
        if self.worker.fault is not None:
            raise self.worker.fault

    def ready(self) -> bool:
        return next(self.worker.is_ready, True)

    def call(self, method: str, given: Any) -> None:
        self.worker.live()
        self.worker.log.append(method)
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
        self.worker.live()
        return self.results.pop(0)


class Fleet(Workers):
    """The workers of one group of shards, and `others` besides, which hold other shards."""

    def __init__(self, lost: list[int], others: int = 0, unready: int = 0, faults: Sequence[Exception] = ()):
        """unready: how often each worker to come is not ready yet. faults: what the first of these raise."""
        self.begun: list[CountingWorker] = []
        self.unready = 0
        self.faults: list[Exception] = []
        self.lost = lost
        super().__init__(self._begin)
        self.group = self.request([4, 5])
        self.admit(self.group)
        for number in range(others):
            self.admit(self.request([10 * number, 10 * number + 1]))
        self.unready, self.faults = unready, [*faults]

    def _begin(self) -> CountingWorker:
        fault = self.faults.pop(0) if self.faults else None
        self.begun.append(CountingWorker(self.lost, repeat(False, self.unready), fault))
        return self.begun[-1]


def sums(fleet: Fleet, state_every: int = 3, method: str = "advance") -> tuple[list[Any], Repeating]:
    group = Repeating(fleet.group, None, fleet, state_every)
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


EXPECTED = [[x, x] for x in (1, 2, 3, 4, 9, 14, 19, 24, 29, 34)]


@pytest.mark.parametrize("method", ["advance", "episodes"])
@pytest.mark.parametrize("state_every", [1, 3, 100])
@pytest.mark.parametrize(("others", "unready"), [(0, 0), (2, 1), (1, 3), (1, 99)])
def test_another_worker_repeats_only_what_is_missing(state_every: int, method: str, others: int, unready: int) -> None:
    alone, group = sums(Fleet([], others, unready), state_every, method)
    assert alone == EXPECTED and not group.notices
    for first in range(25):
        for again in (0, 3, 9):
            found, group = sums(Fleet([first, again], others, unready), state_every, method)
            assert found == EXPECTED and len(group.notices) <= 4


def test_calls_before_the_last_kept_state_are_forgotten() -> None:
    _, group = sums(Fleet([]), method="episodes")
    assert [call.method for call in group.calls] == ["episodes", "episodes", "state"]
    assert group.weights == {"weight": 5} and group.states == [9, 9]
    _, group = sums(Fleet([]))
    assert [call.method for call in group.calls] == ["advance"] and group.states == [29, 29]
    assert group.weights == {"weight": 5}


@pytest.mark.parametrize("others", [0, 9])
def test_shards_whose_workers_are_lost_again_and_again_end_the_run(others: int) -> None:
    with pytest.raises(LostError, match="gone"):
        sums(Fleet([5, *[0] * LOSSES], others))
    assert len(sums(Fleet([5, *[0] * (LOSSES - 1)], others))[1].notices) == 1, "the last one stayed"


def test_shards_of_a_lost_worker_are_guests_until_another_is_ready() -> None:
    fleet = Fleet([3], others=2, unready=2)
    _, host, other = fleet.begun
    fleet.admit(host.group([7, 8]))
    found, group = sums(fleet)
    assert found == EXPECTED
    repeats = "shard 4, 5: gone; another worker repeats its steps"
    assert group.notices == [repeats, "shard 4, 5: moved to another worker"]
    assert "build [4, 5]" in other.log and "build [4, 5]" not in host.log, "it had fewer shards"
    assert other.log[-1] == "drop [4, 5]" and len(other.groups) == 1
    (own,) = fleet.begun[3:]
    assert group.group.worker is own and own.log[:3] == ["build [4, 5]", "load_weights", "load_state"]
    assert own.log.count("advance") == 1, "it began with a state that had just been kept"


def test_lost_workers_take_no_guests() -> None:
    fleet = Fleet([3], others=3, unready=99)
    for worker in fleet.begun[1:3]:
        worker.fault = LostError(0, "gone, too")
    found, group = sums(fleet)
    assert found == EXPECTED and group.losses == 0 and len(group.notices) == 1
    assert group.group.worker is fleet.begun[3] and all(worker.log[-1] == "end" for worker in fleet.begun[1:3])


def test_a_worker_that_is_lost_while_it_starts_is_requested_again() -> None:
    fleet = Fleet([3], others=1, unready=1, faults=[LostError(0, "gone before")])
    found, group = sums(fleet)
    assert found == EXPECTED and len(fleet.begun) == 4 and group.requested is not None
    group.close()
    assert fleet.begun[3].log == ["end"]


def test_a_worker_that_is_refused_is_not_requested_again() -> None:
    fleet = Fleet([3], others=1, unready=1, faults=[ConfigError("another kind of CPU")])
    found, group = sums(fleet)
    assert found == EXPECTED and len(fleet.begun) == 3 and group.requested is None
    assert group.notices[1:] == ["shard 4, 5: cannot move to another worker: another kind of CPU"]
    assert fleet.begun[2].log[-1] == "end" and group.group.worker is fleet.begun[1]


def test_a_refused_worker_ends_the_run_if_there_is_no_other() -> None:
    with pytest.raises(ConfigError, match="another kind of CPU"):
        sums(Fleet([3], faults=[ConfigError("another kind of CPU")]))


def test_an_error_of_an_environment_is_not_repeated() -> None:
    fleet = Fleet([])
    fleet.group.result = lambda: raised(EnvError(0, "an error"))  # type: ignore
    group = Repeating(fleet.group, None, fleet, 3)
    group.call("status", [[], []])
    with pytest.raises(EnvError, match="an error"):
        group.result()
    assert len(fleet.begun) == 1


def raised(error: Exception) -> Any:
    raise error


def test_shards_without_a_worker_take_one_that_others_have_requested() -> None:
    fleet = Fleet([3])
    fleet.unready = 10**9
    others = fleet.request([8, 9])
    own = iter([False] * 9)
    fleet.begun[1].is_ready = own
    found, group = sums(fleet)
    assert found == EXPECTED and group.group.worker is fleet.begun[1] and next(own, None) is None
    assert others.built and len(fleet.begun) == 3 and group.requested is fleet.begun[2].groups[0]


def test_a_run_begins_with_the_workers_that_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "JOIN_S", 0.05)
    late, early = CountingWorker([], repeat(False)), CountingWorker([], iter([False]))
    begun = iter([late, early, late])
    workers = Workers(lambda: next(begun))
    found = placement.settled([workers.request([0, 1]), workers.request([2, 3])], workers)
    assert [(group.shards, group.worker, requested) for group, requested in found] == [
        ([0, 1], early, late.groups[0]),
        ([2, 3], early, None),
    ]
    notices = [Repeating(*one, workers, 3).notices for one in found]
    assert notices == [["shard 0, 1: no worker is free for it yet; it runs in another that has shards"], []]
    lost = CountingWorker([], repeat(True), LostError(0, "gone"))
    begun = iter([lost, early, lost, late])
    workers = Workers(lambda: next(begun))
    found = placement.settled([workers.request([0, 1]), workers.request([2, 3])], workers)
    assert [group.worker for group, _ in found] == [early, early]
    workers = Workers(lambda: next(begun))
    with pytest.raises(LostError, match="gone"):
        placement.settled([workers.request([0, 1])], workers)
    monkeypatch.setattr(placement, "START_S", 0.05)
    workers = Workers(lambda: next(begun))
    with pytest.raises(LostError, match=r"no worker was ready in 0\.05 s"):
        placement.settled([workers.request([0, 1])], workers)


def test_a_run_does_not_begin_with_a_refused_worker() -> None:
    begun = iter([CountingWorker([], repeat(True)), CountingWorker([], repeat(True), ConfigError("another CPU"))])
    workers = Workers(lambda: next(begun))
    with pytest.raises(ConfigError, match="another CPU"):
        placement.settled([workers.request([0, 1]), workers.request([2, 3])], workers)


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Kills the worker that a Repeating calls or waits for, before the calls and results with the numbers `kill`."""
    plan: dict[str, Any] = {"kill": set(), "count": 0}
    result, call = Repeating.result, Repeating.call

    def strike(group: Any) -> None:
        plan["count"] += 1
        if plan["count"] in plan["kill"]:
            os.kill(group.group.worker.pipe.process.pid, signal.SIGKILL)

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
    assert killing["count"] > 22 and sum("repeats its steps" in line for line in there.notices) >= 2
    assert "died, exit code -9; another worker repeats its steps" in there.notices[0]
    killing.update(count=0, kill={1})  # before it is restored
    resumed = load(build(put(values, LOCAL), begin=False), save(there, tmp_path / "run"))
    digests = [save(train(loop, 12), tmp_path / "run").digest for loop in (here, resumed)]
    assert digests[0] == digests[1]
