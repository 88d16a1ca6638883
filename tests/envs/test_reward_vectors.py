"""Reward vectors: every path from an environment to a step, computed by hand, and the errors."""

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rlrun.envs.recording import EpisodeRecorder
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError, RunError

Make = Callable[..., VectorEnv]
FACTORS = [1.0, -2.0, 0.5]
IDLE = torch.zeros(2, dtype=torch.long)


def stepped(env: VectorEnv, steps: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Returns rewards [time, env, components], weights [time, env], and the episodes that ended."""
    env.reset()
    seen = [env.step(IDLE) for _ in range(steps)]
    rewards, weights = ([step[name].tolist() for step, _ in seen] for name in ("reward", "weight"))
    return rewards, weights, [episode[:2] for _, events in seen for episode in events.episodes]


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_reward_vectors_are_those_of_each_environment(backend: str, make: Make) -> None:
    env = make("rlrun/Counter-v0", 2, backend=backend, kwargs={"length": 3, "factors": FACTORS})
    assert env.spec.reward_dim == env.spec.own_rewards == 3
    rewards, _, episodes = stepped(env, 7)
    times = [1, 2, 3, 1, 2, 3, 1]
    assert rewards == [[[t * part for part in FACTORS]] * 2 for t in times], (
        "copied, for the next step writes here again"
    )
    assert episodes == [([6.0, -12.0, 3.0], 3)] * 4


class Simulator(gym.vector.VectorEnv):
    """Two counters at once, of 2 and 3 steps, with reward vectors, in any of Gymnasium's modes."""

    single_observation_space, single_action_space = spaces.Box(0, 9, (1,)), spaces.Discrete(2)
    reward_space = spaces.Box(-np.inf, np.inf, (3,))
    num_envs = 2

    def __init__(self, mode: AutoresetMode):
        self.metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": mode}
        self.observation_space = batch_space(self.single_observation_space, 2)
        self.action_space = batch_space(self.single_action_space, 2)
        self.t = np.zeros(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t[(options or {}).get("reset_mask", slice(None))] = 0
        return self._obs(), {}

    def step(self, actions: Any) -> Any:
        next_step = self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        resetting = (self.t >= [2, 3]) & next_step
        self.t = np.where(resetting, 0, self.t + 1)
        reward, ended = self.t[:, None] * FACTORS, self.t >= [2, 3]
        infos = {}
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and ended.any():
            final = [obs if over else None for obs, over in zip(self._obs(), ended, strict=True)]
            infos["final_obs"] = np.array([*final, None], object)[:2]
            self.t[ended] = 0
        return self._obs(), reward, ended, np.zeros(2, bool), infos

    def _obs(self) -> np.ndarray:
        return self.t[:, None].astype(np.float32)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_reward_vectors_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    env = VectorEnv(Simulator(mode), np.random.SeedSequence(0))
    rewards, weights, episodes = stepped(env, 6)
    two, three = ([3.0, -6.0, 1.5], 2), ([6.0, -12.0, 3.0], 3)
    if mode is AutoresetMode.NEXT_STEP:
        assert [row[0][0] for row in rewards] == [1, 2, 0, 1, 2, 0] and [row[0] for row in weights] == [1, 1, 0] * 2
        assert episodes == [two, three, two]
    else:
        assert [row[0] for row in rewards] == [[t * part for part in FACTORS] for t in (1, 2) * 3]
        assert episodes == [two, three, two, two, three]


def test_reward_vectors_of_masked_rows_are_zero(make: Make) -> None:
    env = make("rlrun/Counter-v0", 2, kwargs={"factors": FACTORS})
    env.reset()
    env.step(IDLE)
    saved = env.get_extra_state()
    other = make("rlrun/Counter-v0", 2, kwargs={"factors": FACTORS})
    other.set_extra_state(saved | {"envs": None})  # as saved for environments whose state cannot be saved
    step, _ = other.step(IDLE)
    assert step["reward"].tolist() == [[0.0] * 3] * 2 and step["weight"].tolist() == [0, 0]
    simulator = VectorEnv(Simulator(AutoresetMode.SAME_STEP), np.random.SeedSequence(0))
    simulator.set_extra_state({"steps": 3, "seeds": [0, 1], "obs": np.zeros((2, 1)), "envs": None,
                               "returns": np.zeros((2, 3)), "begun": np.zeros(2, int)})  # fmt: skip
    assert simulator.step(IDLE)[0]["reward"].shape == (2, 3)


def test_reward_vector_returns_continue_after_a_restore(make: Make) -> None:
    env, other = (make("rlrun/Counter-v0", 2, kwargs={"length": 3, "factors": FACTORS}) for _ in range(2))
    assert env.method == other.method == "native"
    env.reset()
    env.step(IDLE)
    other.set_extra_state(env.get_extra_state())
    other.step(IDLE)
    assert [episode[:2] for episode in other.step(IDLE)[1].episodes] == [([6.0, -12.0, 3.0], 3)] * 2


class Wrong(gym.Env):
    """Declares one reward space and returns rewards of another."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def __init__(self, says: list[int] | None, reward: Any):
        self.reward_space = None if says is None else spaces.Box(0, 1, says)
        self.reward = reward

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), np.array(self.reward), False, False, {}


gym.register("rlrun-tests/Wrong-v0", Wrong)


@pytest.mark.parametrize("reward", [1.0, [1.0], [1.0, 2.0]])
def test_another_reward_than_was_announced_is_a_fault_of_the_environment(reward: Any, make: Make) -> None:
    env = make("rlrun-tests/Wrong-v0", 2, selftest="off", kwargs={"says": [3], "reward": reward})
    env.reset()
    with pytest.raises(RunError, match=r"#0, seed \d+, step 1: its reward has shape .*, but its reward_space declares"):
        env.step(IDLE)


def test_a_vector_that_was_not_announced_is_a_fault_of_the_environment(make: Make) -> None:
    env = make("rlrun-tests/Wrong-v0", 2, selftest="off", kwargs={"says": None, "reward": [1.0, 2.0]})
    env.reset()
    with pytest.raises(RunError, match=r"#0, .*its reward has shape \(2,\), but it has no reward_space"):
        env.step(IDLE)


@pytest.mark.parametrize("says", [[1], [2, 2]])
def test_matrices_and_vectors_of_one_are_refused(says: list[int], make: Make) -> None:
    with pytest.raises(ConfigError, match="a reward vector must have at least two components"):
        make("rlrun-tests/Wrong-v0", selftest="off", kwargs={"says": says, "reward": 0.0})


def test_a_component_that_is_no_number_is_named(make: Make) -> None:
    env = make("rlrun/Counter-v0", 2, kwargs={"factors": [1.0, float("nan")]})
    env.reset()
    with pytest.raises(RunError, match=r"#0, .*: reward\[1\] is nan"):
        env.step(IDLE)


def test_linear_reward_weighs_a_reward_vector(make: Make) -> None:
    env = make(
        "rlrun/Counter-v0", 2, kwargs={"factors": FACTORS}, wrappers={"linear_reward": {"weights": [1.0, 0.25, 2.0]}}
    )
    rewards, _, episodes = stepped(env, 3)
    assert env.spec.reward_dim == 1 and rewards == [[1.5 * t] * 2 for t in (1, 2, 3)]
    assert episodes == [(9.0, 3)] * 2
    with pytest.raises(ConfigError, match=r"linear_reward: 2 weights for rewards of shape \(3,\)"):
        make("rlrun/Counter-v0", kwargs={"factors": FACTORS}, wrappers={"linear_reward": {"weights": [1.0, 1.0]}})
    with pytest.raises(ConfigError, match=r"linear_reward: 1 weights for rewards of shape \(\)"):
        make("rlrun/Counter-v0", wrappers={"linear_reward": {"weights": [1.0]}})


def test_episode_recorder_keeps_reward_vectors(make: Make) -> None:
    kept: list[dict[str, Any]] = []
    env = EpisodeRecorder(gym.make("rlrun/Counter-v0", factors=[1.0, -2.0], disable_env_checker=True), 1, kept.append)
    env.reset()
    for _ in range(3):
        env.step(0)
    assert np.array(kept[0]["rewards"]).tolist() == [[1, -2], [2, -4], [3, -6]]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of its spaces, and of its own
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_reward_vectors_of_mo_gymnasium(backend: str, make: Make) -> None:
    pytest.importorskip("mo_gymnasium")
    env = make("mo_gymnasium:deep-sea-treasure-v0", 2, backend=backend)
    assert env.spec.reward_dim == 2
    env.reset()
    down_and_right = torch.tensor([1, 3])  # down, to the smallest treasure
    step, events = env.step(down_and_right)
    assert step["reward"][0].tolist() == pytest.approx([0.7, -1.0])
    assert events.episodes[0][:2] == ([pytest.approx(0.7), -1.0], 1)
    step, _ = env.step(down_and_right)
    assert step["reward"][1].tolist() == [0.0, -1.0]
