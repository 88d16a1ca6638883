"""The contract of vector environments: dtypes, seeds, equal results in workers, no memory shared with simulators."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlrun.envs.stepping.vector import VectorEnv, child_seed
from rlrun.errors import ConfigError
from rlrun.types import Spec


def run(env, steps=30):
    torch.manual_seed(0)
    rows = [env.reset()]
    for _ in range(steps):
        step, _ = env.step(torch.rand(env.num_envs, *env.spec.action.shape) * 2 - 1)
        rows += [step["following"], step["reward"], step["next_obs"]]
    return torch.cat([row.flatten() for row in rows])


def test_vector_env_shapes_and_dtypes(make):
    env = make("Hopper-v5", 3)
    assert isinstance(env.spec, Spec) and env.spec.num_envs == 3
    assert env.reset().shape == (3, 11) and env.spec.obs.shape == (11,) and env.spec.obs.dtype == np.float32
    step, _ = env.step(torch.full((3, 3), 0.5))
    assert step["following"].dtype == step["reward"].dtype == step["weight"].dtype == torch.float32
    assert step["terminated"].dtype == step["truncated"].dtype == torch.bool
    assert step["following"].shape == (3, 11) and step["reward"].shape == step["terminated"].shape == step[
        "weight"
    ].shape == (3,)


def test_vector_env_discrete_observations_are_integers(make):
    env = make("FrozenLake-v1", 2)
    assert env.reset().tolist() == [0, 0] and env.reset().dtype == torch.int64
    assert env.step(torch.tensor([1, 2]))[0]["following"].dtype == torch.int64


def test_async_and_sync_backends_give_equal_rollouts(make):
    assert torch.equal(run(make("Hopper-v5", 2)), run(make("Hopper-v5", 2, backend="async")))


def test_equal_seeds_equal_rows_other_seeds_other_rows(make):
    one, two, other = make("Hopper-v5", 2, seed=1), make("Hopper-v5", 2, seed=1), make("Hopper-v5", 2, seed=2)
    first = run(one)
    assert torch.equal(first, run(two)) and not torch.equal(first, run(other))
    assert not torch.equal(one.reset()[0], one.reset()[1])  # every environment has its own value


def test_seeds_are_children_of_the_sequence():
    root = np.random.SeedSequence(5)
    seeds = [child_seed(root, i) for i in range(4)]
    spawned = [int(child.generate_state(1, np.uint32)[0] >> 1) for child in np.random.SeedSequence(5).spawn(4)]
    assert seeds == spawned and root.n_children_spawned == 0 and max(seeds) < 2**31


def test_reset_without_a_seed_continues_the_random_stream(make):
    env = make("CartPole-v1")
    first, second = env.reset(), env.reset()
    assert not torch.equal(first, second)
    assert torch.equal(env.reset(np.random.SeedSequence(0)), first) and torch.equal(env.reset(), second)


def test_step_tensors_are_copies_of_simulator_memory(make):
    env = make("rlrun/Counter-v0", kwargs={"length": 5})
    obs = env.reset()
    one, _ = env.step(torch.tensor([0]))
    kept = one["following"].clone()
    env.step(torch.tensor([0]))
    assert obs.tolist() == [[0, 0]] and torch.equal(one["following"], kept) and one["reward"].tolist() == [1.0]
    walk = make("CliffWalking-v1")
    obs, (step, _) = walk.reset(), walk.step(torch.tensor([0]))
    assert obs.item() == 36 and step["following"].item() == 24  # up from the corner: 48 squares in rows of 12


class Reusing(gym.Env):
    """Writes every observation to the memory of the previous one."""

    observation_space, action_space = spaces.Box(0, 9, (1,)), spaces.Discrete(2)
    buffer = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.buffer[:] = 0
        return self.buffer, {}

    def step(self, action):
        self.buffer += 1
        return self.buffer, 0.0, self.buffer[0] == 2, False, {}


def test_next_obs_is_not_overwritten_by_the_reset(make):
    gym.registry.pop("test/Reusing-v0", None)
    gym.register("test/Reusing-v0", Reusing)
    env = make("test/Reusing-v0", selftest="off")
    env.reset()
    steps = [env.step(torch.tensor([0]))[0] for _ in range(2)]
    assert [step["next_obs"].item() for step in steps] == [1, 2] and steps[1]["following"].item() == 0


class Growing(gym.Env):
    """Observes a different size in every instance."""

    action_space, made = spaces.Discrete(2), 0

    def __init__(self):
        Growing.made += 1
        self.observation_space = spaces.Box(0, 1, (Growing.made,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {}


def test_vector_env_refuses_environments_with_different_spaces(make):
    gym.registry.pop("test/Growing-v0", None)
    gym.register("test/Growing-v0", Growing)
    with pytest.raises(ConfigError, match=r"#1 cannot be made \(its spaces, its reward shape or its reports differ"):
        make("test/Growing-v0", 2, selftest="off")


def test_time_limit_sets_truncated(make):
    env = make("Pendulum-v1", max_episode_steps=2)
    env.reset()
    steps = [env.step(torch.zeros(1, 1))[0] for _ in range(4)]
    assert [step["truncated"].item() for step in steps] == [False, True, False, True]
    assert not torch.equal(steps[1]["next_obs"], steps[1]["following"])


class Drawn(gym.Env):
    """A randomly drawn problem: drawn by the constructor if it takes the seed, otherwise by reset."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        drawn = np.random.default_rng((options or {}).get("instance_seed", seed)).random(1)
        return drawn.astype(np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {}


class DrawnOnce(Drawn):
    def __init__(self, instance_seed=None):
        self.instance_seed = instance_seed

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options={"instance_seed": self.instance_seed})


@pytest.mark.parametrize("entry", [Drawn, DrawnOnce])
def test_an_instance_seed_fixes_the_problem_for_all_episodes(make, entry):
    gym.registry.pop("test/Drawn-v0", None)
    gym.register("test/Drawn-v0", entry)
    given = {"instance_seed": 3, "selftest": "off"}
    env, other = make("test/Drawn-v0", 2, **given), make("test/Drawn-v0", 2, seed=9, **given)
    first = env.reset()
    assert first[0] == first[1] and torch.equal(first, other.reset())
    assert torch.equal(env.step(torch.tensor([0, 0]))[0]["following"], first)  # after a reset inside the step, too
    assert not torch.equal(make("test/Drawn-v0", 2, **given | {"instance_seed": 4}).reset(), first)


def test_tuple_observations_can_be_flattened(make):
    env = make("Blackjack-v1", wrappers={"flatten": {}})
    assert env.reset().shape == (1, 32 + 11 + 2) and env.reset().sum() == 3


def test_start_resets_single_environments_only(make_env) -> None:
    env, other = (make_env("CartPole-v1", 3) for _ in range(2))
    env.reset()
    other.reset()
    right = torch.ones(3, dtype=torch.int64)
    env.step(right)
    expected = other.step(right)[0]["following"]
    started = env.start({1: 77})
    assert torch.equal(started[[0, 2]], expected[[0, 2]]) and not torch.equal(started[1], expected[1])
    assert torch.equal(started[1], make_env("CartPole-v1", 2).start({0: 5, 1: 77})[1]), "the seed decides"
    assert torch.equal(env.step(right)[0]["following"][[0, 2]], other.step(right)[0]["following"][[0, 2]])
    assert env.clock.returns.tolist() == [2, 1, 2]


def test_tensors_for_a_device_are_pinned(config, monkeypatch):
    """Uses the device `meta`, which has shapes only, so no code in a step can read the tensors."""
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    env = VectorEnv.make(config("CartPole-v1", 2), np.random.SeedSequence(0), "meta")
    assert env.reset().is_meta and len(pinned) == 1
    for _ in range(30):  # until poles have fallen
        step, _ = env.step(torch.zeros(2, dtype=torch.int64))
        assert all(tensor.is_meta for tensor in step.values())
    assert len(pinned) > 3 * 30 and all(not tensor.is_meta for tensor in pinned)
    env.close()
