"""Replay returns exactly the rows that were added, until they are overwritten, and never across a reset."""

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.buffers.replay import Reading, Replay, standardized
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError
from rlrun.types import Discount, Spec, Step

CPU = torch.device("cpu")
Make = Callable[..., VectorEnv]


def replay(
    spec: Spec, capacity: int = 1000, gamma: Discount = 0.9, seed: int = 0, n_step: int = 1, **given: Any
) -> Replay:
    rewards: Any = {
        "reward_clip": None, "reward_scale": 1.0, "standardize_reward": False, "compression": None, "dtypes": {},
    }  # fmt: skip
    return Replay(Replay.Config(capacity=capacity, **rewards | given), spec, Reading(gamma, n_step), seed, CPU)


def fill(buffer: Replay, env: VectorEnv, steps: int) -> list[Step]:
    """Plays random actions. Returns every vector step in a list."""
    kept, obs = [], env.reset()
    for _ in range(steps):
        action = torch.randint(2, (env.num_envs,))
        result, _ = env.step(action)
        step = result | {"obs": obs}
        buffer.add(step)
        kept.append(step)
        obs = step["following"]
    return kept


def test_replay_worked_example_of_its_docstring() -> None:
    """Four steps of two environments, of which environment 0 terminates at row 1; rewards are flat indices."""
    spec = Spec(spaces.Box(-9, 9, (1,)), spaces.Discrete(2), 2)
    buffer = replay(spec, gamma=0.5, n_step=3)
    sequences = replay(spec)
    sequences.reading = Reading(sequence_length=3)
    never = torch.tensor([False, False])
    for row in range(4):
        flat_index = 2.0 * row + torch.arange(2)
        obs = flat_index.unsqueeze(-1)
        terminated = torch.tensor([row == 1, False])
        step = {
            "obs": obs,
            "next_obs": obs + 0.5,
            "executed": torch.zeros(2),
            "reward": flat_index,
            "terminated": terminated,
            "truncated": never,
            "weight": torch.ones(2),
        }
        for each in (buffer, sequences):
            each.add(step)
    batch = buffer.read(torch.tensor([0, 2, 1, 5]))
    assert batch["reward"].tolist() == [0 + 0.5 * 2, 2, 1 + 0.5 * 3 + 0.25 * 5, 5 + 0.5 * 7]
    assert batch["n_steps"].tolist() == [2, 1, 3, 2]
    assert batch["terminated"].tolist() == [1, 1, 0, 0]
    assert batch["next_obs"].squeeze(-1).tolist() == [2.5, 2.5, 5.5, 7.5]
    batch = sequences.read(torch.tensor([0, 5]))
    assert batch["reward"].T.tolist() == [[0, 2, 2], [5, 7, 7]]
    assert batch["mask"].T.tolist() == [[1, 1, 0], [1, 1, 0]]


@pytest.mark.parametrize("capacity", [1000, 20, 21])
@pytest.mark.parametrize("truncate", [False, True])
def test_replay_returns_rows_as_stored_until_overwritten(capacity: int, truncate: bool, make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 2, kwargs={"length": 3, "truncate": truncate})
    buffer = replay(env.spec, capacity)
    kept = fill(buffer, env, 17)
    rows = min(17, capacity // 2)
    assert len(buffer) == 2 * rows
    assert buffer.first == 17 - rows
    index = torch.arange(2 * (17 - rows), 34)
    batch = buffer.read(index)
    for place, number in enumerate(index.tolist()):
        row, env_index = divmod(number, 2)
        step = kept[row]
        assert torch.equal(batch["obs"][place], step["obs"][env_index])
        assert torch.equal(batch["next_obs"][place], step["next_obs"][env_index])
        assert batch["action"][place] == step["executed"][env_index]
        assert batch["reward"][place] == step["reward"][env_index]
        assert batch["n_steps"][place] == 1 and batch["terminated"][place] == step["terminated"][env_index]
        assert batch["truncated"][place] == step["truncated"][env_index]
        assert batch["weight"][place] == 1
        assert batch["index"][place] == number
        assert batch["age"][place] == 16 - row
    assert batch["action"].dtype == torch.int64


@pytest.mark.parametrize("n_step", [1, 3])
def test_replay_n_step_sums_components_of_reward_vectors_separately(n_step: int, make_env: Make) -> None:
    factors = [1.0, -2.0, 0.5]
    env = make_env("rlrun/Counter-v0", 2, kwargs={"length": 4, "factors": factors})
    one = make_env("rlrun/Counter-v0", 2, kwargs={"length": 4})
    given = {"n_step": n_step, "reward_clip": 3.0, "reward_scale": 2.0}
    batches = []
    for kind, each in ((env, factors), (one, [1.0])):
        buffer = replay(kind.spec, **given)
        fill(buffer, kind, 17)
        batches.append(buffer.all()["reward"].view(-1, len(each)))
    vectors, numbers = batches
    assert vectors.shape == (34, 3)
    torch.testing.assert_close(vectors[:, :1], numbers)
    slow = replay(env.spec, n_step=n_step)
    fill(slow, env, 17)
    torch.testing.assert_close(slow.all()["reward"], slow.all()["reward"][:, :1] * torch.tensor(factors))
    alike = replay(env.spec, standardize_reward=True)
    fill(alike, env, 16)
    found = alike.all()["reward"]
    torch.testing.assert_close(found.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.std(0, correction=0), torch.ones(3))


@pytest.mark.parametrize("n_step", [1, 3])
def test_replay_n_step_sums_discount_each_component_by_its_own_gamma(n_step: int, make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 2, kwargs={"length": 4, "factors": [1.0, -2.0]})
    gammas = (0.0, 0.9)
    buffer = replay(env.spec, gamma=gammas, n_step=n_step)
    kept = fill(buffer, env, 17)
    batch = buffer.all()
    for place in range(34):
        row, env_index = divmod(place, 2)
        expected = [0.0, 0.0]
        for k, step in enumerate(kept[row : row + n_step]):
            for i, gamma in enumerate(gammas):
                expected[i] += gamma**k * step["reward"][env_index, i].item()
            if step["terminated"][env_index]:
                break
        assert batch["reward"][place].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("capacity", [1000, 24])
@pytest.mark.parametrize("truncate", [False, True])
def test_replay_n_step_sums_end_with_the_episode_or_the_data(capacity: int, truncate: bool, make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 2, kwargs={"length": 4, "truncate": truncate})
    buffer = replay(env.spec, capacity, n_step=3)
    kept = fill(buffer, env, 17)
    index = torch.arange(2 * buffer.first, 34)
    batch = buffer.read(index)
    for place, number in enumerate(index.tolist()):
        row, i = divmod(number, 2)
        reward, n_steps = 0.0, 0
        for step in kept[row : row + 3]:
            reward += 0.9**n_steps * float(step["reward"][i])
            n_steps += 1
            if step["terminated"][i] or step["truncated"][i]:
                break
        assert batch["reward"][place] == pytest.approx(reward)
        assert batch["n_steps"][place] == n_steps and batch["terminated"][place] == step["terminated"][i]
        assert torch.equal(batch["obs"][place], kept[row]["obs"][i])
        assert torch.equal(batch["next_obs"][place], step["next_obs"][i])


def test_replay_n_step_sums_stop_before_masked_steps(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 1, kwargs={"length": 50})
    buffer = replay(env.spec, n_step=3)
    kept = fill(buffer, env, 2)
    step = kept[-1]
    lost = {
        "obs": step["following"],
        "weight": torch.zeros(1),
        "truncated": torch.ones(1, dtype=torch.bool),
        "reward": torch.full((1,), 9.0),
    }
    buffer.add(step | lost)
    batch = buffer.read(torch.tensor([0]))
    assert batch["n_steps"] == 2
    assert torch.equal(batch["next_obs"], step["next_obs"])
    assert batch["reward"] == pytest.approx(float(kept[0]["reward"] + 0.9 * step["reward"]))


@pytest.mark.parametrize("truncate", [False, True])
def test_replay_transitions_never_cross_a_reset(truncate: bool, make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 3, kwargs={"length": 4, "truncate": truncate})
    buffer = replay(env.spec, 40)
    fill(buffer, env, 50)
    batch = buffer.sample(500)
    assert torch.equal(batch["obs"][:, 0], batch["next_obs"][:, 0]), "of another episode"
    assert torch.equal(batch["obs"][:, 1] + 1, batch["next_obs"][:, 1]), "of another step"
    assert torch.equal(batch["reward"], batch["next_obs"][:, 1])


def test_replay_sample_is_uniform(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 2)
    buffer = replay(env.spec, 20)
    fill(buffer, env, 33)
    draws = 40_000
    index = buffer.sample(draws)["index"]
    assert index.min() == 2 * 23 and index.max() == 2 * 33 - 1
    counts = torch.bincount(index - index.min(), minlength=20)
    chi_squared = ((counts - draws / 20) ** 2 / (draws / 20)).sum()
    assert chi_squared < 43.9  # chi-square quantile, 19 degrees of freedom: exceeded once in a thousand


def test_replay_returns_the_transitions_of_one_action(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 2, kwargs={"length": 3})
    buffer = replay(env.spec, capacity=20)
    fill(buffer, env, 17)  # the ring has overwritten its oldest rows
    stored = buffer.all()
    for action in (0, 1):
        chosen = stored["index"][stored["action"] == action]
        of_action = buffer.of_action(action)
        assert torch.equal(of_action["index"], chosen) and of_action["action"].unique().tolist() == [action]
        drawn = buffer.of_action(action, 5000)["index"]
        share = (drawn.unsqueeze(-1) == chosen).float().mean(0)
        assert len(drawn) == 5000 and ((share - 1 / len(chosen)).abs() < 0.03).all()
    never = buffer.of_action(7, 5)
    assert never["obs"].shape == (0, *env.spec.obs.shape) and never["reward"].shape == (0,)


def test_replay_returns_the_transitions_since_an_index(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 2, kwargs={"length": 3})
    buffer = replay(env.spec, capacity=20)
    fill(buffer, env, 17)
    assert buffer.since(31)["index"].tolist() == [31, 32, 33]
    assert torch.equal(buffer.since(3)["index"], buffer.all()["index"])
    assert len(buffer.since(34)["index"]) == len(buffer.since(99)["index"]) == 0


def test_replay_samples_depend_on_the_seed_alone(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 2)
    draws = []
    for seed in (0, 0, 1):
        buffer = replay(env.spec, seed=seed)
        torch.manual_seed(len(draws))
        fill(buffer, env, 20)
        draws.append(buffer.sample(50)["index"].tolist())
    assert draws[0] == draws[1] != draws[2]


SPACES: list[Space] = [
    spaces.Discrete(500),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2, 3), np.float32),
    spaces.Box(0, 255, (5,), np.uint8),
    spaces.Box(-100, 100, (), np.float32),
    spaces.Dict(
        {"b": spaces.Discrete(7), "a": spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "y": spaces.MultiBinary(2)})}
    ),
]


def tensors(value: Any) -> Any:
    """Returns a batch of one, like that of an environment."""
    return {k: tensors(v) for k, v in value.items()} if isinstance(value, dict) else torch.as_tensor(value)[None]


def matches(some: Any, other: Any) -> bool:
    if isinstance(some, dict):
        return some.keys() == other.keys() and all(matches(some[key], other[key]) for key in some)
    return some.dtype == other.dtype and torch.equal(some, other)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_replay_stores_floats_of_observations_in_the_chosen_type(dtype: Any, make_env: Make) -> None:
    env = make_env("CartPole-v1", 2)
    buffer = replay(env.spec, 60, n_step=2, dtypes={"obs": dtype})
    steps = fill(buffer, env, 40)  # the oldest are overwritten
    chosen = getattr(torch, dtype)
    assert buffer.ring.memory["obs"].dtype == chosen
    assert replay(env.spec, 60).ring.row_bytes - buffer.ring.row_bytes == 2 * 8 * 2, "obs and next_obs of 4 numbers"
    for flat_index in (20, 47, 78):
        row, env_index = divmod(flat_index, 2)
        batch = buffer.stored()
        found = batch["obs"][flat_index - buffer.span[0]], batch["next_obs"][flat_index - buffer.span[0]]
        for name, value in zip(("obs", "next_obs"), found, strict=True):
            whole = steps[row][name][env_index]
            assert value.dtype == torch.float32 and torch.equal(value, whole.to(chosen).float())
            assert not torch.equal(value, whole)
            assert torch.equal(buffer.field(name, torch.tensor([flat_index]))[0], value)


def test_replay_stores_integers_with_all_their_bits() -> None:
    space = spaces.Dict({"mask": spaces.MultiBinary(3), "place": spaces.Discrete(5000)})
    buffer = replay(Spec(space, spaces.Discrete(2), 1), 10, dtypes={"obs": "float16"})
    assert set(buffer.ring.memory) == {"rows"}


def test_replay_refuses_numbers_that_its_type_cannot_hold() -> None:
    buffer = replay(Spec(spaces.Box(-1e9, 1e9, (1,)), spaces.Discrete(2), 1), 10, dtypes={"obs": "float16"})
    large = torch.tensor([[1e6]])
    step = {"obs": large / 1e6, "next_obs": large, "executed": torch.zeros(1, dtype=torch.int64)}
    with pytest.raises(ConfigError, match=r"algo.buffer.dtypes.obs=float16: is too small for .* an observation"):
        buffer.add(step)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_replay_keeps_values_shapes_and_dtypes_of_every_space(space: Space) -> None:
    space.seed(0)
    buffer = replay(Spec(space, spaces.Box(-1, 1, (2,)), 1), 10)
    seen = [tensors(space.sample()) for _ in range(4)]
    no, one = torch.zeros(1, dtype=torch.bool), torch.ones(1)
    for obs, after in itertools.pairwise(seen):
        step = {
            "obs": obs,
            "next_obs": after,
            "executed": torch.tensor([[0.5, -0.5]]),
            "reward": one,
            "terminated": no,
            "truncated": no,
            "weight": one,
        }
        buffer.add(step)
    for i in range(3):
        batch = buffer.read(torch.tensor([i]))
        assert matches(batch["obs"], seen[i])
        assert matches(batch["next_obs"], seen[i + 1])
        assert batch["action"].tolist() == [[0.5, -0.5]]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(2**24 + 2),
        spaces.Discrete(2, start=2**24),
        spaces.Discrete(2, start=-(2**24) - 1),
        spaces.MultiDiscrete([2, 3], start=[0, 2**24]),
    ],
    ids=str,
)
def test_replay_refuses_observations_that_float32_cannot_hold(space: Space) -> None:
    with pytest.raises(ConfigError, match="not supported"):
        replay(Spec(space, spaces.Discrete(2), 1))


def test_replay_refuses_a_capacity_below_one_step() -> None:
    with pytest.raises(ConfigError, match=r"algo\.buffer\.capacity=3: must be at least env\.num_envs=4"):
        replay(Spec(spaces.Discrete(3), spaces.Discrete(2), 4), 3)


# --- frames ----------------------------------------------------------------------------------------------------------

STACK, SIDE, ENVS = 3, 16, 2


class Film:
    """Stacked frames like those of the wrapper; all pixels of a frame hold the running number of the frame."""

    def __init__(self, lengths: list[list[int]], kinds: list[list[str]]):
        self.lengths, self.kinds = lengths, kinds
        self.episode, self.t, self.count = [0] * ENVS, [0] * ENVS, 0
        self.stacks = [[self.frame()] * STACK for _ in range(ENVS)]

    def frame(self) -> Tensor:
        self.count += 1
        return torch.full((SIDE, SIDE), self.count % 251, dtype=torch.uint8)

    @property
    def obs(self) -> Tensor:
        return torch.stack([torch.stack(stack) for stack in self.stacks])

    def step(self) -> Step:
        terminated, truncated = torch.zeros(ENVS, dtype=torch.bool), torch.zeros(ENVS, dtype=torch.bool)
        obs = self.obs
        for env in range(ENVS):
            self.t[env] += 1
            self.stacks[env] = [*self.stacks[env][1:], self.frame()]
        next_obs = self.obs
        for env in range(ENVS):
            turn = self.episode[env] % len(self.lengths[env])
            if self.t[env] == self.lengths[env][turn]:
                (terminated if self.kinds[env][turn] == "terminated" else truncated)[env] = True
                self.episode[env], self.t[env] = self.episode[env] + 1, 0
                self.stacks[env] = [self.frame()] * STACK
        return {
            "obs": obs,
            "next_obs": next_obs,
            "executed": torch.zeros(ENVS, dtype=torch.int64),
            "reward": torch.rand(ENVS),
            "terminated": terminated,
            "truncated": truncated,
            "weight": torch.ones(ENVS),
        }


def frames_spec() -> Spec:
    return Spec(spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8), spaces.Discrete(2), ENVS, frame_stack=STACK)


def play(buffer: Replay, film: Film, steps: int) -> list[Step]:
    kept = []
    for _ in range(steps):
        step = film.step()
        buffer.add(step)
        kept.append(step)
    return kept


def check_frames(buffer: Replay, kept: list[Step]) -> set[str]:
    """Compares every row that can be sampled with the list. Returns the kinds of rows that occurred."""
    seen = set()
    index = torch.arange(buffer.first * ENVS, buffer.first * ENVS + len(buffer))
    batch = buffer.read(index)
    for place, number in enumerate(index.tolist()):
        row, env = divmod(number, ENVS)
        step = kept[row]
        assert torch.equal(batch["obs"][place], step["obs"][env]), f"row {row}"
        assert batch["reward"][place] == step["reward"][env]
        if step["terminated"][env]:
            assert batch["terminated"][place] == 1
            assert batch["next_obs"][place].shape == step["next_obs"][env].shape
        else:
            assert torch.equal(batch["next_obs"][place], step["next_obs"][env]), f"successor of row {row}"
        seen |= {name for name in ("terminated", "truncated") if step[name][env]}
    return seen


@pytest.mark.parametrize("steps", [2, 5, 19, 20, 21, 22, 23, 31, 70])
def test_replay_rebuilds_stacks_of_frames_and_successors(steps: int) -> None:
    film = Film([[5, 1, 2, 7], [3, 4, 1]], [["truncated", "terminated"] * 2, ["terminated", "truncated", "truncated"]])
    buffer = replay(frames_spec(), capacity=20 * ENVS)
    kept = play(buffer, film, steps)
    expected = steps - 1 if steps <= 20 else 20 - 1 - STACK
    assert len(buffer) == expected * ENVS
    seen = check_frames(buffer, kept)
    assert steps < 19 or seen == {"terminated", "truncated"}
    if steps >= 5:
        batch = buffer.sample(64)
        first, last = batch["index"].min().item(), batch["index"].max().item()
        assert buffer.first * ENVS <= first and last < (steps - 1) * ENVS
        assert batch["obs"].dtype == torch.uint8


@pytest.mark.parametrize("before", [1, 13, 33])
@pytest.mark.parametrize("steps", [1, 2, 12, 45])
def test_replay_clear_removes_every_transition(before: int, steps: int) -> None:
    kinds = [["truncated", "terminated"], ["truncated", "truncated"]]
    buffer, film = replay(frames_spec(), capacity=20 * ENVS), Film([[4, 3], [5, 2]], kinds)
    kept = play(buffer, film, before)
    buffer.clear()
    assert len(buffer) == 0
    film.t, film.stacks = [0] * ENVS, [[film.frame()] * STACK for _ in range(ENVS)]  # new episodes
    kept += play(buffer, film, steps)
    assert buffer.first >= before
    assert len(buffer) == ENVS * min(steps - 1, 20 - 1 - STACK if before + steps > 20 else steps)
    check_frames(buffer, kept)


@pytest.mark.parametrize("steps", [9, 40])
def test_replay_n_step_rebuilds_successors_of_frames(steps: int) -> None:
    film = Film([[50], [4, 1]], [["truncated"], ["terminated", "truncated"]])
    buffer = replay(frames_spec(), capacity=20 * ENVS, n_step=3)
    kept = play(buffer, film, steps)
    index = torch.arange(buffer.first * ENVS, buffer.first * ENVS + len(buffer))
    batch = buffer.read(index)
    for place, number in enumerate(index.tolist()):
        row, env = divmod(number, ENVS)
        last = row
        while last < min(row + 2, steps - 2) and not (kept[last]["terminated"] | kept[last]["truncated"])[env]:
            last += 1
        reward = sum(0.9**i * float(kept[row + i]["reward"][env]) for i in range(last - row + 1))
        assert batch["reward"][place] == pytest.approx(reward)
        if not kept[last]["terminated"][env]:
            assert torch.equal(batch["next_obs"][place], kept[last]["next_obs"][env]), f"successor of row {row}"
            assert batch["n_steps"][place] == last - row + 1 and batch["terminated"][place] == 0


def test_replay_clips_rewards_before_n_step_sums(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 1, kwargs={"length": 50})
    buffer = replay(env.spec, 50, gamma=1.0, n_step=3, reward_clip=1.0, reward_scale=2.0)
    fill(buffer, env, 6)  # rewards 1, 2, 3, ...
    assert buffer.read(torch.tensor([2]))["reward"] == 2 * 3


def test_replay_standardises_rewards_of_a_batch_then_scales_them(make_env: Make) -> None:
    env = make_env("rlrun/Counter-v0", 1, kwargs={"length": 50})
    buffer = replay(env.spec, 50, standardize_reward=True, reward_scale=10.0)
    fill(buffer, env, 6)
    # rewards 1, 2, 6: mean 3, standard deviation sqrt(14 / 3)
    expected = [10 * x / (14 / 3) ** 0.5 for x in (-2, -1, 3)]
    assert buffer.read(torch.tensor([0, 1, 5]))["reward"].tolist() == pytest.approx(expected, rel=1e-5)
    assert buffer.read(torch.tensor([1, 1]))["reward"].tolist() == [0.0, 0.0]


def test_replay_standardises_rewards_without_masked_steps() -> None:
    x = standardized(torch.tensor([1.0, 3.0, 1e6]), torch.tensor([1.0, 0.5, 0.0]))
    assert x[:2].tolist() == pytest.approx([-1.0, 1.0])


def test_replay_stores_each_frame_once() -> None:
    buffer = replay(frames_spec(), capacity=20 * ENVS)
    assert buffer.frames is not None
    stored = sum(field.numel() * field.element_size() for field in buffer.frames.ring.memory.values())
    assert stored < 20 * ENVS * SIDE * SIDE * 1.05
    play(buffer, Film([[2], [2]], [["truncated"], ["truncated"]]), 500)
    assert len(buffer.frames.finals) <= 20, "last frames of episodes long overwritten"


def test_replay_stores_compressed_frames_in_less_memory() -> None:
    space = spaces.Box(0, 255, (STACK, 84, 84), np.uint8)
    buffer = replay(Spec(space, spaces.Discrete(2), ENVS, frame_stack=STACK), 20 * ENVS, compression="lz4")
    obs = torch.zeros(ENVS, STACK, 84, 84, dtype=torch.uint8)
    obs[:, :, 20:30, 40:50] = 200
    no = torch.zeros(ENVS, dtype=torch.bool)
    step = {
        "obs": obs,
        "next_obs": obs,
        "executed": torch.zeros(ENVS, dtype=torch.int64),
        "reward": torch.ones(ENVS),
        "terminated": no,
        "truncated": no,
        "weight": torch.ones(ENVS),
    }
    for _ in range(25):
        buffer.add(step)
    assert buffer.frames is not None
    assert buffer.frames.ring.row_bytes < 84 * 84 * ENVS / 10
    assert torch.equal(buffer.sample(3)["obs"], obs[:1].expand(3, -1, -1, -1))


def test_replay_compression_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4", None)
    with pytest.raises(ConfigError, match=r"^algo\.buffer\.compression=lz4: needs lz4; pip install 'rlrun\[lz4\]'"):
        replay(frames_spec(), compression="lz4")


def test_replay_compression_needs_images() -> None:
    spec = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), ENVS)
    with pytest.raises(ConfigError, match=r"^algo\.buffer\.compression=lz4: compresses images, of which"):
        replay(spec, compression="lz4")


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_replay_frames_resume_from_a_snapshot(compression: str | None) -> None:
    kinds = [["truncated", "terminated"], ["truncated", "truncated"]]
    film, spec = Film([[4, 3], [5, 2]], kinds), frames_spec()
    buffer, copy = (replay(spec, 20 * ENVS, compression=compression) for _ in range(2))
    kept = play(buffer, film, 33)
    copy.load_state_dict(buffer.state_dict())
    for name in ("ring", "frames.ring"):
        old, new = buffer.get_submodule(name), copy.get_submodule(name)
        new.write(old.first, old.read(old.first, old.total))  # type: ignore[operator]
    check_frames(copy, kept)
    kept += play(copy, film, 9)
    check_frames(copy, kept)


def test_replay_stores_images_without_a_stack_whole() -> None:
    spec = Spec(spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8), spaces.Discrete(2), 1)
    buffer = replay(spec, 10)
    no = torch.zeros(1, dtype=torch.bool)
    images = [torch.randint(256, (1, 3, SIDE, SIDE), dtype=torch.uint8) for _ in range(6)]
    for i, (obs, after) in enumerate(itertools.pairwise(images)):
        cut = torch.tensor([i == 2])
        step = {
            "obs": obs,
            "next_obs": images[0] if cut else after,
            "executed": torch.zeros(1),
            "reward": torch.ones(1),
            "terminated": no,
            "truncated": cut,
            "weight": torch.ones(1),
        }
        buffer.add(step)
    batch = buffer.read(torch.arange(len(buffer)))
    assert torch.equal(batch["obs"], torch.cat(images[:4]))
    assert torch.equal(batch["next_obs"], torch.cat([images[1], images[2], images[0], images[4]]))
