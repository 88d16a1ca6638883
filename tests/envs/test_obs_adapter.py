"""Tuples and action masks, from the environment to tensors, buffers and snapshots."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from probe_spaces import OBSERVATIONS
from toys import equal, toy

from rlrun.core.addon import Addons
from rlrun.core.loop import Loop
from rlrun.envs.same_spaces import observations
from rlrun.envs.stepping.actions import conversion
from rlrun.envs.stepping.obs_adapter import as_tensors, read_mask
from rlrun.envs.stepping.returned import ReturnedError
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError, RunError
from rlrun.run.assemble import check_sizes
from rlrun.run.policy import Policy
from rlrun.types import MASK, Spec

Make = Callable[..., VectorEnv]
PROBE = "rlrun/ProbeSpaces-v0"


def test_tuple_observations_become_dicts_keyed_by_position(make_env: Make) -> None:
    env = make_env(PROBE, 2, kwargs={"observation": "tuple"})
    assert env.spec.obs["0"] == spaces.Discrete(2) and [*env.spec.obs["1"]] == ["0", "1"]
    obs = env.reset()
    bit = obs["0"]
    assert obs["1"]["0"].tolist() == [[2 * b - 1] * 2 for b in bit.tolist()]
    assert (obs["1"]["1"] == 255 * bit.view(2, 1, 1, 1)).all()
    assert obs["1"]["1"].dtype == torch.uint8


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_observations_without_a_fixed_shape_are_refused_in_one_line(space: spaces.Space) -> None:
    name = type(space).__name__
    with pytest.raises(ConfigError, match=f"^env: {name} observations are not supported: .* returns a Box") as error:
        as_tensors(space)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=rf"{name} observations .*; env.wrappers.hide.entries=\[task\] leaves this"):
        as_tensors(spaces.Dict({"at": spaces.Discrete(5), "task": space}))


def test_next_obs_of_a_tuple_observation_is_the_true_successor(make_env: Make) -> None:
    env = make_env("Blackjack-v1", 1)
    env.reset()
    terminated = False
    while not terminated:
        step, _ = env.step(torch.ones(1, dtype=torch.int64))
        terminated = bool(step["terminated"])
    assert step["next_obs"]["0"] > 21 >= step["following"]["0"], "bust, and a new hand"


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_every_observation_space_is_stepped_and_restored_from_a_snapshot(
    make_env: Make, observation: str, backend: str
) -> None:
    given = {"kwargs": {"observation": observation, "masks": "info"}, "backend": backend}
    env, other = make_env(PROBE, 2, **given), make_env(PROBE, 2, seed=1, **given)
    assert env.method == other.method == "native"
    env.reset()
    other.reset()
    other.load_state_dict(env.state_dict())
    assert equal(env.obs, other.obs)
    for _ in range(3):
        action = env.obs[MASK].argmax(-1)
        step, same = env.step(action)[0], other.step(action)[0]
        assert equal(
            [step["following"], step["reward"], step["next_obs"]], [same["following"], same["reward"], same["next_obs"]]
        )


@pytest.mark.parametrize("masks", ["info", "obs"])
@pytest.mark.parametrize(
    ("action", "forbidden"),
    [("discrete", 1), ("multi_discrete", 2), ("multi_binary", None)],
)
def test_action_masks_from_info_or_obs_have_one_entry_per_choice(
    make_env: Make, masks: str, action: str, forbidden: int | None
) -> None:
    if (masks, action) == ("obs", "multi_binary"):
        pytest.skip("the probe shows masks of bits in its infos alone")
    env = make_env(PROBE, 3, kwargs={"action": action, "masks": masks})
    obs = env.reset()
    assert obs.keys() == {"seen" if masks == "obs" else "obs", MASK}
    if forbidden is None:  # bits that must be 0
        bit = (obs["obs"][:, 0] > 0).long()
        assert obs[MASK].tolist() == [[1, b, 1, b] for b in bit.tolist()]
    else:
        assert (obs[MASK] == 0).sum(-1).tolist() == [forbidden] * 3


def test_probe_raises_at_an_action_that_its_mask_forbids(make_env: Make) -> None:
    env = make_env(PROBE, 1, kwargs={"masks": "info"})
    obs = env.reset()
    with pytest.raises(RunError, match="forbidden"):
        env.step(obs[MASK].argmin(-1))


BOTH = spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,)), spaces.MultiBinary(1)])


@pytest.mark.parametrize(
    ("space", "mask", "read"),
    [
        (spaces.Discrete(3), np.array([True, False, True]), [1, 0, 1]),
        (spaces.Discrete(3, start=1), [1.0, 0.0, 0.0], [1, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), (np.array([1, 0]), np.array([0, 1, 1])), [1, 0, 0, 1, 1]),
        (spaces.MultiDiscrete([2, 2]), np.eye(2, dtype=bool), [1, 0, 0, 1]),
        (spaces.MultiBinary(2), [2, 1], [1, 1, 0, 1]),
        (spaces.MultiBinary(2), [1, 1, 0, 1], [1, 1, 0, 1]),
        (BOTH, ([0, 1], None, [0]), [0, 1, 1, 0]),
        (BOTH, np.array([0, 1, 1, 0]), [0, 1, 1, 0]),
        (spaces.Discrete(2), None, [1, 1]),
    ],
)
def test_action_masks_of_any_form_become_one_vector_of_zeros_and_ones(space: Any, mask: Any, read: list[int]) -> None:
    found = read_mask(space, mask)
    assert found.tolist() == read and found.dtype == np.int8


@pytest.mark.parametrize(
    ("space", "mask", "line"),
    [
        (spaces.Discrete(2), [1] * 5, r"action_mask has 5 entries, Discrete\(2\) has 2 choices"),
        (spaces.Discrete(2), [0.0, -np.inf], r"action_mask\[1\] is -inf; a mask has 1 for allowed choices and 0 for"),
        (spaces.Discrete(2), [256, 0], r"action_mask\[0\] is 256"),
        (spaces.Discrete(2), [1, np.nan], r"action_mask\[1\] is nan"),
        (spaces.Discrete(2), [1, -1], r"action_mask\[1\] is -1"),
        (spaces.Discrete(2), [0, 0], "action_mask allows no action, but the episode is not terminated"),
        (spaces.MultiDiscrete([2, 3]), [1, 1, 0, 0, 0], "action_mask allows no action"),
        (BOTH, ([1, 1], None, [3]), r"action_mask of MultiBinary\(1\) is \[3\], not of 0, 1"),
    ],
)
def test_action_mask_that_is_unclear_or_allows_nothing_is_refused(space: Any, mask: Any, line: str) -> None:
    with pytest.raises(ReturnedError, match=line):
        read_mask(space, mask)


class Doors(gym.Env):
    """Door 1 is locked. The mask is given by a method, in all infos, or in those of steps. end: how the first step ends
    the episode, with a mask that allows nothing."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def __init__(self, masks: str, end: str = ""):
        self.masks, self.end = masks, end
        if masks == "method":
            self.action_masks = lambda: self.allowed

    def info(self) -> dict[str, Any]:
        return {} if self.masks == "method" else {MASK: self.allowed}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.allowed = np.array([True, False])
        return 0, {} if self.masks == "steps" else self.info()

    def step(self, action: Any) -> Any:
        if self.end:
            self.allowed = np.zeros(2, bool)
        return 0, 0.0, self.end == "terminated", self.end == "truncated", self.info()


gym.register("rlrun-tests/Doors-v0", Doors)


@pytest.mark.parametrize("selftest", ["auto", "off"])
@pytest.mark.parametrize("masks", ["method", "infos"])
def test_action_masks_come_from_infos_or_from_a_method(make_env: Make, masks: str, selftest: str) -> None:
    env = make_env("rlrun-tests/Doors-v0", 2, kwargs={"masks": masks}, selftest=selftest)
    assert (
        env.reset()[MASK].tolist()
        == env.step(torch.zeros(2, dtype=torch.long))[0]["following"][MASK].tolist()
        == [[1, 0]] * 2
    )


def test_action_masks_are_ignored_if_the_config_says_so(make_env: Make) -> None:
    env = make_env("rlrun-tests/Doors-v0", kwargs={"masks": "steps"}, selftest="off", action_mask=False)
    env.reset()
    assert isinstance(env.step(torch.zeros(1, dtype=torch.long))[0]["following"], torch.Tensor)


def test_action_masks_that_begin_after_the_reset_are_refused(make_env: Make) -> None:
    env = make_env("rlrun-tests/Doors-v0", kwargs={"masks": "steps"}, selftest="off")
    env.reset()
    with pytest.raises(RunError, match=r"step 1: its infos have an action_mask, but those of its first reset had none"):
        env.step(torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize("masks", ["method", "infos"])
def test_action_mask_may_allow_nothing_after_a_terminated_step_alone(make_env: Make, masks: str) -> None:
    env = make_env("rlrun-tests/Doors-v0", kwargs={"masks": masks, "end": "terminated"}, selftest="off")
    env.reset()
    step, _ = env.step(torch.zeros(1, dtype=torch.long))
    assert step["following"][MASK].tolist() == [[1, 0]]
    assert step["next_obs"][MASK].tolist() == {"method": [[1, 1]], "infos": [[0, 0]]}[masks]  # no method is called then
    env = make_env("rlrun-tests/Doors-v0", kwargs={"masks": masks, "end": "truncated"}, selftest="off")
    env.reset()
    with pytest.raises(RunError, match="step 1: action_mask allows no action"):
        env.step(torch.zeros(1, dtype=torch.long))


def test_action_masks_in_infos_of_a_vector_env_are_refused(make_env: Make) -> None:
    def doors(num_envs: int) -> Any:
        mode = gym.vector.AutoresetMode.SAME_STEP
        return gym.vector.SyncVectorEnv([lambda: Doors("infos")] * num_envs, autoreset_mode=mode)

    if "rlrun-tests/VectorDoors-v0" not in gym.registry:
        gym.register("rlrun-tests/VectorDoors-v0", vector_entry_point=doors)
    with pytest.raises(
        RunError, match=r"step 0: its infos have an action_mask: a vector env must return it as an entry"
    ):
        make_env("rlrun-tests/VectorDoors-v0", selftest="off").reset()
    make_env("rlrun-tests/VectorDoors-v0", selftest="off", action_mask=False).reset()


@pytest.mark.parametrize("mask", [[False, True], np.array([0.0, 1.0]), np.array([[1, 0], [0, 1]])], ids=repr)
def test_policy_reads_action_masks_as_environments_return_them(mask: Any) -> None:
    space = spaces.Dict({"obs": spaces.Discrete(2), MASK: spaces.MultiBinary(2)})
    addons: Any = Addons()
    addons.act = lambda agent, obs, carry, explore: (obs[MASK].argmax(-1), {})
    policy = Policy(None, addons, Spec(space, spaces.Discrete(2), 1), torch.device("cpu"))  # type: ignore[arg-type]
    obs = np.zeros(np.shape(mask)[:-1], int)
    assert np.array_equal(policy.act({"obs": obs, MASK: mask}), np.argmax(mask, -1))
    with pytest.raises(ValueError, match="action_mask allows no action"):
        policy.act({"obs": 0, MASK: [0, 0]})


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_replay_buffer_returns_every_observation_space(build: Callable[..., Loop], observation: str) -> None:
    probe = {"env.id": PROBE, "env.kwargs": {"observation": observation, "masks": "info"}}
    loop = build(toy("dqn", **probe, **{"algo.buffer.capacity": 16}))
    kept = []
    for _ in range(4):
        before = loop.obs
        loop.tick()
        kept.append(before)
    for row in range(3):
        assert equal(loop.buffer.read(torch.arange(2) + 2 * row)["obs"], kept[row])


EMPTY = spaces.Box(-1.0, 1.0, (0,))


@pytest.mark.parametrize("space", [spaces.Dict(), spaces.Dict(b=spaces.Dict())])
def test_observations_without_entries_are_refused(space):
    with pytest.raises(ConfigError, match="observations have no entries"):
        as_tensors(space)


def test_empty_observations_and_empty_parts_are_allowed():
    assert as_tensors(EMPTY) == EMPTY
    space = spaces.Dict({"": EMPTY, "b": spaces.Discrete(2), "c": spaces.Dict()})
    assert as_tensors(space) == space
    assert observations(space) == "{'': 'Box(0,) of float32', 'b': 'Discrete(2)', 'c': '{}'}"


def test_bounds_of_observations_beyond_float32_become_infinite_without_a_warning():
    with np.errstate(over="raise"):
        assert as_tensors(spaces.Box(-1e300, 1e300, (1,), np.float64)) == spaces.Box(-np.inf, np.inf, (1,))


@pytest.mark.parametrize("space", [EMPTY, spaces.Box(0, 1, (2, 0))])
def test_actions_without_entries_are_refused(space):
    with pytest.raises(ConfigError, match="has no entries"):
        conversion(space)


@pytest.mark.parametrize(
    "spec",
    [
        Spec(spaces.Discrete(2**50), spaces.Discrete(2), 1),
        Spec(spaces.Dict(a=spaces.MultiDiscrete([2, 2**50])), spaces.Discrete(2), 1),
        Spec(spaces.Discrete(2), spaces.Discrete(2**50), 1),
    ],
)
def test_discrete_spaces_larger_than_the_memory_are_refused(spec):
    with pytest.raises(ConfigError, match=f"{2**50}.* needs .* GiB of memory"):
        check_sizes(spec)
