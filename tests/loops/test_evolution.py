"""Evolution: every trial is one whole episode, and its return counts for the member that played it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy, train

from rlrun.core.loop import Loop
from rlrun.types import Batch

Build = Callable[..., Loop]


def watched(loop: Loop) -> tuple[list[Batch], list[tuple[Any, Any]]]:
    """Returns the batches that the agent received, and (params, ended episodes) of every step."""
    batches: list[Batch] = []
    steps: list[tuple[Any, Any]] = []
    update, act, step_env = loop.agent.update, loop.agent.act, loop.env.step

    def learn(batch: Batch, ctx: Any) -> Any:
        batches.append({key: value.clone() for key, value in batch.items()})
        return update(batch, ctx)

    def choose(obs: Any, carry: Any, explore: bool, params: Any = None) -> Any:
        steps.append((params.clone(), None))
        return act(obs, carry, explore, params)

    def step(action: Any) -> Any:
        result, events = step_env(action)
        steps[-1] = (steps[-1][0], result)
        return result, events

    loop.agent.update, loop.agent.act, loop.env.step = learn, choose, step  # type: ignore
    return batches, steps


@pytest.mark.parametrize("num_envs", [1, 3, 4, 7])
@pytest.mark.parametrize("episodes", [1, 2])
def test_the_fitness_of_a_member_is_the_mean_return_of_its_episodes(num_envs: int, episodes: int, build: Build) -> None:
    loop = build(toy("cem", **{"env.num_envs": num_envs, "algo.loop.episodes": episodes}))
    batches, steps = watched(loop)
    while len(batches) < 2:
        loop.tick()
    by_generation: list[dict[tuple[float, ...], list[float]]] = [{}, {}]
    running: dict[int, tuple[tuple[float, ...], float]] = {}
    generation, population = 0, {tuple(row.tolist()) for row in batches[0]["params"]}
    for params, result in steps:
        rows = [tuple(row.tolist()) for row in params]
        if not set(rows) <= population:
            generation, population, running = 1, {tuple(row.tolist()) for row in batches[1]["params"]}, {}
        assert set(rows) <= population
        for env, row in enumerate(rows):
            before = running.get(env, (row, 0.0))
            assert before[0] == row or before[1] == 0, "an episode changed hands"
            running[env] = (row, before[1] + result["reward"][env].item())
            if result["terminated"][env] or result["truncated"][env]:
                by_generation[generation].setdefault(row, []).append(running[env][1])
                running[env] = (row, 0.0)
    for batch, played in zip(batches, by_generation, strict=True):
        for row, fitness in zip(batch["params"], batch["fitness"], strict=True):
            returns = played[tuple(row.tolist())]
            # spare environments may play the first member again, so its counted episodes are among those it played
            assert len(returns) >= episodes
            if len(returns) == episodes:
                assert fitness.item() == pytest.approx(sum(returns) / episodes)
    assert loop.updates == 2


@pytest.mark.parametrize("num_envs", [1, 3])
def test_members_are_ranked_by_their_discounted_return(num_envs: int, build: Build) -> None:
    """In CartPole, every step has reward 1."""
    changes = {"algo.loop.gamma": 0.5, "env.num_envs": num_envs}
    one, other = (build(toy("cem", **{"algo.loop.episodes": 1, **more})) for more in (changes, changes))
    plain = build(toy("cem", **{"algo.loop.episodes": 1, "env.num_envs": num_envs}))
    undiscounted, _ = watched(plain)
    expected, _ = watched(one)
    for loop, seen in ((plain, undiscounted), (one, expected)):
        while not seen:
            loop.tick()
    lengths = undiscounted[0]["fitness"]
    assert torch.equal(undiscounted[0]["params"], expected[0]["params"]) and len(set(lengths.tolist())) > 1
    torch.testing.assert_close(expected[0]["fitness"], 2 * (1 - 0.5**lengths))
    train_to = build(toy("cem", **{"algo.loop.episodes": 1, **changes}))
    for _ in range(3):
        other.tick()
    train_to.load_state_dict(copy.deepcopy(other.state_dict()))
    resumed, _ = watched(train_to)
    while not resumed:
        train_to.tick()
    assert torch.equal(resumed[0]["fitness"], expected[0]["fitness"])


@pytest.mark.parametrize("num_envs", [1, 3, 7])
def test_every_trial_is_played_exactly_once(num_envs: int, build: Build) -> None:
    loop: Any = build(toy("cem", **{"env.num_envs": num_envs, "algo.loop.episodes": 2}))
    finished: list[int] = []
    end = loop.generation._end

    def book(slot: int, **given: Any) -> None:
        finished.append(loop.generation.jobs[slot])
        end(slot, **given)

    loop.generation._end = book
    while loop.updates < 1:
        loop.tick()
    assert sorted(job for job in finished if job >= 0) == list(range(8))
    assert loop.generation.finished == 8


def test_a_generation_starts_with_fresh_episodes(build: Build) -> None:
    loop: Any = build(toy("cem", **{"env.num_envs": 7, "algo.loop.gamma": 0.5}))
    while loop.updates < 1:
        loop.tick()
    assert loop.params is None
    loop.tick()
    assert loop.env.clock.begun.tolist() == [loop.env.clock.steps - 1] * 7
    assert torch.equal(loop.generation.returns, torch.ones(7, dtype=torch.float64))


def test_observations_are_normalised_alike_within_a_generation_and_by_all_that_was_seen(build: Build) -> None:
    loop: Any = build(toy("cem", **{"env.normalize.kind": "obs"}))
    normaliser = loop.addons[0]
    seen, shown = [], []
    step_env, act = loop.env.step, loop.agent.act

    def step(action: Any) -> Any:
        result, events = step_env(action)
        seen.append(result["following"])
        return result, events

    def choose(obs: Any, carry: Any, explore: bool, params: Any = None) -> Any:
        shown.append((loop.obs, obs))
        return act(obs, carry, explore, params)

    loop.env.step, loop.agent.act = step, choose
    for generation in range(3):
        mean, var = normaliser.statistics.live.mean.clone(), normaliser.statistics.live.var.clone()
        shown.clear()
        train(loop, generation + 1)
        for raw, given in shown:
            expected = ((raw - mean) / (var + 1e-8).sqrt()).clamp(-10, 10).float()
            torch.testing.assert_close(given, expected)
        rows = torch.cat(seen).double()
        torch.testing.assert_close(normaliser.statistics.live.mean, rows.mean(0))
        torch.testing.assert_close(normaliser.statistics.live.var, rows.var(0, correction=0))


def test_a_normalised_population_goes_on_where_it_was(build: Build) -> None:
    one: Any = train(build(toy("cma_es", **{"env.normalize.kind": "obs"})), 1)
    for _ in range(5):
        one.tick()
    other: Any = build(toy("cma_es", **{"env.normalize.kind": "obs"}), begin=False)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    train(one, 3), train(other, 3)
    assert torch.equal(one.agent.mean, other.agent.mean)
    assert torch.equal(one.addons[0].statistics.live.mean, other.addons[0].statistics.live.mean)
