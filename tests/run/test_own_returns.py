"""Evaluation returns sum the environment's own rewards, independently of wrappers and normalisation."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from toys import put, toy, train

from rlrun.cli import main
from rlrun.config.schema import run_config
from rlrun.core.addon import Addons
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.envs.wrappers.wrapper import Wrapper
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_agent, build_loop, eval_env
from rlrun.run.evaluation import evaluate
from rlrun.settings import config, register


class Configured:
    """A wrapper with one setting, `factor`."""

    @config
    class Config:
        factor: float

    def __init__(self, cfg: Any, env: gym.Env):
        super().__init__(env)  # type: ignore[call-arg]
        self.factor = cfg.factor


@register("wrapper", "test_scaled")
class Scaled(Configured, gym.RewardWrapper):
    def reward(self, reward: Any) -> Any:
        return reward * self.factor


@register("wrapper", "test_summed")
class Summed(Configured, gym.Wrapper):
    """A user's wrapper that turns a reward vector into one number."""

    reward_space = None

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        return obs, self.factor * float(np.sum(reward)), *rest


@register("wrapper", "test_hurried")
class Hurried(Configured, gym.Wrapper):
    """Two idle steps at the start of an episode, two steps for every action, and rewards clipped to [-1, 1]."""

    def reset(self, **given: Any) -> Any:
        self.env.reset(**given)
        self.env.step(0)
        return self.env.step(0)[0], {}

    def step(self, action: Any) -> Any:
        _, first, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            return _, np.clip(first, -1, 1), terminated, truncated, info
        obs, second, *rest = self.env.step(action)
        return obs, np.clip(first + second, -1, 1), *rest


@register("wrapper", "test_shaped")
class Shaped(Configured, Wrapper, gym.RewardWrapper):
    training_only = True

    def reward(self, reward: Any) -> Any:
        return reward + self.factor


@register("wrapper", "test_other_space")
class OtherSpace(Configured, Wrapper):
    training_only = True

    def __init__(self, cfg: Any, env: gym.Env):
        super().__init__(cfg, env)
        self.observation_space = spaces.Box(0, 1, (7,))


def evaluated(values: Any, episodes: int = 3) -> dict[str, float]:
    """Evaluates an untrained agent of these values."""
    cfg = run_config(values)
    env = eval_env(cfg, 0, "eval", episodes, torch.device("cpu"))
    try:
        agent, addons = build_agent(cfg, env.spec, torch.device("cpu"))
        return evaluate(agent, addons, env, episodes)
    finally:
        env.close()


def counter(*factors: float, **wrappers: Any) -> Any:
    """Returns an environment with episodes of 6 steps; step t has the reward t, or t times each of `factors`."""
    kwargs = {"length": 6} | ({"factors": [*factors]} if factors else {})
    return toy("ppo", **{"env.id": "rlrun/Counter-v0", "env.kwargs": kwargs, "env.wrappers": wrappers})


@pytest.mark.parametrize("order", [["test_scaled"], ["test_scaled", "frame_stack"], ["frame_stack", "test_scaled"]])
def test_evaluation_returns_ignore_reward_wrappers(order: list[str]) -> None:
    settings = {"test_scaled": {"factor": 0.1}, "frame_stack": {"stack": 2}}
    wrapped = toy("sac", **{"env.wrappers": {name: settings[name] for name in order}})
    bare = put(wrapped, {"env.wrappers": {name: settings[name] for name in order if name != "test_scaled"}})
    assert evaluated(wrapped) == evaluated(bare), "to the last bit"


def test_training_counts_rewards_as_the_agent_gets_them(make_env: Any) -> None:
    values = counter(test_scaled={"factor": 10.0})
    env = make_env("rlrun/Counter-v0", kwargs=values["env"]["kwargs"], wrappers=values["env"]["wrappers"])
    env.reset()
    for _ in range(6):
        _, events = env.step(torch.zeros(1, dtype=torch.long))
    assert events.episodes[0][:2] == (210.0, 6)
    assert evaluated(values)["eval/return_mean"] == 21


def test_evaluation_returns_ignore_reward_normalisation(build: Any) -> None:
    values = toy("sac", **{"env.normalize.kind": "reward"})
    loop = train(build(values), 4)
    batch = {"reward": torch.ones(8), "weight": torch.ones(8)}
    assert not torch.equal(loop.addons.relabel(dict(batch))["reward"], batch["reward"]), "the agent learns from others"
    found = []
    for addons in (loop.addons, Addons()):
        env = eval_env(run_config(values), 0, "eval", 3, torch.device("cpu"))
        found.append(evaluate(loop.agent, addons, env, 3))
        env.close()
    assert found[0] == found[1]


def test_skipped_steps_count_and_idle_steps_of_a_reset_do_not() -> None:
    found = evaluated(counter(test_hurried={"factor": 1.0}))
    assert found["eval/return_mean"] == 3 + 4 + 5 + 6 and found["eval/length_mean"] == 2


def test_own_returns_come_from_workers_too(make_env: Any) -> None:
    wrappers = {"own_reward": {}, "time_limit": {"max_steps": 3}}
    env = make_env("rlrun/Counter-v0", 2, backend="async", kwargs={"length": 6}, wrappers=wrappers)
    env.reset()
    found = [env.step(torch.zeros(2, dtype=torch.long))[1].own_returns for _ in range(3)]
    assert {index: total.tolist() for index, total in found[2].items()} == {0: [6.0], 1: [6.0]}
    assert not found[0]


def test_components_of_a_reward_vector_are_the_environments_own() -> None:
    values = counter(1.0, -2.0, test_scaled={"factor": 0.1})
    values["algo"]["reward_weights"] = {"name": "fixed", "weights": [1.0, 0.25], "gamma": None}
    found = evaluated(values)
    assert (found["eval/return_mean_0"], found["eval/return_mean_1"]) == (21, -42)
    assert found["eval/return_mean"] == 21 - 42 / 4


@pytest.mark.parametrize(
    ("wrappers", "returned"),
    [
        ({"linear_reward": {"weights": [1.0, 0.25]}}, 10.5),
        ({"linear_reward": {"weights": [1.0, 0.25]}, "test_scaled": {"factor": 0.1}}, 10.5),
        ({"test_scaled": {"factor": 2.0}, "linear_reward": {"weights": [1.0, 0.25]}}, 21.0),
        ({"test_summed": {"factor": 1.0}}, -21.0),
    ],
)
def test_what_a_wrapper_makes_of_a_reward_vector_counts(wrappers: Any, returned: float) -> None:
    assert evaluated(counter(1.0, -2.0, **wrappers))["eval/return_mean"] == returned


def test_training_only_wrappers_are_left_out_of_evaluation(make_env: Any) -> None:
    values = counter(frame_stack={"stack": 2}, test_shaped={"factor": -100.0})
    cfg = run_config(values)
    training = VectorEnv.make(cfg.env, np.random.SeedSequence(0))
    measuring = eval_env(cfg, 0, "eval", 1, torch.device("cpu"))
    for env, reward in ((training, -99.0), (measuring, 1.0)):
        env.reset()
        assert env.step(torch.zeros(env.num_envs, dtype=torch.long))[0]["reward"][0] == reward
        env.close()
    assert evaluated(values)["eval/return_mean"] == 21


def test_a_training_only_wrapper_must_keep_the_spaces() -> None:
    values = counter(test_other_space={"factor": 1.0})
    with pytest.raises(ConfigError, match=r"OtherSpace is training_only, but changes the observation space") as caught:
        build_loop(run_config(values))
    assert "\n" not in str(caught.value)


def test_eval_of_a_run_prints_own_returns(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "env=CartPole",
        "env.wrappers.test_scaled.factor=0.01",
        "trainer.total_steps=64",
        "trainer.eval_episodes=1",
    ]
    assert main(["train", "algo=ppo", *words, "logger=[]", "run_dir=run"]) == 0
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    measured = [row["eval/return_mean"] for row in rows if "eval/return_mean" in row]
    assert measured and all(value >= 8 for value in measured), "one for each step"
    capsys.readouterr()
    assert main(["eval", "run", "episodes=2"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["returns"] == result["lengths"]
