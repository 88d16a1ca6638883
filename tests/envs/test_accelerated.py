"""Tensors of a simulator are passed to the agent without a copy, and no step waits for the device."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rlrun.envs.stepping.accelerated import Accelerated, Simulator
from rlrun.errors import ConfigError, RunError
from rlrun.types import NOTHING, Episode


class VectorClock:
    """Environment i adds its actions to a counter; it terminates at 10 + i and is truncated after 5 steps."""

    single_observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, num_envs: int, action_space: spaces.Space):
        self.num_envs, self.single_action_space = num_envs, action_space
        self.actions: list[Tensor] = []

    def to(self, device: torch.device) -> None: ...

    def reset(self, seed: int | None) -> Tensor:
        self.count, self.steps = torch.zeros(self.num_envs, 1), torch.zeros(self.num_envs, dtype=torch.int32)
        return self.count

    def step(self, actions: Tensor) -> tuple[Tensor, ...]:
        self.actions.append(actions)
        self.final, steps = self.count + actions.reshape(-1, 1), self.steps + 1
        terminated, truncated = (self.final >= 10 + torch.arange(self.num_envs)[:, None]).squeeze(1), steps >= 5
        going_on = ~(terminated | truncated)
        self.count, self.steps = self.final * going_on[:, None], steps * going_on
        return self.count, actions.flatten().double(), terminated, truncated, self.final

    def close(self) -> None: ...

    def get_extra_state(self) -> dict[str, np.ndarray]:
        return {"count": self.count.numpy().copy(), "steps": self.steps.numpy().copy()}

    def set_extra_state(self, tree: dict[str, np.ndarray]) -> None:
        self.count, self.steps = torch.from_numpy(tree["count"]), torch.from_numpy(tree["steps"])


BOUNDED, FREE = spaces.Box(-2.0, 6.0, (1, 1)), spaces.Box(-np.inf, np.inf, (1,))


def counters(num_envs: int = 2, space: spaces.Space = FREE) -> Accelerated:
    simulator: Simulator = VectorClock(num_envs, space)
    return Accelerated(simulator, np.random.SeedSequence(0), "cpu", name="VectorClock")


def test_accelerated_observations_share_memory_by_dlpack() -> None:
    env = counters()
    assert env.reset().data_ptr() == env.simulator.count.data_ptr()
    step, _ = env.step(torch.ones(2, 1))
    assert step["following"].data_ptr() == env.simulator.count.data_ptr()
    assert step["next_obs"].data_ptr() == env.simulator.final.data_ptr()


def test_accelerated_step_distinguishes_terminated_and_truncated_and_keeps_next_obs() -> None:
    env = counters()
    env.reset()
    env.step(torch.tensor([[9.0], [1.0]]))
    step, events = env.step(torch.tensor([[3.0], [1.0]]))
    assert (step["terminated"].tolist(), step["truncated"].tolist()) == ([True, False], [False, False])
    assert step["next_obs"].tolist() == [[12.0], [2.0]] and step["following"].tolist() == [[0.0], [2.0]]
    for _ in range(3):
        step, events = env.step(torch.ones(2, 1))
    assert (step["terminated"].tolist(), step["truncated"].tolist()) == ([False, False], [False, True])
    assert step["next_obs"].tolist() == [[3.0], [5.0]] and step["following"].tolist() == [[3.0], [0.0]]
    assert step["weight"].tolist() == [1, 1] and events is NOTHING
    env = counters(1)
    env.reset()
    for _ in range(5):
        step, _ = env.step(torch.full((1, 1), 2.0))
    assert step["terminated"].item() and not step["truncated"].item(), "both at once is an end"


def test_pending_episodes_are_returned_once() -> None:
    env = counters()
    env.reset()
    assert env.pending_episodes() == []
    env.step(torch.tensor([[9.0], [2.0]]))
    env.step(torch.tensor([[3.0], [2.0]]))
    assert env.pending_episodes() == [Episode(12.0, 2, 0, True)] and env.pending_episodes() == []
    for _ in range(5):
        env.step(torch.tensor([[0.5], [2.0]]))
    assert [episode[:2] for episode in env.pending_episodes()] == [(10.0, 5), (2.5, 5)]


def test_accelerated_step_does_not_synchronise() -> None:
    class Unwaited(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            assert torch.Tag.data_dependent_output not in op.tags, op
            assert torch.Tag.dynamic_output_shape not in op.tags, op
            return op(*args, **(kwargs or {}))

    env = counters(space=BOUNDED)
    env.reset()
    with Unwaited():
        for _ in range(12):
            env.step(torch.full((2, 1), 0.9))
        with pytest.raises(AssertionError, match="aten"):
            env.pending_episodes()


@pytest.mark.parametrize(
    ("space", "given", "executed", "native"),
    [
        (BOUNDED, [[-3.0], [0.5]], [[-1.0], [0.5]], [[[-2.0]], [[4.0]]]),
        (FREE, [[-3.0], [0.5]], [[-3.0], [0.5]], [[-3.0], [0.5]]),
        (spaces.Discrete(3, start=5), [0, 2], [0, 2], [5, 7]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2], [0, 1]], [[1, 2], [0, 1]], [[1, 2], [0, 1]]),
    ],
    ids=["box", "unbounded", "discrete", "choices"],
)
def test_accelerated_actions_are_scaled_to_the_simulator(space, given, executed, native) -> None:
    env = counters(space=space)
    units = env.units
    clipped = units.clip(torch.tensor(given))
    assert clipped.tolist() == executed
    assert units.to_native(clipped).tolist() == native
    assert units.to_native(clipped).dtype == (torch.float32 if isinstance(space, spaces.Box) else torch.int32)
    own = env.actions.to_native(env.actions.clip(np.array(given, env.actions.space.dtype)))
    assert units.to_native(clipped).numpy().tolist() == own.tolist(), "as every other environment has them"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_pending_episodes_raise_where_a_reward_or_obs_is_not_finite(value: float) -> None:
    env = counters()
    env.reset()
    env.step(torch.tensor([[1.0], [value]]))
    for _ in range(6):
        env.step(torch.ones(2, 1))
    with pytest.raises(RunError, match="env VectorClock: a reward or observation was not finite, at or before step 7"):
        env.pending_episodes()


def test_accelerated_resume_continues_its_episodes() -> None:
    one, other = counters(), counters()
    one.reset()
    one.step(torch.tensor([[9.0], [2.0]]))
    other.set_extra_state(one.get_extra_state())
    assert torch.equal(one.obs, other.obs) and other.exactness == "exact"
    for env in (one, other):
        env.step(torch.tensor([[3.0], [2.0]]))
        assert [episode[:2] for episode in env.pending_episodes()] == [(12.0, 2)]
    fresh = counters()
    fresh.set_extra_state(counters().get_extra_state())
    assert fresh.reset().tolist() == [[0.0], [0.0]]


def test_accelerated_start_of_single_environments_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot start single environments"):
        counters().start({0: 1})
