"""What an environment may return in a step, and the lines about values that cannot be stored as they are."""

import re
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rlrun.envs.stepping.returned import ReturnedError, batched, check_observation, flag, fraction, reward
from rlrun.envs.stepping.slot import EnvSlot
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import RunError

Make = Callable[..., VectorEnv]
BYTES = spaces.Box(0, 255, (2,), np.uint8)
UNITS = spaces.Box(-1.0, 1.0, (2,), np.float32)
NESTED = spaces.Dict({"at": spaces.Discrete(5, start=1), "inner": spaces.Dict({"image": BYTES})})


@pytest.mark.parametrize(
    ("space", "obs", "line"),
    [
        (BYTES, np.full(2, 0.9), "its observation is float64 (2,), but its space declares uint8 (2,)"),
        (BYTES, np.array([3, 300]), "its observation[1] is 300, but its Box of uint8 has whole numbers from 0 to 255"),
        (BYTES, np.int8([3, -1]), "its observation[1] is -1, but its Box of uint8 has whole numbers from 0 to 255"),
        (spaces.Discrete(5), 5, "its observation is 5, but its Discrete of int64 has whole numbers from 0 to 4"),
        (spaces.Discrete(5), np.int64(-1), "its observation is -1, but its Discrete of int64 has whole numbers from 0"),
        (spaces.Discrete(5), 1.0, "its observation is float64 (), but its space declares int64 ()"),
        (spaces.MultiDiscrete([3, 4]), np.array([2, 4]), "its observation[1] is 4, but its MultiDiscrete of int64 has"),
        (
            spaces.MultiBinary(3),
            np.int8([1, 0, 2]),
            "its observation[2] is 2, but its MultiBinary of int8 has whole numbers from 0 to 1",
        ),
        (
            spaces.Box(0, 1, (1,), bool),
            [2],
            "its observation[0] is 2, but its Box of bool has whole numbers",
        ),
        (UNITS, 0.5, "its observation is float64 (), but its space declares float32 (2,)"),
        (UNITS, np.ones((1, 2)), "its observation is float64 (1, 2), but its space declares float32 (2,)"),
        (UNITS, None, "its observation is object (), but its space declares float32 (2,)"),
        (UNITS, ["0.1", "0.2"], "its observation is <U3 (2,), but its space declares float32 (2,)"),
        (NESTED, {"at": 0, "inner": {"image": BYTES.low}}, "its observation['at'] is 0, but its Discrete of int64 has"),
        (
            NESTED,
            {"at": 1, "inner": {"image": [0, 256]}},
            "its observation['inner']['image'][1] is 256, but its",
        ),
        (NESTED, {"at": 1, "inner": {}}, "its observation['inner'] has no entry 'image', which its space declares"),
        (NESTED, np.zeros(2), "its observation has no entry 'at', which its space declares"),
        (NESTED, None, "its observation has no entry 'at', which its space declares"),
    ],
)
def test_observation_that_its_space_cannot_hold_is_refused(space: spaces.Space, obs: Any, line: str) -> None:
    with pytest.raises(ReturnedError) as caught:
        check_observation(space, obs)
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (BYTES, np.array([0, 255])),
        (BYTES, [True, False]),
        (UNITS, np.array([5.0, -np.inf])),
        (UNITS, np.array([0.1, 0.2])),  # rounded to float32
        (UNITS, torch.zeros(2)),
        (UNITS, [0, 1]),
        (spaces.Discrete(5, start=-2), -2),
        (spaces.Discrete(2), True),
        (spaces.Discrete(5), np.array(4, np.int8)),
        (spaces.MultiDiscrete([[3], [4]], start=[[1], [0]]), np.array([[3], [3]])),
        (spaces.MultiBinary((2, 2)), np.eye(2, dtype=bool)),
        (NESTED, {"at": 5, "inner": {"image": BYTES.high}, "further": None}),
    ],
)
def test_observation_that_is_stored_unchanged_is_accepted(space: spaces.Space, obs: Any) -> None:
    check_observation(space, obs)


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        np.array([1.5]),
        np.array(1.5),
        np.float16(1.5),
        [1.5],
        torch.tensor([1.5]),
        torch.tensor(1.5).requires_grad_(),
    ],
    ids=repr,
)
def test_reward_of_one_element_is_a_number(value: Any) -> None:
    found = reward(value, ())
    assert type(found) is float and found == 1.5


@pytest.mark.parametrize(
    ("value", "shape", "line"),
    [
        (None, (), "its reward is None instead of being a number"),
        ("1.5", (), "its reward is '1.5' instead of being a number"),
        (b"1.5", (), "its reward is b'1.5' instead of being a number"),
        (1.5j, (), "its reward is 1.5j instead of being a number"),
        ({"a": 1.5}, (), "its reward is {'a': 1.5} instead of being a number"),
        (np.array(["1.5"]), (), "its reward has shape (1,) instead of being a number"),
        ([[1.0], [1.0, 2.0]], (), "its reward is [[1.0], [1.0, 2.0]] instead of being a number"),
        ([1.0, 2.0], (), "its reward has shape (2,), but it has no reward_space"),
        ([], (), "its reward has shape (0,), but it has no reward_space"),
        (1.0, (2,), "its reward has shape (), but its reward_space declares (2,)"),
        ([None, 1.0], (2,), "its reward is [None, 1.0] instead of numbers of shape (2,)"),
    ],
)
def test_reward_that_is_no_number_is_refused(value: Any, shape: tuple[int, ...], line: str) -> None:
    with pytest.raises(ReturnedError) as caught:
        reward(value, shape)
    assert str(caught.value) == line


@pytest.mark.parametrize("of", [bool, int, float, np.bool_, lambda value: [value], lambda value: torch.tensor([value])])
def test_flags_are_bools_zeros_ones_or_one_element(of: Callable[[bool], Any]) -> None:
    assert flag("terminated", of(True)) is True and flag("terminated", of(False)) is False


@pytest.mark.parametrize("value", ["False", None, 2, np.array([True, False])], ids=repr)
def test_flag_that_is_neither_true_nor_false_is_refused(value: Any) -> None:
    with pytest.raises(ReturnedError, match=r"terminated (is|has shape) .* instead of being"):
        flag("terminated", value)


def test_fractions_are_flags_or_numbers_from_0_to_1() -> None:
    assert [fraction("success", value) for value in (True, np.array([False]), 0.25, 1)] == [1.0, 0.0, 0.25, 1.0]
    for value in ("yes", 2, -0.1, np.nan, [True, True]):
        with pytest.raises(ReturnedError, match=r"success (is|has shape) .* instead of being"):
            fraction("success", value)


class Drift(gym.Env):
    """Returns good values at the reset and the given ones in steps."""

    observation_space, action_space = spaces.Discrete(5), spaces.Discrete(2)

    def __init__(self, obs: Any = 0, reward: Any = 0.0, terminated: Any = False):
        self.returned = obs, reward, terminated, False, {}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return self.returned


gym.register("rlrun-tests/Drift-v0", Drift)
NONE = np.zeros(2, bool)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_line_about_a_returned_value_names_environment_seed_and_step(make: Make, backend: str) -> None:
    env = make("rlrun-tests/Drift-v0", backend=backend, selftest="off", kwargs={"obs": 5})
    env.reset()
    with pytest.raises(
        RunError, match=r"^env rlrun-tests/Drift-v0 #0, seed \d+, step 1: its observation is 5, but its"
    ):
        env.step(torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize("wrappers", [{}, {"own_reward": {}}], ids=["training", "evaluation"])
@pytest.mark.parametrize(
    ("given", "line"), [({"reward": None}, "its reward is None"), ({"terminated": "no"}, "its terminated is 'no'")]
)
def test_reward_and_ends_are_checked_in_steps(make: Make, wrappers: Any, given: dict[str, Any], line: str) -> None:
    env = make("rlrun-tests/Drift-v0", selftest="off", kwargs=given, wrappers=wrappers)
    env.reset()
    with pytest.raises(RunError, match=f"seed .*, step 1: {line} instead of being"):
        env.step(torch.zeros(1, dtype=torch.long))


def vector_step(monkeypatch: pytest.MonkeyPatch, infos: Any, mode: Any = AutoresetMode.SAME_STEP, **given: Any) -> Any:
    """Steps a vector env of two environments that returns the given values, or else good ones."""
    venv: Any = gym.vector.SyncVectorEnv([Drift, Drift], autoreset_mode=mode)
    env = VectorEnv(venv, np.random.SeedSequence(0), name="two")
    env.reset()
    returned = {"obs": env.venv.reset()[0], "reward": np.zeros(2), "terminated": NONE, "truncated": NONE} | given
    monkeypatch.setattr(venv, "step", lambda actions: (*returned.values(), infos))
    return env.step(torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"obs": np.array([0, 5])}, "its observation[1] is 5, but its MultiDiscrete of int64 has whole numbers"),
        ({"reward": np.zeros((2, 1))}, "its reward is float64 (2, 1), but must be numbers (2,)"),
        ({"reward": np.zeros(1)}, "its reward is float64 (1,), but must be numbers (2,)"),
        ({"reward": np.array([1.0, None])}, "its reward is object (2,), but must be numbers (2,)"),
        ({"reward": [0.0, 0.0]}, "its reward is a list, but must be an array of shape (2,)"),
        ({"terminated": np.array([0, 1])}, "its terminated is int64 (2,), but must be bool (2,)"),
        ({"truncated": np.zeros((2, 1), bool)}, "its truncated is bool (2, 1), but must be bool (2,)"),
        ({"infos": {"success": np.array([np.nan, 3.0])}}, "success in its infos is 3.0 instead of being True, False"),
        ({"infos": {"success": np.zeros((2, 3))}}, "success in its infos is float64 (2, 3), but must be numbers (2,)"),
        (
            {"obs": np.array([0, 5]), "terminated": ~NONE, "mode": AutoresetMode.DISABLED},
            "its observation[1] is 5, but its MultiDiscrete",
        ),
        (
            {"terminated": ~NONE, "infos": {"final_obs": np.array([0, 5])}},
            "its observation is 5, but its Discrete of int64",
        ),
    ],
)
def test_step_of_a_vector_env_is_checked(monkeypatch: pytest.MonkeyPatch, given: Any, line: str) -> None:
    with pytest.raises(RunError, match=re.escape(f"env two, step 1: {line}")):
        vector_step(monkeypatch, **{"infos": {}} | given)


@pytest.mark.parametrize("number", [np.int64, np.float16, np.bool_])
def test_rewards_of_a_vector_env_have_any_numeric_dtype(monkeypatch: pytest.MonkeyPatch, number: Any) -> None:
    infos = {"success": np.array([True, None]), "_success": np.array([True, False])}
    assert vector_step(monkeypatch, infos, reward=np.ones(2, number))[0]["reward"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("space", "good", "line"),
    [
        (spaces.MultiBinary((2, 2)), 1, "[1][0][0] is 4, but its MultiBinary of int8 has whole numbers from 0 to 1"),
        (
            spaces.MultiDiscrete([2, 3], start=[1, 1]),
            2,
            "[1][0] is 4, but its MultiDiscrete of int64 has whole numbers from 1 to 2",
        ),
    ],
)
def test_vector_env_has_the_values_of_its_environments(space: Any, good: int, line: str) -> None:
    batch = batched(spaces.Dict({"a": space}), 2)
    obs = np.full((2, *space.shape), good, space.dtype)
    check_observation(batch, {"a": obs})
    obs[1] = 4
    with pytest.raises(ReturnedError, match=re.escape(f"its observation['a']{line}")):
        check_observation(batch, {"a": obs})


class Infos(Drift):
    """Steps have the given infos in turn. Episodes end after two steps."""

    def __init__(self, *infos: dict[str, Any]):
        self.infos, self.count = infos, 0

    def step(self, action: Any) -> Any:
        self.count += 1
        return 0, 0.0, self.count % 2 == 0, False, self.infos[self.count % len(self.infos)]


def logged(log_info: tuple[str, ...], *infos: dict[str, Any], index: int = 0) -> list[tuple[str, float]]:
    slot = EnvSlot(lambda: Infos(*infos), index, log_info=log_info)
    slot.reset()
    return [entry for _ in range(4) for entry in slot.advance(0)[4].get("logged", ())]


def test_logged_info_counts_steps_that_report_it_and_success_counts_all() -> None:
    assert logged(("speed",), {}, {"speed": np.array([3.0])}) == [("speed", 3.0)] * 2
    assert logged(("is_success",), {}, {"is_success": True}) == [("is_success", 1.0), ("is_success", 0.0)] * 2


def test_logged_info_that_no_step_of_the_first_episode_has_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    for index in range(2):  # the first of several environments speaks for all
        assert (
            logged(("sped", "energy", "at"), {"speed": 1.0}, {"speed": 1.0, "at": 2.0}, index=index)
            == [("at", 2.0)] * 2
        )
    assert [record.getMessage() for record in caplog.records] == [
        "env.log_info: no info of the first episode has 'energy'; they have at, speed",
        "env.log_info: no info of the first episode has 'sped'; did you mean speed?",
    ]
