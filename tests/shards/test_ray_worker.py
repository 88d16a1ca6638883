"""Shards in actors of Ray, with a stand-in for Ray; the slow test uses the real one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stand_in_actors import RayTaskError, StandIn
from toys import put, toy, train

from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.workers import LostError
from rlrun.errors import ConfigError
from rlrun.run.exactness import Machine
from rlrun.shards import placement
from rlrun.shards.ray_worker import Promise, RayGroup, RayWorker
from rlrun.shards.worker import START_S
from rlrun.testing import save

Build = Callable[..., Any]
TWO = {"algo.loop.shards": 2, "env.num_envs": 4}
RAY = {
    "cluster": {
        "name": "ray", "address": "local", "workers": None, "cpus": 0.5, "on_lost": "repeat", "state_every": 3,
    }
}  # fmt: skip


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    found = StandIn()
    monkeypatch.setattr(placement, "connected", lambda *_: found)
    yield found


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_shards_in_actors_equal_shards_in_the_run_though_one_is_lost(
    algo: str, ray: StandIn, build: Build, tmp_path: Path
) -> None:
    ray.deaths = {11}
    values = toy(algo, **TWO, **{"env.normalize.kind": "obs"})
    digests = [save(train(build(v), 6), tmp_path / "run").digest for v in (values, put(values, RAY))]
    assert digests[0] == digests[1]
    assert len(ray.actors) == 3 and [actor.lives for actor in ray.actors].count(False) == 1
    assert ray.options == {"num_cpus": 0.5, "max_restarts": 0, "max_task_retries": 0}


@pytest.fixture
def worker(ray: StandIn, make: Build) -> RayGroup:
    step = {"following": torch.zeros(1), "next_obs": torch.ones(1)}
    methods = {
        "advance": lambda count, _: iter([(step, None)] * count),
        "state": lambda: 1 / 0,
        "load_state": lambda state: None,
    }
    shards = {4: SimpleNamespace(**methods, close=list)}
    one = RayWorker(lambda numbers: shards, make("CartPole-v1").recipe, 7.0, ray, 1.0).group([4])  # type: ignore
    one.wait()
    return one


def test_an_actor_has_its_time_limit_for_each_step(worker: RayGroup, ray: StandIn) -> None:
    worker.call("advance", [[3, {}]])
    (steps,) = worker.result()
    assert len(steps.events) == 3 and ray.limits[3:] == [21.0]
    ray.silent = True
    worker.call("advance", [[2, {}]])
    with pytest.raises(LostError, match="gave no answer in 14 s"):
        worker.result()
    ray.silent = False
    worker.call("load_state", [[{}]])
    assert worker.result() == [None] and ray.limits[-1] is None, "a restore may replay whole episodes"


def test_the_answers_of_an_actor_come_one_after_the_other(worker: RayGroup, ray: StandIn) -> None:
    guest = worker.worker.group([4])
    worker.call("advance", [[3, {}]])
    guest.wait()
    assert ray.limits[3:] == [START_S], "which was promised before the steps"
    guest.call("advance", [[1, {}]])
    assert len(guest.result()[0].events) == 1 and ray.limits[-1] == 21.0 + 7.0
    assert len(worker.result()[0].events) == 3 and ray.limits[-1] == 21.0


def test_what_an_actor_cannot_read_is_not_repeated(worker: RayGroup, ray: StandIn) -> None:
    worker.worker.promised.append(Promise(RayTaskError("No module named 'mine'"), 1.0))
    worker.promised.append(worker.worker.promised[0])
    with pytest.raises(EnvError, match=r"cannot be made in a worker .*No module named 'mine'") as raised:
        worker.result()
    assert not isinstance(raised.value, LostError)


def test_an_actor_sends_what_a_shard_raises(worker: RayGroup) -> None:
    worker.call("state", [[]])
    with pytest.raises(EnvError, match="ZeroDivisionError") as raised:
        worker.result()
    assert not isinstance(raised.value, LostError)


def test_a_group_that_leaves_an_actor_closes_its_environments_alone(worker: RayGroup, ray: StandIn) -> None:
    guest = worker.worker.group([4])
    guest.wait()
    server = ray.actors[0].server.server
    guest.close()
    assert not server.shards and ray.actors[0].lives
    worker.close()
    assert not ray.actors[0].lives


def test_an_actor_closes_its_environments_and_ends(worker: RayGroup, ray: StandIn) -> None:
    worker.close()
    assert ray.actors[0].names[-1] == "close" and not ray.actors[0].lives
    worker.close(terminate=True)
    assert ray.actors[0].names.count("close") == 1


def test_a_worker_on_another_kind_of_machine_is_refused(
    ray: StandIn, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, seen = Machine.here(), iter(range(9))
    monkeypatch.setattr(Machine, "here", lambda *_: own._replace(products=f"other {next(seen)}"))
    with pytest.raises(
        ConfigError, match=r"a worker on .* would not give the results of the run: products .* -> other"
    ):
        build(put(toy("ppo", **TWO), RAY))
    assert not any(actor.lives for actor in ray.actors)


@pytest.mark.slow
def test_shards_in_actors_of_ray_equal_shards_in_the_run(build: Build, tmp_path: Path) -> None:
    real = pytest.importorskip("ray")
    values = toy("ppo", **TWO)
    here, there = build(values), build(put(values, RAY))
    try:
        digests = [save(train(here, 3), tmp_path / "run").digest, save(train(there, 3), tmp_path / "run").digest]
        assert digests[0] == digests[1]
        real.kill(there.env.groups[0].group.worker.actor)
        digests = [save(train(here, 6), tmp_path / "run").digest, save(train(there, 6), tmp_path / "run").digest]
        assert digests[0] == digests[1] and "its actor is lost" in there.notices[0]
    finally:
        there.env.close()
        real.shutdown()
