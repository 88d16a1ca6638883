"""Hyperparameters on a schedule."""

import math
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from toys import put, toy, train

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.errors import ConfigError, RunError
from rlrun.run.assemble import check_ranges
from rlrun.schedules.curriculum import Curriculum
from rlrun.schedules.numbers import Schedules
from rlrun.telemetry.hints import schedule_hints
from rlrun.types import Context

TO_0 = {"linear": {"end": 0.0}}
Build = Callable[..., Any]
GAE = {"name": "gae", "gae_lambda": 0.9}
EPISODES = {"name": "episodes", "min_steps": 100, "min_rollouts": None, "lag": 0, "shards": None}
PPO = {"name": "ppo", "loop": EPISODES, "clip_range": 0.2, "learning_rate": 1e-3, "advantage": GAE}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"linear": {"end": 0.0}}, 0.1),
        ({"linear": {"end": 0.0, "fraction": 0.25}}, 0.0),
        ({"exponential": {"end": 0.1, "steps": 50}}, 0.1 + 0.1 * 0.36787944),
        ({"geometric": {"factor": 0.5, "updates": 4}}, 0.05),
        ({"piecewise": {"values": [0.3, 0.4, 0.5], "at": [10, 50, 51]}}, 0.4),
    ],
)
def test_schedules_have_their_value_at_a_point_of_the_run(shape: dict[str, Any], expected: float) -> None:
    schedules = Schedules(PPO | {"schedule": {"clip_range": shape}})
    schedules.update(Context(updates=8, env_steps=50, progress=0.5), tick_start=50)
    assert schedules.report()["clip_range"].item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("algo", "key"),
    [
        ("ppo", "clip_range"),
        ("a2c", "critic_update.value_coef"),
        ("a2c", "entropy.ent_coef"),
        ("ppo", "advantage.gae_lambda"),
        ("sac", "critic_learning_rate"),
        ("td3", "target_noise"),
        ("dqn", "learning_rate"),
        ("soft_q", "learning_rate"),
        ("bc", "learning_rate"),
        ("muzero", "learning_rate"),
        ("iql", "actor_learning_rate"),
        ("taac", "actor_learning_rate"),
        ("mdq", "critic_learning_rate"),
        ("a2c_split", "learning_rate"),
        ("svpg", "particle.learning_rate"),
        ("dqn", "buffer.reward_scale"),
        ("prioritized_dqn", "buffer.alpha"),
    ],
)
@pytest.mark.parametrize("engine", ["auto", pytest.param("eager", marks=pytest.mark.full)])
def test_scheduled_numbers_change_what_is_learned(algo: str, key: str, engine: str, build: Build) -> None:
    found = []
    for schedule in ({}, {key: {"linear": {"end": 1e-6, "fraction": 1e-6}}}):
        loop = train(build(toy(algo, **{"algo.schedule": schedule, "trainer.engine": engine})), 6)
        found.append(torch.cat([param.detach().flatten() for param in loop.agent.parameters()]))
    assert not torch.equal(*found)


@pytest.mark.parametrize("algo", ["dqn", "ppo", "cem", "maml", "iql"])
def test_scheduled_numbers_are_looked_up_once_an_update(algo: str, build: Build) -> None:
    loop, seen = build(toy(algo)), []
    loop.schedules = Mock(numbers=[1], update=lambda ctx, _: seen.append(ctx.updates))
    train(loop, 4)
    assert seen == [*range(loop.updates)]


def test_numbers_of_loops_and_buffers_are_as_exact_as_those_of_the_config() -> None:
    schedule = {"loop": {"updates_per_step": {"piecewise": {"values": [0.1], "at": [0]}}}}
    number = Schedules(toy("dqn")["algo"] | {"schedule": schedule}).numbers["loop.updates_per_step"]
    number.update(Context(1, 1, 0.5))
    assert float(number.value) == 0.1


def test_new_updates_per_step_hold_after_the_next_tick(build: Build) -> None:
    falling = {"loop.updates_per_step": {"piecewise": {"values": [0.5, 2.0], "at": [30, 40]}}}
    values = toy("dqn", **{"algo.loop.updates_per_step": 1.0, "algo.loop.warmup_steps": 16, "env.num_envs": 2})
    loop, updates = build(put(values, {"algo.schedule": falling})), {}
    while loop.steps < 60:
        loop.tick()
        updates[loop.steps] = loop.updates
    assert [updates[step] for step in (16, 18, 32, 34, 42, 44, 60)] == [0, 2, 16, 18, 22, 23, 55]


def test_updates_per_step_fall_linearly(build: Build) -> None:
    falling = {"loop.updates_per_step": {"piecewise": {"values": [4.0, 1.0], "at": [20, 80], "linear": True}}}
    loop = {"algo.loop.warmup_steps": 20, "algo.loop.warmup_policy": "agent", "algo.loop.updates_per_step": 4.0}
    values = toy("neural_greedy", **loop, **{"env.num_envs": 1})
    bandit, updates = build(put(values, {"algo.schedule": falling})), {}
    while bandit.steps < 120:
        bandit.tick()
        updates[bandit.steps] = bandit.updates
    # the integral of the rate is 70, 120, 150, 170, 190; a value holds for the transitions after the next tick
    assert [updates[step] for step in (20, 40, 60, 80, 100, 120)] == [0, 72, 124, 157, 177, 197]


def test_run_whose_updates_per_step_change_resumes_with_as_many_updates(build: Build) -> None:
    schedule = {"loop": {"updates_per_step": {"linear": {"end": 0.2}}}}
    epsilon = {"algo.epsilon.fraction": 1.0, "algo.epsilon.end_step": None}
    values = toy("dqn", **{"algo.schedule": schedule, **epsilon, "trainer.total_steps": 80})
    whole, first, resumed = build(values), build(values), build(values)
    for loop, ticks in ((whole, 60), (first, 31)):
        for _ in range(ticks):
            loop.tick()
    resumed.load_state_dict(first.state_dict())
    assert 0.2 < resumed.agent.epsilon == first.agent.epsilon < 1.0, "it acts with the value of the last update"
    for _ in range(29):
        resumed.tick()
    assert resumed.steps == whole.steps and resumed.updates == whole.updates < resumed.steps
    assert resumed.schedules.report() == whole.schedules.report()


def test_number_whose_setting_is_a_section_follows_its_shape(build: Build) -> None:
    section = {"name": "exponential", "start": 0.8, "end": 0.0, "steps": 20}
    loop = train(build(put(toy("dqn"), {"algo.epsilon": section})), 3)
    assert loop.agent.epsilon.item() == pytest.approx(0.8 * math.exp(-loop.steps / 20))
    assert loop.agent.epsilon is loop.schedules.numbers["epsilon"].value


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("algo.epsilon.end=1.5", "algo.epsilon: reaches 1.5, but must be less than or equal to 1"),
        ("algo.epsilon.start=1.5", "algo.epsilon.start=1.5: must be less than or equal to 1"),
        ("algo.epsilon.fraction=0", "algo.epsilon.fraction=0: must be greater than 0"),
        ("algo.epsilon.fraction=0.1", "algo.epsilon: must have `fraction` or `end_step`, with null for the other"),
        ("algo.epsilon.name=cosine", "algo.epsilon.name=cosine: must be one of linear, random_start, exponential,"),
        ("algo.critic.name=none", "critic: unknown name 'none'"),
        (
            "algo.schedule.gamma={linear: {end: 0}}",
            "algo.schedule.gamma: cannot change during a run (these can: buffer",
        ),
        ("algo.schedule.epsilon={linear: {end: 0}}", "algo.schedule.epsilon: algo.epsilon is {name: linear, start: 1"),
    ],
)
def test_section_of_a_number_is_checked_against_its_range(word: str, line: str) -> None:
    (job,) = jobs(["algo=dqn", "env=CartPole", "preset=none", word])
    with pytest.raises(ConfigError) as refused:
        check_ranges(run_config(job.values))
    (fault,) = refused.value.faults
    assert fault.startswith(line)


def test_scheduled_run_resumes_bit_for_bit(build: Build) -> None:
    schedule = {"clip_range": {"linear": {"end": 0.0}}, "learning_rate": {"exponential": {"end": 0.0, "steps": 20}}}
    values = toy("ppo", **{"algo.schedule": schedule, "trainer.total_steps": 200})
    whole, first = train(build(values), 4), train(build(values), 2)
    resumed = build(values)
    resumed.load_state_dict(first.state_dict())
    train(resumed, 4)
    state, other = whole.agent.state_dict(), resumed.agent.state_dict()
    assert all(torch.equal(state[name], other[name]) for name in state if isinstance(state[name], torch.Tensor))
    assert resumed.schedules.report() == whole.schedules.report()


def test_learning_rate_of_the_critic_follows_that_of_the_agent_or_its_own_schedule(build: Build) -> None:
    null = {"algo.critic_update.learning_rate": None}
    shared = build(toy("a2c_split", **null, **{"algo.schedule": {"learning_rate": TO_0}})).agent
    assert shared.critic.optim.learning_rate is shared.optim.learning_rate
    own = {"algo.critic_update.learning_rate": 0.1, "algo.schedule": {"critic_update.learning_rate": TO_0}}
    agent = train(build(toy("a2c_split", **own)), 2).agent
    assert agent.optim.learning_rate == 0.01 and 0 < agent.critic.optim.learning_rate < 0.1
    with pytest.raises(ConfigError, match=r"critic_update\.learning_rate is null; give it a number to start from"):
        build(toy("a2c_split", **null, **{"algo.schedule": {"critic_update.learning_rate": TO_0}}))


@pytest.mark.parametrize(
    ("key", "shape", "line"),
    [
        ("clip_range", {"linear": {"end": -1e-9}}, "clip_range: reaches -1e-09, but algo.clip_range must be greater"),
        ("learning_rate", {"exponential": {"end": -1.0, "steps": 9}}, "must be greater than 0"),
        ("learning_rate", {"geometric": {"factor": 1e308}}, "must be from -3.4e+38 to 3.4e+38"),
        ("advantage.gae_lambda", {"geometric": {"factor": 1.2}}, "reaches 1.08, but algo.advantage.gae_lambda must be"),
        ("advantage.gae_lambda", {"piecewise": {"values": [0.5, 1.5], "at": [1, 2]}}, "reaches 1.5"),
        ("clip_range", {"piecewise": {"values": [0.1, 0.2], "at": [9, 9]}}, "must have increasing steps `at`"),
        ("clip_range", {"piecewise": {"values": [0.1, 0.2], "at": [9]}}, "one for each value"),
        (
            "loop.min_steps",
            {"linear": {"end": 0}},
            "loop.min_steps: reaches 0, but algo.loop.min_steps must be greater",
        ),
        ("clip_range", {"piecewise": {"values": [0.1], "at": [-9]}}, "at.0=-9: must be greater than or equal to 0"),
    ],
)
def test_schedule_that_leaves_the_range_of_its_number_is_refused(key: str, shape: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Schedules(PPO | {"schedule": {key: shape}})
    assert line in str(caught.value) and len(caught.value.faults) == 1


def test_schedule_may_end_at_the_bound_of_an_open_range() -> None:
    Schedules(PPO | {"schedule": {"clip_range": TO_0, "learning_rate": {"exponential": {"end": 0.0, "steps": 9}}}})


def test_schedules_by_step_report_the_step_of_their_last_value(build: Build) -> None:
    by_success = {"by": "success", "values": [1.0, 2.0], "at": 1}
    by_step = {"by": "steps", "values": [1.0, 2.0], "at": [0, 500]}
    curricula = {"gravity": by_step, "length": by_success}
    points = {"clip_range": {"piecewise": {"values": [0.1, 0.2], "at": [9, 900]}}, "learning_rate": TO_0}
    loop = build(toy("ppo", **{"algo.schedule": points}))
    loop.curriculum = Curriculum(curricula)
    assert [*loop.last_points()] == [("algo.schedule.clip_range", 900), ("env.schedule.gravity", 500)]
    (line,) = schedule_hints(loop.last_points(), 500)
    assert line.startswith("algo.schedule.clip_range: its value at step 900 is not reached")


def test_geometric_growth_stops_the_run_where_it_leaves_the_range() -> None:
    schedules = Schedules(PPO | {"schedule": {"advantage.gae_lambda": {"geometric": {"factor": 1.01}}}})
    schedules.update(Context(updates=10, env_steps=0, progress=0.0), 0)
    for updates in (11, 10**6):
        with pytest.raises(RunError, match=r"gae_lambda: reaches .*, but algo.advantage.gae_lambda must be"):
            schedules.update(Context(updates=updates, env_steps=0, progress=0.0), 0)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("gamma={linear: {end: 1}}", "gamma: cannot change during a run (these can: advantage.gae_lambda,"),
        ("clip_range={cosine: {}}", "clip_range.cosine={}: must be one of linear, random_start, exponential,"),
        ("clip_range={linear: {}}", "clip_range.linear.end: missing"),
        (
            "clip_range={StepLR: {step_size: 9}}",
            "clip_range.StepLR={step_size: 9}: must be one of linear, random_start",
        ),
        ("clip_range={linear: {end: 0}, piecewise: {}}", "clip_range: one schedule at a time, not linear, piecewise"),
        ("clip_range=0.1", "clip_range=0.1: must be one of linear, random_start, exponential,"),
        ("clip_range={piecewise: {values: [-1], at: [0]}}", "clip_range: reaches -1, but algo.clip_range must be"),
    ],
)
def test_impossible_schedules_are_refused_in_one_line(word: str, line: str, capsys: Any, tmp_path: Any) -> None:
    run = tmp_path / "run"
    assert main(["train", "algo=ppo", "env=CartPole", f"algo.schedule.{word}", f"run_dir={run}"]) == 2
    error = capsys.readouterr().err
    assert f"algo.schedule.{line}" in error and error.count("\n") == 1 and not run.exists()
