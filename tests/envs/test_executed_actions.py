"""The action that an environment really took, where its infos name it (`env.executed_action`)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from toys import put, toy

from rlrun.cli import main
from rlrun.core.loop import Loop
from rlrun.envs.recording import EpisodeRecorder
from rlrun.envs.stepping.actions import conversion
from rlrun.envs.stepping.executed import read, replaced
from rlrun.envs.stepping.returned import ReturnedError
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import RunError
from rlrun.settings import config, register

Make = Callable[..., VectorEnv]
Build = Callable[..., Loop]
ARM = Dict({"gear": Discrete(3, start=1), "arm": Tuple([Box(-2.0, 2.0, (2,), np.float32)])})


@register("wrapper", "test_overruled")
class Overruled(gym.Wrapper):
    """Takes minus half of the action, and tells it in 64 bits."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)

    def step(self, action: Any) -> Any:
        taken = -0.5 * np.asarray(action, np.float64)
        obs, reward, terminated, truncated, info = self.env.step(taken)
        return obs, reward, terminated, truncated, info | {"taken": taken}


OVERRULED: Any = {"env.wrappers": {"test_overruled": {}}, "env.executed_action": "taken", "env.max_episode_steps": 3}


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_steps_hold_the_action_that_the_environment_took(backend: str, make: Make) -> None:
    own = {"backend": backend, "max_episode_steps": 3, "wrappers": {"test_overruled": {}}}
    env = make("Pendulum-v1", 2, executed_action="taken", **own)
    env.reset()
    action = torch.tensor([[1.0], [-3.0]])  # in units of [-1, 1]; the second one is cut
    ends = []
    for _ in range(3):
        step, _ = env.step(action)
        assert torch.equal(step["executed"], torch.tensor([[-0.5], [0.5]]))
        ends.append(bool(step["truncated"].all()))
    assert ends == [False, False, True]


def test_an_environment_that_failed_took_the_action_of_the_agent(make: Make) -> None:
    own = {"backend": "async", "on_failure": "restart", "wrappers": {"test_overruled": {}}}
    env = make("Pendulum-v1", 2, executed_action="taken", **own)
    env.reset()
    os.kill(env.pool.processes[1].pid, 9)
    step, _ = env.step(torch.ones(2, 1))
    assert (step["executed"].tolist(), step["weight"].tolist()) == ([[-0.5], [1.0]], [1.0, 0.0])


@pytest.mark.parametrize("warmup", [0, 100])
def test_replay_and_the_previous_action_are_what_the_environment_took(warmup: int, build: Build) -> None:
    loop: Any = build(toy("kl_sac", **OVERRULED, **{"algo.loop.warmup_steps": warmup, "algo.buffer.capacity": 100}))
    chosen = []
    step_env = loop.env.step

    def step(action: torch.Tensor) -> Any:
        chosen.append(action)
        return step_env(action)

    loop.env.step = step
    for _ in range(12):
        loop.tick()
    batch = loop.buffer.stored()
    torch.testing.assert_close(batch["action"], -0.5 * torch.cat(chosen))
    starts = batch["is_first"] > 0
    assert int(starts.sum()) == 8
    before = torch.cat([torch.zeros(2, 1), batch["action"][:-2]])
    assert torch.equal(batch["previous_action"], torch.where(starts.unsqueeze(1), 0.0, before))
    assert torch.equal(batch["carry.action"], batch["action"])


def test_executed_actions_have_the_dtypes_of_the_space_and_lie_in_it() -> None:
    space = Box(-2.0, 2.0, (1,), np.float32)
    found: Any = read("taken", space, {"taken": np.array([0.1])})
    assert found.dtype == np.float32 and found == np.float32(0.1)
    assert read("taken", Discrete(3), {"taken": 2.0}) == 2
    nested: Any = read("taken", ARM, {"taken": {"gear": 3, "arm": ([1, -2],)}})
    assert nested["gear"] == 3 and nested["arm"][0].tolist() == [1.0, -2.0]
    for where, wrong in ((space, [2.5]), (space, [np.nan]), (space, [0.0, 0.0]), (space, "left"), (Discrete(3), 3),
                         (Discrete(3), 1.5), (ARM, {"gear": 1}), (ARM, (1, 2))):  # fmt: skip
        with pytest.raises(ReturnedError, match=r"env\.executed_action: info\['taken'\] is .*, which is not in"):
            read("taken", where, {"taken": wrong})
    with pytest.raises(ReturnedError, match=r"env\.executed_action: its infos have no 'token'; did you mean taken\?"):
        read("token", space, {"taken": [0.0]})


def test_executed_actions_of_nested_spaces_are_in_units_of_the_agent() -> None:
    actions = conversion(ARM)
    given = np.zeros((2, 3), np.float32)
    action: Any = {"gear": np.array(3), "arm": (np.array([1.0, -2.0], np.float32),)}
    found = replaced(given, [None, action], actions)
    assert found.tolist() == [[0.0, 0.0, 0.0], [2.0, 0.5, -1.0]]
    assert not given.any(), "the array of the agent is left as it is"
    assert replaced(given, None, actions) is given


def test_a_missing_executed_action_ends_the_run_in_one_line(make: Make) -> None:
    env = make("Pendulum-v1", executed_action="taken")
    assert env.exactness == "exact", "the self-test does not need it"
    env.reset()
    with pytest.raises(RunError, match=r"env\.executed_action: its infos have no 'taken'"):
        env.step(torch.ones(1, 1))


def test_recorded_episodes_hold_the_executed_action() -> None:
    kept: list[Any] = []
    env = gym.wrappers.TimeLimit(Overruled(None, gym.make("Pendulum-v1")), 2)  # type: ignore[arg-type]
    recorder = EpisodeRecorder(env, 1, kept.append, "taken")
    recorder.reset(seed=0)
    for _ in range(2):
        recorder.step(np.array([2.0], np.float32))
    assert np.asarray(kept[0]["actions"]).tolist() == [[-1.0], [-1.0]]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["algo=ppo"], "is not supported by algo.loop=onpolicy, which learns from the actions that its agent chose"),
        (["algo=taac"], "is not supported by algo=taac, which learns from trajectories that begin with the action"),
        (["algo=sac_hold"], "env.wrappers.hold: is not supported with env.executed_action=taken"),
        (["algo=sac", "env.backend=torch"], "env.executed_action: is not supported by Pendulum-v1, which steps all"),
    ],
)
def test_executed_actions_are_refused_where_they_would_not_fit(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["train", "env=Pendulum", "env.executed_action=taken", *words, f"run_dir={run}"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert line in error
    assert not run.exists()


def test_shards_store_the_action_that_the_environment_took(build: Build) -> None:
    loop: Any = build(put(toy("kl_sac", **OVERRULED), {"algo.loop.shards": 2}))
    step = loop.collect()[0]
    torch.testing.assert_close(step["executed"], -0.5 * step["action"])
    assert torch.equal(loop.carry["carry.action"], step["executed"])
