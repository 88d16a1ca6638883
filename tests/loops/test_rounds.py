"""Shards that collect whole episodes: in rounds of one episode per environment, each round with one request."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toys import equal, put, toy, train, weights

from rlrun.core.collector import Collector
from rlrun.errors import RunError
from rlrun.loops.generation import Rounds
from rlrun.loops.rounds import numbers_of_round
from rlrun.testing import load, save

Build = Callable[..., Any]
FOUR = {"algo.loop.shards": 4, "env.num_envs": 4}
NORMALIZED = {"env.normalize.kind": "obs"}


def local(workers: int) -> dict[str, Any]:
    return {"cluster": {"name": "local", "workers": workers, "on_lost": "fail", "state_every": 100}}


@pytest.mark.parametrize(("algo", "workers"), [("cem", 2), ("vpg", 1), ("maml", 1)])
def test_shards_of_whole_episodes_in_workers_equal_those_in_the_run_and_resume_each_other(
    algo: str, workers: int, build: Build, tmp_path: Path
) -> None:
    values = toy(algo, **FOUR, **NORMALIZED)
    here, there = build(values), build(put(values, local(workers)))
    for _ in range(3):
        assert equal(here.tick(), there.tick())
    digests = [save(loop, tmp_path / "run").digest for loop in (here, there)]
    assert digests[0] == digests[1]
    resumed = load(build(values, begin=False), save(there, tmp_path / "run"))
    digests = [save(train(loop, 3), tmp_path / "run").digest for loop in (there, resumed)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("algo", ["cem", "vpg"])
def test_the_number_of_shards_and_of_environments_changes_nothing_in_what_is_learned(algo: str, build: Build) -> None:
    learned = []
    for shards, num_envs in ((1, 1), (2, 4), (3, 3)):
        changes = {"algo.loop.shards": shards, "env.num_envs": num_envs, "env.normalize.kind": "none"}
        learned.append(weights(train(build(toy(algo, **changes)), 2)))
    assert all(equal(learned[0], other) for other in learned[1:])


def test_shards_learn_from_the_episodes_of_a_run_without_shards(build: Build) -> None:
    values = toy("vpg", **{"env.num_envs": 4})
    plain, sharded = (train(build(put(values, {"algo.loop.shards": shards})), 3) for shards in (None, 2))
    assert equal(weights(plain), weights(sharded))


def test_one_shard_of_tasks_equals_a_run_without_shards(build: Build) -> None:
    values = toy("maml", **NORMALIZED)
    plain, sharded = build(values), build(put(values, {"algo.loop.shards": 1}))
    for _ in range(3):
        assert equal(plain.tick(), sharded.tick())
    assert plain.steps == sharded.steps and equal(weights(plain), weights(sharded))


def test_shards_have_the_tasks_of_a_run_without_shards(build: Build) -> None:
    tasks = {"env.id": "rlrun/Counter-v0", "env.kwargs": {}, "env.task_kwargs": {"length": [3, 9]}}
    plain, sharded = (
        train(build(toy("maml", **tasks, **{"env.num_envs": 4, "algo.loop.shards": shards})), 2) for shards in (None, 2)
    )
    found = [task for shard in sharded.env.groups[0].instances for task in shard.env.tasks.current()]
    assert found == plain.env.tasks.current() and plain.env.tasks.number == 1


def test_shards_adapt_to_their_own_tasks(build: Build) -> None:
    """Every environment acts with its own parameters, which are those that the run has adapted."""
    loop = build(toy("maml", **FOUR))
    given: list[Any] = []
    call, adapt = loop.env.call, loop.agent.adapt_policy
    adapted: list[Any] = []
    loop.env.call = lambda method, *columns: given.append((method, columns)) or call(method, *columns)
    loop.agent.adapt_policy = lambda *words: adapted.append(adapt(*words)) or adapted[-1]
    before = loop.agent.weights.detach().clone()
    loop.tick()
    params = [columns[-1] for method, columns in given if method == "episodes"]
    assert len(params) == 2 and all(equal(one, before[None]) for one in params[0]), "which may be sent again"
    assert equal(torch.cat(params[1]), adapted[0].params) and len(adapted[0].params) == 4


def test_policies_with_other_state_than_parameters_are_refused(build: Build) -> None:
    loop = build(toy("maml", **FOUR))
    with pytest.raises(RunError, match="other state than parameters"):
        next(loop.collect_episodes([1] * 4, {}, SimpleNamespace(act=None)))


def test_a_round_is_one_request_and_counts_the_steps_that_were_taken(build: Build) -> None:
    """A shard takes no step after its episodes have ended, so in CartPole steps are the sum of the lengths."""
    loop = build(toy("cem", **FOUR, **NORMALIZED, **{"algo.loop.episodes": 1}))
    requests: list[str] = []
    call = loop.env.call
    loop.env.call = lambda method, *given: requests.append(method) or call(method, *given)
    batches: list[Any] = []
    loop.agent.update = lambda batch, ctx: batches.append(batch) or {}
    loop.tick()
    assert requests == ["episodes"] and loop.updates == 1
    lengths = batches[0]["fitness"]
    assert loop.steps == lengths.sum() and len(set(lengths.tolist())) > 1
    assert loop.addons[0].statistics.live.count == loop.steps


def test_environments_without_a_trial_are_not_waited_for(build: Build) -> None:
    loop = build(toy("cem", **{"algo.loop.shards": 2, "env.num_envs": 6, "algo.loop.episodes": 2}))  # 8 trials
    loop.tick()
    before = loop.steps
    assert loop.generation.finished == 6
    counts = []
    episodes = loop.collector.episodes
    loop.collector.episodes = lambda given, *others: counts.append(given) or episodes(given, *others)
    loop.tick()
    assert counts == [[1, 0, 0, 1, 0, 0]] and loop.updates == 1 and loop.steps > before


def test_episodes_belong_to_shards_by_turns() -> None:
    assert numbers_of_round(12, 6, 2) == [12, 14, 16, 13, 15, 17]
    assert numbers_of_round(0, 3, 1) == [0, 1, 2] and numbers_of_round(0, 3, 3) == [0, 1, 2]


def test_a_trial_that_ends_masked_is_repeated() -> None:
    rounds = Rounds(2, 1, 0.5, 4, torch.device("cpu"))
    rounds.begin(3)
    assert rounds.begin_round() == [0, 2, 1, 3] and rounds.jobs == [0, 2, 1, -1]

    def step(ended: list[int], weight: list[float]) -> bool:
        done = torch.tensor(ended, dtype=torch.bool)
        return rounds.add({"reward": torch.ones(4), "weight": torch.tensor(weight), "terminated": done,
                           "truncated": torch.zeros_like(done)})  # fmt: skip

    assert step([1, 0, 0, 1], [1.0, 1.0, 1.0, 1.0]) and rounds.jobs == [-1, 2, 1, -1]
    assert not step([1, 1, 0, 0], [1.0, 0.0, 1.0, 1.0]), "neither counts"
    step([0, 1, 1, 0], [1.0, 1.0, 1.0, 1.0])
    assert rounds.is_finished and rounds.fitness.tolist() == [1.0, 1.75, 1.0]


def ending(terminated: list[list[int]], weight: list[list[float]]) -> Collector:
    """Returns a collector of two environments whose episodes end so, [time, env]."""
    rows = iter(zip(torch.tensor(terminated, dtype=torch.bool), torch.tensor(weight), strict=True))

    def step(action: Any) -> Any:
        done, mask = next(rows)
        one = {"following": torch.zeros(2), "terminated": done, "truncated": torch.zeros_like(done), "weight": mask}
        return one, None

    spec = SimpleNamespace(num_envs=2, time_limit=None)
    env = SimpleNamespace(spec=spec, device="cpu", step=step, reset=lambda: torch.zeros(2))
    addons = SimpleNamespace(act=lambda *_: (torch.zeros(2), {}), modules=lambda: [], reads_previous=())
    agent = SimpleNamespace(modules=lambda: [])
    return Collector(agent, addons, env, SimpleNamespace(lap=lambda _: None))  # type: ignore[arg-type]


def test_collector_waits_until_episodes_have_ended_that_are_not_masked() -> None:
    ends = [[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]]
    mask = [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert len([*ending(ends, mask).episodes([1, 1], {}, 0)]) == 4
    assert len([*ending(ends, mask).episodes([1, 2], {}, 0)]) == 5
    assert len([*ending(ends, mask).episodes([2, 0], {}, 0)]) == 2
    assert not [*ending(ends, mask).episodes([0, 0], {}, 0)]
