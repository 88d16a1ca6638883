"""Environments written in JAX behave like all others, start every episode afresh, and are saved exactly."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from toys import equal, toy, train

from rlrun.cli import main
from rlrun.core.loop import Loop
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError
from rlrun.snapshot import tree

Make = Callable[..., VectorEnv]
CARTPOLE = "phys2d/CartPole-v1"


def test_without_the_package_a_line_says_what_to_install(make_env: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rlrun.envs.simulators.tasks", "rlrun.envs.simulators.program"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ConfigError, match=r"jax is not installed; pip install 'rlrun\[jax\]'"):
        make_env(CARTPOLE, backend="jax")


class TestWithJax:
    @pytest.fixture(autouse=True)
    def jax(self) -> None:
        pytest.importorskip("jax")
        pytest.importorskip("flax")

    @pytest.fixture
    def make(self, make_env: Make) -> Make:
        return lambda num_envs=8, id=CARTPOLE, **values: make_env(id, num_envs, backend="jax", **values)

    def test_a_pole_falls_as_gymnasium_lets_it_fall(self, make: Make) -> None:
        env, ends = make(), 0
        before = env.reset()
        own = gym.make(CARTPOLE).unwrapped.func_env
        for t in range(30):
            action = torch.arange(t, t + 8) // 3 % 2
            step, _ = env.step(action)
            for i in range(8):
                obs = own.transition(before[i].numpy(), int(action[i]))
                torch.testing.assert_close(step["next_obs"][i], torch.from_numpy(np.array(obs)), atol=1e-6, rtol=1e-5)
                assert (step["reward"][i].item(), step["terminated"][i].item()) == (1, bool(own.terminal(obs, None)))
            before, ends = step["following"], ends + int(step["terminated"].sum())
        assert ends and len(env.pending_episodes()) == ends

    def test_every_episode_begins_in_a_state_of_its_own(self, make: Make) -> None:
        env = make()
        begun, ended = [*env.reset().tolist()], 0
        for _ in range(200):
            step, _ = env.step(torch.zeros(8, dtype=torch.int64))
            rows = step["terminated"] | step["truncated"]
            ended += int(rows.sum())
            begun += step["following"][rows].tolist()
            assert torch.equal(step["following"][~rows], step["next_obs"][~rows])
        assert ended > 100 and len({tuple(obs) for obs in begun}) == 8 + ended
        assert np.abs(begun).max() <= 0.05 and 0.02 < np.std(begun) < 0.04, "uniform in +-0.05"

    def test_a_limit_cuts_and_is_no_end(self, make: Make) -> None:
        env = make(id="phys2d/Pendulum-v0", max_episode_steps=3)
        env.reset()
        steps = [env.step(torch.zeros(8, 1))[0] for _ in range(6)]
        assert [step["truncated"].all().item() for step in steps] == [False, False, True] * 2
        assert not any(step["terminated"].any() for step in steps)
        assert not torch.equal(steps[2]["next_obs"], steps[2]["following"])
        assert [episode.length for episode in env.pending_episodes()] == [3] * 16

    def test_the_seed_decides_and_a_later_reset_goes_on(self, make: Make) -> None:
        one, same, other = make(seed=1), make(seed=1), make(seed=2)
        first = one.reset()
        assert torch.equal(first, same.reset()) and not torch.equal(first, other.reset())
        again = one.reset()
        assert torch.equal(again, same.reset()) and not torch.equal(again, first)
        assert torch.equal(one.reset(np.random.SeedSequence(1)), first)

    def test_arrays_cross_without_a_copy(self, make: Make) -> None:
        env = make()
        assert env.reset().data_ptr() == env.simulator.memory.state.obs.unsafe_buffer_pointer()
        given, action = [], torch.zeros(8, dtype=torch.int64)
        plain = env.simulator.step
        env.simulator.step = lambda actions: given.append(plain(actions)) or given[-1]
        step, _ = env.step(action)
        for tensor, array in zip((step["following"], step["reward"], step["terminated"]), given[0], strict=False):
            assert tensor.data_ptr() == array.unsafe_buffer_pointer()
        assert step["next_obs"].data_ptr() == given[0][4].unsafe_buffer_pointer()
        kept = step["following"].clone()
        env.step(1 - action)
        assert torch.equal(step["following"], kept), "what was handed out is not written to"

    def test_a_restored_one_goes_on_bit_for_bit(self, make: Make) -> None:
        one, other = make(seed=1), make(seed=2)
        one.reset()
        actions = torch.randint(0, 2, (80, 8), generator=torch.Generator().manual_seed(0))
        for action in actions[:20]:
            one.step(action)
        one.pending_episodes()
        skeleton, tensors = tree.encode({"env": one.get_extra_state()})
        other.set_extra_state(tree.decode(skeleton, tensors)["env"])
        for action in actions[20:]:
            assert equal(one.step(action), other.step(action))
        assert one.pending_episodes() == other.pending_episodes() != []

    def test_a_run_goes_on_bit_for_bit(self, build: Callable[..., Loop]) -> None:
        values = toy("ppo")
        own = {"id": CARTPOLE, "backend": "jax", "num_envs": 8, "max_episode_steps": None}
        values["env"] = values["env"] | own
        one, other = train(build(values), 2), build(values)
        other.load_state_dict(one.state_dict())
        first, second = (tree.encode(train(loop, 4).state_dict()) for loop in (one, other))
        assert first[0] == second[0] and one.episodes
        assert all(torch.equal(tensor, second[1][name]) for name, tensor in first[1].items())

    def test_what_is_compiled_serves_every_number_of_environments(self, make: Make) -> None:
        one, other = make(8), make(3)
        assert one.simulator.program is other.simulator.program and other.reset().shape == (3, 4)

    @pytest.mark.parametrize(
        ("id", "line"),
        [
            ("CartPole-v1", "it is not a functional environment"),
            ("phys2d/Nothing-v0", "Nothing"),
        ],
    )
    def test_what_is_not_written_in_jax_is_refused(self, id: str, line: str, make: Make) -> None:
        with pytest.raises(ConfigError, match=line):
            make(id=id)

    @pytest.mark.slow
    def test_ppo_learns_to_balance(self, tmp_path: Path) -> None:
        words = ["algo=ppo", f"env={CARTPOLE}", "env.backend=jax", "preset=ppo-CartPole", "trainer.total_steps=100000"]
        words += ["trainer.eval_every=0", "trainer.eval_episodes=20", "logger=[console]"]
        assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["final_return"] >= 475

    @pytest.mark.slow
    def test_a_playground_s_robot_is_cut_begun_anew_and_saved(self, make_env: Make) -> None:
        pytest.importorskip("mujoco_playground")
        with pytest.raises(ConfigError, match="unknown; did you mean playground/CartpoleBalance"):
            make_env("playground/CartpoleBalanced")
        env = make_env("playground/CartpoleBalance", 4, kwargs={"impl": "jax"}, max_episode_steps=3)
        begun, push = env.reset(), torch.full((4, 1), 0.5)
        for _ in range(2):
            assert not env.step(push)[0]["truncated"].any()
        saved = env.get_extra_state()
        steps = [env.step(push)[0] for _ in range(4)]
        assert steps[0]["truncated"].all() and not steps[0]["terminated"].any() and steps[3]["truncated"].all()
        assert not torch.equal(steps[0]["following"], begun) and not torch.equal(
            steps[0]["following"], steps[0]["next_obs"]
        )
        env.set_extra_state(saved)
        assert all(torch.equal(env.step(push)[0]["following"], step["following"]) for step in steps)
