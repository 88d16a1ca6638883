"""Evaluation: a fixed number of whole episodes, a guaranteed end, and no changed state."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from toys import equal, toy, train

from rlrun.config.jobs import jobs
from rlrun.config.resumable import Recorded
from rlrun.config.schema import run_config
from rlrun.core.addon import Addon, Addons
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.envs.stepping.workers import AsyncPool
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_agent, check_requirements, eval_env
from rlrun.run.evaluation import EvaluationInterruptedError, Sampling, evaluate
from rlrun.run.lifecycle import make_trainer
from rlrun.run.signals import Signals
from rlrun.types import NOTHING, Episode, Events, Spec, Step


class Player:
    """Plays action 0, counts its steps in the carry, and records its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, bool]] = []

    def act(self, obs: Any, carry: Any, explore: bool) -> Any:
        self.calls.append((obs, carry, explore))
        count = carry.get("carry.count", torch.zeros(len(obs)))
        return torch.zeros(len(obs), dtype=torch.int64), {"carry.count": count + 1, "log_prob": count}


class Lengths:
    """Environment i has episodes of lengths[i] steps with reward 1; if `idle`, a masked row follows each."""

    def __init__(self, lengths: list[int], idle: bool = False):
        self.spec = Spec(None, None, len(lengths))  # type: ignore[arg-type]
        self.device = torch.device("cpu")
        self.lengths, self.idle, self.t = np.array(lengths), idle, np.zeros(len(lengths), int)
        self.steps = 0

    def reset(self) -> torch.Tensor:
        return torch.zeros(len(self.t), 1)

    def step(self, action: torch.Tensor) -> tuple[Step, Events]:
        self.steps += 1
        assert self.steps < 1000, "evaluation does not end"
        self.t += 1
        resetting = torch.as_tensor(self.t > self.lengths)
        ended = torch.as_tensor(self.t == self.lengths)
        self.t[(resetting if self.idle else ended).numpy()] = 0
        step = {
            "following": torch.as_tensor(self.t)[:, None].float(),
            "reward": torch.ones(len(self.t)),
            "terminated": ended,
            "truncated": resetting,
            "weight": 1 - resetting.float(),
        }
        return step, NOTHING


def play(env: Any, episodes: int, player: Any = None) -> dict[str, float]:
    return evaluate(player or Player(), Addons(), env, episodes)


def test_evaluation_success_rate_counts_finished_episodes_only() -> None:
    class Tells(Lengths):
        def step(self, action: torch.Tensor) -> tuple[Step, Events]:
            step, _ = super().step(action)
            ended = step["terminated"].nonzero().flatten().tolist()
            reports = {0: None, 1: 1.0, 2: 0.0}
            return step, Events(episodes=[Episode(0.0, 1, env, True, reports[env]) for env in ended])

    assert play(Tells([2, 50, 3]), 3)["eval/success_rate"] == pytest.approx(1 / 3)
    assert "eval/success_rate" not in play(Lengths([2]), 1)


@pytest.mark.parametrize("idle", [False, True])
def test_evaluation_plays_a_fixed_number_of_episodes_per_environment(idle: bool) -> None:
    values = play(Lengths([2, 50], idle), 4)
    assert values["eval/return_mean"] == 26
    assert values["eval/length_mean"] == 26
    assert values["eval/return_std"] == 24
    assert (values["eval/return_min"], values["eval/return_max"]) == (2, 50)


def test_evaluation_repeats_episodes_cut_off_by_a_restart() -> None:
    class Drops(Lengths):
        def step(self, action: torch.Tensor) -> tuple[Step, Events]:
            step, events = super().step(action)
            if self.steps != 3:
                return step, events
            self.t[:] = 0
            gone = torch.ones(1, dtype=torch.bool)
            return step | {"truncated": gone, "terminated": ~gone, "weight": torch.zeros(1)}, events

    env = Drops([5])
    values = play(env, 1)
    assert (values["eval/return_mean"], values["eval/length_mean"], env.steps) == (5, 5, 3 + 5)


def test_evaluation_episodes_per_env_with_a_remainder() -> None:
    assert play(Lengths([2, 50, 50]), 4)["eval/return_mean"] == (2 + 2 + 50 + 50) / 4


@pytest.mark.parametrize("episodes", [1, 20])
def test_evaluation_truncates_endless_episodes(episodes: int) -> None:
    words = ["algo=ppo", "env=rlrun/Endless-v0", "trainer.eval_max_steps=7"]
    config = run_config(jobs(words)[0].values)
    env = eval_env(config, 0, "eval", episodes, torch.device("cpu"))
    agent, addons = build_agent(config, env.spec, torch.device("cpu"))
    values = evaluate(agent, addons, env, episodes)
    assert values["eval/length_mean"] == 7
    assert env.clock.steps == 7 * -(-episodes // env.num_envs)


def test_an_async_run_is_evaluated_in_workers_with_the_same_numbers() -> None:
    found = []
    for backend in ("sync", "async"):
        config = run_config(jobs(["algo=ppo", "env=CartPole", f"env.backend={backend}"])[0].values)
        env = eval_env(config, 0, "eval", 2, torch.device("cpu"))
        assert isinstance(env.venv, AsyncPool) == (backend == "async")
        try:
            agent, addons = build_agent(config, env.spec, torch.device("cpu"))
            found.append(evaluate(agent, addons, env, 3))
        finally:
            env.close()
    assert found[0] == found[1]


def test_evaluation_passes_first_and_carry_to_the_agent() -> None:
    player = Player()
    play(Lengths([2, 3]), 2, player=player)
    carries = [carry for _, carry, _ in player.calls]
    assert [carry["first"].tolist() for carry in carries] == [[True, True], [False, False], [True, False]]
    assert [carry["carry.count"].tolist() for carry in carries[1:]] == [[1, 1], [2, 2]]
    assert all("log_prob" not in carry for carry in carries)
    assert not any(explore for _, _, explore in player.calls)


def test_evaluation_applies_addons_to_observations() -> None:
    class Shift(Addon):
        def see(self, obs: Any, carry: Any, explore: bool) -> Any:
            assert not explore
            return obs + 100, {}

    player = Player()
    evaluate(player, Addons([Shift(), Shift()]), Lengths([3]), 1)  # type: ignore[arg-type]
    assert [obs.item() for obs, _, _ in player.calls] == [200, 201, 202]


def test_returns_are_raw_rewards_of_real_environments(make_env: Callable[..., VectorEnv]) -> None:
    values = play(make_env("rlrun/Counter-v0", 2, kwargs={"length": 4}), 3)
    assert values["eval/return_mean"] == 1 + 2 + 3 + 4
    assert values["eval/length_mean"] == 4


@pytest.mark.parametrize("probability", [0.25, 1.0])
def test_actions_are_sampled_with_a_probability(probability: float) -> None:
    class Explorer(Player):
        def act(self, obs: Any, carry: Any, explore: bool) -> Any:
            _, extras = super().act(obs, carry, explore)
            extra = {"carry.noise": carry.get("carry.noise", extras["log_prob"]) + 1} if explore else {}
            return torch.full((len(obs),), int(explore)), {"carry.explored": torch.full((len(obs),), explore), **extra}

    class Taken(Lengths):
        def step(self, action: torch.Tensor) -> tuple[Step, Events]:
            taken.append(action)
            return super().step(action)

    player, taken = Explorer(), list[torch.Tensor]()
    sampling = Sampling(probability, Stream(0, "coins"))
    evaluate(player, Addons(), Taken([100] * 5), 5, sampling=sampling)  # type: ignore[arg-type]
    actions = torch.stack(taken)
    assert actions.float().mean().item() == pytest.approx(probability, abs=0.05)
    assert probability == 1 or actions.float().std(1).any(), "each environment has a draw of its own"
    carries = [carry for _, carry, explore in player.calls if explore]
    assert all(equal(carry["carry.explored"], before == 1) for carry, before in zip(carries[1:], actions, strict=False))
    assert carries[-1]["carry.noise"].eq(99).all(), "what only samples carry on is carried on"


def test_evaluation_has_a_number_of_environments() -> None:
    for given, episodes, expected in ((None, 20, 16), (None, 3, 3), (2, 20, 2), (20, 18, 18)):
        config = run_config(toy("ppo", **{"trainer.eval_envs": given}))
        env = eval_env(config, 0, "eval", episodes, torch.device("cpu"))
        assert env.num_envs == expected
        env.close()


def test_number_of_environments_is_refused_where_it_is_that_of_tasks() -> None:
    values = toy("maml", **{"trainer.eval_envs": 4, "algo.loop.test_tasks": 3})
    with pytest.raises(ConfigError, match=r"^trainer\.eval_envs=4: must be null, because algo\.loop\.test_tasks=3 is"):
        check_requirements(run_config(values))


def test_interrupted_evaluation_raises() -> None:
    player = Player()
    with pytest.raises(EvaluationInterruptedError):
        evaluate(player, Addons(), Lengths([9]), 1, interrupted=lambda: len(player.calls) == 3)  # type: ignore[arg-type]
    assert len(player.calls) == 3


@pytest.mark.parametrize(("algo", "sampled"), [("sac", 0.0), ("ppo", 0.5), ("cem", 0.0)])
def test_evaluation_changes_nothing_of_the_run(
    algo: str, sampled: float, build: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    normalize = "obs" if algo == "cem" else "both"
    trainer = {"trainer.eval_episodes": 2, "trainer.eval_max_steps": 30, "trainer.eval_sampled": sampled}
    values = toy(algo, **{"env.normalize.kind": normalize, **trainer})
    loop = train(build(values), 1)
    trainer = make_trainer(run_config(values), loop, None, None, Signals(), Recorded("", ""))  # type: ignore[arg-type]
    before, generator, numpy_state = copy.deepcopy(loop.state_dict()), torch.get_rng_state(), np.random.get_state()[1]
    received: list[dict[str, float]] = []
    monkeypatch.setattr(loop.addons, "on_evaluation", received.append)
    first, second, elsewhere = trainer.evaluate(64), trainer.evaluate(64), trainer.evaluate(128)
    assert received == [first, second, elsewhere]
    assert first == second, "an evaluation starts from nothing but the seed and the step"
    assert algo == "cem" or first != elsewhere, "evaluations at other steps play other episodes"
    after = loop.state_dict()
    changed = [name for name in before if not same(before[name], after[name])]
    assert not changed
    assert torch.equal(generator, torch.get_rng_state()) and (np.random.get_state()[1] == numpy_state).all()


def same(some: Any, other: Any) -> bool:
    """Whether two states, which may hold arrays, are equal bit for bit."""
    if isinstance(some, np.ndarray):
        return some.dtype == other.dtype and np.array_equal(some, other)
    if isinstance(some, dict):
        return some.keys() == other.keys() and all(same(some[key], other[key]) for key in some)
    if isinstance(some, list):
        return len(some) == len(other) and all(map(same, some, other))
    return equal(some, other)
