"""The Python API: train a run, load its policy, act as in an evaluation."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import rlrun
from rlrun.errors import ConfigError
from rlrun.run.trained import restored
from rlrun.types import carried

SMALL = ["preset=none", "env.num_envs=2", "trainer.total_steps=60", "trainer.eval_episodes=1", "network.hidden=[8]",
         "trainer.eval_max_steps=5", "logger=[]"]  # fmt: skip
REPLAY = ["algo.loop.warmup_steps=20", "algo.loop.batch_size=8"]
CASES = {
    "sac": ["env=Pendulum", *REPLAY],
    "ppo_lstm": ["env=Pendulum", "network.features=8", "env.normalize=obs", "algo.loop.rollout_steps=10"],
    "dqn": ["env=CartPole", *REPLAY],
}


def trained(algo: str, folder: Path) -> Path:
    return rlrun.train(f"algo={algo}", *CASES[algo], *SMALL, run_dir=str(folder / "run")).path


@pytest.mark.parametrize("algo", CASES)
def test_policy_acts_as_an_evaluation_does(algo: str, tmp_path: Path) -> None:
    path = trained(algo, tmp_path)
    policy = rlrun.load(path)
    with restored(path, 3, 0, {}) as found:
        env = found.env
        obs, carry = env.reset(), {"first": torch.ones(3, dtype=torch.bool)}
        for _ in range(5):
            action, extras = found.addons.act(found.agent, obs, carry, False)
            native = env.actions.to_native(env.actions.clip(action.numpy()))
            assert np.array_equal(policy.act(obs.numpy()), native)
            obs, carry = env.step(action).obs, carried(extras, torch.zeros(3, dtype=torch.bool))


def test_policy_takes_one_observation_or_a_batch(tmp_path: Path) -> None:
    policy = rlrun.load(trained("sac", tmp_path))
    one, other = np.array([1.0, 0.0, 0.5]), np.array([0.0, 1.0, -0.5])
    single = policy.act(one)
    assert single.shape == (1,) and policy.action_space.contains(single)
    batch = policy.act(np.stack([one, other]))
    assert batch.shape == (2, 1) and batch[0] == pytest.approx(single, abs=1e-6)
    assert not np.array_equal(policy.act(one, explore=True), single)
    with pytest.raises(ValueError, match=r"shape \[4\]; expected \[3\]"):
        policy.act(np.zeros(4))


def test_policy_remembers_until_it_is_reset(tmp_path: Path) -> None:
    policy = rlrun.load(trained("ppo_lstm", tmp_path))
    obs = np.array([1.0, 0.0, 0.5])
    first = policy.act(obs)
    assert not np.array_equal(policy.act(obs), first)
    policy.reset()
    assert np.array_equal(policy.act(obs), first)


def test_policy_reset_advances_goals_as_an_evaluation_does(tmp_path: Path) -> None:
    words = ["algo=sac", "algo.goals=categorical", *CASES["sac"], *SMALL]
    path = rlrun.train(*words, run_dir=str(tmp_path / "run")).path
    policy = rlrun.load(path)
    first = torch.ones(2, dtype=torch.bool)
    obs = np.tile(np.float32([1.0, 0.0, 0.5]), (2, 1))
    with restored(path, 2, 0, {}) as found:
        goals, carry = [], {"first": first}
        for _ in range(3):
            action, extras = found.addons.act(found.agent, torch.as_tensor(obs), carry, False)
            native = found.env.actions.to_native(found.env.actions.clip(action.numpy()))
            assert np.array_equal(policy.act(obs), native)
            goals.append(extras["carry.goal"].tolist())
            carry = carried(extras, first)
            policy.reset()
    assert goals == [[0, 1], [2, 3], [0, 1]]
    assert not np.array_equal(policy.act(obs), native)


def test_train_returns_the_run_and_raises_as_the_command_line_says(tmp_path: Path) -> None:
    run = rlrun.train("algo=dqn", *CASES["dqn"], *SMALL, seed=3, run_dir=str(tmp_path / "run"))
    assert run.summary["status"] == "done" and run.summary["step"] == 60
    assert run.metrics[-1]["step"] == 60
    assert isinstance(rlrun.load(run.path).act(np.zeros(4)), np.integer)
    with pytest.raises(ConfigError, match=r"did you mean algo\.gamma"):
        rlrun.train("algo=dqn", "env=CartPole", "algo.gama=0.9")
    with pytest.raises(ConfigError):
        rlrun.load(tmp_path)


def test_importing_rlrun_takes_no_torch() -> None:
    code = "import sys, rlrun; assert 'torch' not in sys.modules; assert rlrun.train and 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
