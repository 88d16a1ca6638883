"""Tuple and Dict actions: agents act with one vector, environments receive tuples and dicts in their own units."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from probe_spaces import Spaces
from toys import put, recorded, small, toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.datasets.demonstrations import read, write
from rlrun.dotted import leaves
from rlrun.envs.saving.episode_record import decoded, encoded
from rlrun.envs.stepping import obs_adapter
from rlrun.envs.stepping.actions import conversion, single
from rlrun.envs.stepping.actions import values as values_of
from rlrun.envs.stepping.random_actions import sampled
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.loops.offpolicy import OffPolicy
from rlrun.nested import index
from rlrun.run.evaluation import evaluate
from rlrun.run.policy import Policy
from rlrun.spaces import MixedSpace
from rlrun.testing import check_acting, check_resuming
from rlrun.types import MASK

Build = Callable[..., Loop]
ARM = spaces.Tuple([spaces.Box(0.0, 4.0, (2, 1), np.float64), spaces.MultiBinary(2)])
ROBOT = spaces.Dict({"gear": spaces.Discrete(3, start=5), "arm": ARM, "force": spaces.Box(-np.inf, np.inf, (1,))})


def test_mixed_action_is_a_vector_of_choices_then_continuous_values() -> None:
    actions = conversion(ROBOT)  # Dict sorts its keys: arm, force, gear
    assert isinstance(actions.space, MixedSpace)
    assert [*actions.space.parts] == ["arm.1", "gear", "arm.0", "force"]
    assert actions.space.discrete == spaces.MultiDiscrete([2, 2, 3])
    assert actions.space.continuous.shape == (3,)
    row = np.array([[1, 0, 2, 0.5, -1.0, 7.5], [0, 1, 0, 0.0, 1.0, -3.0]], np.float32)
    native = actions.to_native(actions.clip(row))
    first = single(ROBOT, native, 0)
    assert ROBOT.contains(first)
    assert (first["gear"], first["arm"][1].tolist(), first["force"]) == (7, [1, 0], 7.5)
    assert first["arm"][0].tolist() == [[3.0], [0.0]]
    np.testing.assert_array_equal(actions.from_native(native), row)


def test_nested_action_out_of_range_is_clipped() -> None:
    actions = conversion(ROBOT)
    clipped = actions.clip(np.array([[3, -1, 9, 2.0, -2.0, 1e6]], np.float32))
    assert clipped.tolist() == [[1, 0, 2, 1.0, -1.0, 1e6]]


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(1)]), spaces.MultiDiscrete([2, 2])),
        (spaces.Dict({"a": spaces.Box(0, 5, (2,)), "b": spaces.Box(-1, 1, (1,))}), spaces.Box(-1.0, 1.0, (3,))),
    ],
    ids=["discrete", "continuous"],
)
def test_nested_action_of_one_kind_is_a_plain_space(space: Any, seen: Any) -> None:
    actions = conversion(space)
    assert actions.space == seen
    space.seed(0)
    native = space.sample()
    row = actions.from_native(_batched(space, native))
    again = single(space, actions.to_native(row), 0)
    for found, given in zip(values_of(space, again), values_of(space, native), strict=True):
        np.testing.assert_allclose(found, given, rtol=1e-6)


def _batched(space: Any, value: Any) -> Any:
    """Returns one value as a batch of one."""
    match space:
        case spaces.Tuple():
            return tuple(_batched(part, own) for part, own in zip(space, value, strict=True))
        case spaces.Dict():
            return {key: _batched(part, value[key]) for key, part in space.items()}
    return np.asarray(value)[None]


def test_recorded_nested_actions_are_checked_in_every_part() -> None:
    actions = conversion(spaces.Tuple([spaces.Discrete(3), spaces.Box(-1.0, 1.0, (1,))]))
    with pytest.raises(ValueError, match=r"not in Discrete\(3\)"):
        actions.from_native((np.array([3]), np.zeros((1, 1))))
    with pytest.raises(ValueError, match=r"not in Discrete\(3\)"):
        actions.from_native((np.array([0.5]), np.zeros((1, 1))))
    with pytest.raises(ValueError, match="shape"):
        actions.from_native((np.array([1]), np.zeros((1, 2))))


def test_replayed_episodes_hold_nested_actions_bit_for_bit() -> None:
    ROBOT.seed(0)
    given = [ROBOT.sample() for _ in range(5)]
    found = decoded(ROBOT, b"".join(map(encoded, given)))
    assert all(map(ROBOT.contains, found))
    assert [*map(encoded, found)] == [*map(encoded, given)]


def test_mixed_actions_are_sampled_among_legal_choices_and_within_bounds() -> None:
    spec: Any = type("Spec", (), {"action": conversion(ROBOT).space, "num_envs": 500})
    masks = torch.tensor([1, 1, 0, 1, 1, 0, 1]).expand(500, 7)  # of arm.1 (2 and 2 choices), then of gear (3)
    drawn = sampled(spec, {MASK: masks}, Stream(0, "test"), torch.device("cpu"))
    assert drawn.shape == (500, 6)
    assert sorted(drawn[:, 0].unique().tolist()) == [0, 1]
    assert drawn[:, 1].unique().tolist() == [1]
    assert sorted(drawn[:, 2].unique().tolist()) == [0, 2]


class Valve(gym.Env):
    """Forbids one gear, in the form that `Space.sample` takes, and checks what it receives."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Dict({"open": spaces.Box(0.0, 1.0, (1,)), "gear": spaces.Discrete(3)})

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), self._info()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        assert self.mask[action["gear"]], action
        return np.zeros(1, np.float32), 0.0, False, False, self._info()

    def _info(self) -> Any:
        self.mask = np.ones(3, np.int8)
        self.mask[self.np_random.integers(3)] = 0
        return {MASK: {"open": None, "gear": self.mask}}


def test_masks_of_nested_actions_reach_the_policy_in_the_form_of_gymnasium() -> None:
    env: Any = obs_adapter.adapt_observations(Valve(), obs_adapter.shows_masks(Valve()))
    obs, _ = env.reset(seed=0)
    for _ in range(50):
        assert obs[MASK].tolist() == env.env.mask.tolist()
        obs, *_ = env.step(obs_adapter.sample(env.action_space, obs))


def test_gymnasium_vector_env_with_nested_actions_is_stepped() -> None:
    venv = SyncVectorEnv([Valve, Valve], autoreset_mode=AutoresetMode.SAME_STEP)
    env = VectorEnv(venv, np.random.SeedSequence(0))
    env.reset()
    gears = torch.tensor([venv.envs[0].mask.argmax(), venv.envs[1].mask.argmax()])  # type: ignore[attr-defined]
    step, _ = env.step(torch.stack([gears.float(), torch.tensor([0.5, 3.0])], 1))
    assert step["executed"][:, 1].tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("algo", "action"),
    [("ppo", "dict"), ("ppo_lstm", "tuple"), ("svpg", "tuple"), ("sac", "tuple"), ("bc", "dict")],
)
def test_agents_resume_with_mixed_actions_bit_for_bit(algo: str, action: str, build: Build) -> None:
    run = toy(algo, **put_env(action))
    loop = train(build(run), 2)
    check_acting(loop)
    check_resuming(loop, build(run, begin=False))


def put_env(action: str, **kwargs: Any) -> dict[str, Any]:
    return {"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"action": action} | kwargs}


@pytest.mark.parametrize(
    ("algo", "action", "masks"),
    [
        ("ppo", "tuple", "info"), ("ppo", "dict", "obs"), ("a2c", "dict", "info"), ("sac", "tuple", "info"),
        ("sac", "tuple", "obs"), ("recurrent_sac", "tuple", "info"), ("bc", "dict", "info"), ("bc", "tuple", "obs"),
    ],
)  # fmt: skip
def test_agents_never_send_forbidden_choices_of_mixed_actions(algo: str, action: str, masks: str, build: Build) -> None:
    """The environment raises an exception if it receives one."""
    loop = train(build(toy(algo, **put_env(action, masks=masks))), 4)
    evaluate(loop.agent, loop.addons, loop.env, 2)


def test_masks_of_nested_actions_in_the_observation_are_those_of_the_info() -> None:
    """A vector with a number for every choice of every discrete part, 1 if the choice is allowed."""
    for action, size in {"tuple": 3, "dict": 7}.items():
        shown, told = (Spaces(action=action, masks=masks) for masks in ("obs", "info"))
        seen: Any = obs_adapter.adapt_observations(shown, masked=False)
        heard: Any = obs_adapter.adapt_observations(told, masked=True)
        for seed in range(20):
            masks = [env.reset(seed=seed)[0][MASK].tolist() for env in (seen, heard)]
            assert masks[0] == masks[1] and len(masks[0]) == size


def test_recurrent_cloning_takes_mixed_actions_with_masks(build: Build) -> None:
    words = ["algo=bc", "env=rlrun/ProbeSpaces-v0", "preset=none", "env.kwargs.action=dict", "env.kwargs.masks=info"]
    values = jobs([*words, "network=lstm", "network.start=zero"])[0].values
    values = put(values, small(dict(leaves(values))))
    loop: Any = train(build(put(values, {"algo.loop.data": recorded(json.dumps(values))})), 4)
    assert loop.agent.memory.size > 0
    evaluate(loop.agent, loop.addons, loop.env, 2)


def test_workers_receive_the_same_nested_actions(make_env: Callable[..., VectorEnv]) -> None:
    seen = []
    for backend in ("sync", "async"):
        env = make_env("rlrun/ProbeSpaces-v0", 2, kwargs={"action": "dict"}, backend=backend, selftest="off")
        env.reset()
        random = Stream(0, "test")
        seen.append(torch.stack([env.step(env.sample(random))[0]["reward"] for _ in range(5)]))
    assert torch.equal(*seen)


@pytest.mark.parametrize("policy", ["random", "zero", "agent"])
def test_replay_fills_with_mixed_actions_of_every_warmup_policy(policy: str, build: Build) -> None:
    loop: Any = build(toy("sac", **put_env("tuple"), **{"algo.loop.warmup_policy": policy}))
    assert isinstance(loop, OffPolicy)
    train(loop, 1)
    action = loop.buffer.sample(8)["action"]
    assert action.shape == (8, 3)
    assert set(action[:, 0].tolist()) <= {0.0, 1.0, 2.0}


def test_demonstrations_with_nested_actions_are_written_and_read(build: Build, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    loop = build(toy("ppo", **put_env("dict")))
    obs, action = loop.obs, loop.env.sample(Stream(0, "test"))
    step, _ = loop.env.step(action)
    demo: Any = {
        "obs": torch.stack([obs[0], step["next_obs"][0]]), "action": action[:1], "reward": torch.ones(1),
        "terminated": True, "worth": 1.0,
    }  # fmt: skip
    write(tmp_path / "demos-v0", [demo], loop.env)  # type: ignore[arg-type]
    (found,) = read("algo.loop.data", tmp_path / "demos-v0", loop.env)  # type: ignore[arg-type]
    torch.testing.assert_close(found["action"], demo["action"])


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_loaded_policy_returns_nested_actions(algo: str, build: Build) -> None:
    loop = train(build(toy(algo, **put_env("tuple"))), 1)
    env: Any = loop.env
    policy = Policy(loop.agent, loop.addons, env.spec, env.device)
    batch = index(loop.obs, slice(None)).numpy()
    assert policy.action_space.contains(policy.act(batch[0]))
    policy.reset()
    continuous, choices = policy.act(batch)
    assert continuous.shape == (2, 2) and choices.shape == (2,)
