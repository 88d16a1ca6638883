"""Excessive sizes are refused before anything is allocated or written, in typed and in stored configs."""

import shutil

import pytest
import yaml

from rlrun import dotted
from rlrun.cli import main
from rlrun.config import resumable
from rlrun.config.jobs import jobs

TOO_LARGE = [
    ("ppo", "CartPole", "env.num_envs=1048576", "env.num_envs=1048576: must be at most 4096 with env.backend=sync; "),
    ("ppo", "CartPole", "algo.loop.rollout_steps=1e12", "algo.loop.rollout_steps=1000000000000, env.num_envs=8: needs"),
    ("ppo", "CartPole", "algo.loop.lag=1e9", "algo.loop.rollout_steps=256, algo.loop.lag=1000000000, env.num_envs=8: "),
    ("dqn", "CartPole", "algo.loop.shard_steps=1e12", "algo.loop.shard_steps=1000000000000, env.num_envs=1: needs"),
    (
        "ppo",
        "CartPole",
        "algo.minibatch_size=1e12",
        "algo.minibatch_size=1000000000000: must be less than or equal to ",
    ),
    (
        "ppo",
        "CartPole",
        "trainer.eval_episodes=1e12",
        "trainer.eval_episodes=1000000000000: must be less than or equal ",
    ),
    ("ppo", "CartPole", "network.hidden=[64,1e9]", "network.hidden.1=1000000000: must be less than or equal to 16384"),
    (
        "sac",
        "Pendulum",
        "algo.buffer.capacity=1e15",
        "algo.buffer.capacity=1000000000000000: needs 40,978,193.3 GiB of ",
    ),
    (
        "sac",
        "Pendulum",
        "algo.loop.batch_size=1e12",
        "algo.loop.batch_size=1000000000000: must be less than or equal to",
    ),
    (
        "sac",
        "Pendulum",
        "algo.critic.members=1e9",
        "algo.critic.members=1000000000: must be less than or equal to 16384",
    ),
    ("vpg", "CartPole", "algo.loop.min_steps=1e13", "algo.loop.min_steps=10000000000000, env.num_envs=8: needs"),
    (
        "svpg",
        "CartPole",
        "algo.num_particles=1e9",
        "algo.num_particles=1000000000: must be less than or equal to 16384",
    ),
    (
        "cem",
        "CartPole",
        "algo.population=1e12",
        "algo.population=1000000000000: must be less than or equal to 16777216",
    ),
    (
        "qr_dqn",
        "CartPole",
        "algo.critic.num_quantiles=1e9",
        "algo.critic.num_quantiles=1000000000: must be less than",
    ),
    ("dqn", "Pong", "env.wrappers.frame_stack.stack=1e9", "env.wrappers.frame_stack.stack=1000000000: must be less "),
    ("ppo", "CartPole", f"name={'a' * 300}", f"name='{'a' * 76}...: must be at most 255 bytes long"),
    ("ppo", "CartPole", f"run_dir=b/{'a' * 300}", f"run_dir='b/{'a' * 74}...: must be at most 255 bytes long"),
    (
        "ppo",
        "CartPole",
        "env.task_kwargs.x=[2,1]",
        "env.task_kwargs.x=[2, 1]: must be [low, high] with low at most high",
    ),
    ("ppo", "CartPole", "env.task_kwargs.x=[2,inf]", "env.task_kwargs.x.1=inf: must be a finite number"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of PPO."""
    path = tmp_path_factory.mktemp("stored") / "run"
    words = ["env=CartPole", "total_steps=8", "algo.loop.rollout_steps=1", "algo.minibatch_size=8", "algo.epochs=1"]
    quiet = ["logger=[]", "trainer.eval_episodes=1", "trainer.eval_max_steps=2"]
    assert main(["train", "algo=ppo", *words, *quiet, f"run_dir={path}"]) == 0
    return path


@pytest.mark.parametrize(("algo", "env", "word", "line"), TOO_LARGE)
def test_sizes_have_an_upper_bound(algo, env, word, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", f"algo={algo}", f"env={env}", word]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {line}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("env.num_envs", 2**20, "env.num_envs=1048576: must be at most 4096"),
        ("algo.loop.rollout_steps", 10**12, "algo.loop.rollout_steps=1000000000000, env.num_envs=8: needs"),
        ("trainer.eval_episodes", 10**12, "trainer.eval_episodes=1000000000000: must be less than or equal to"),
        ("network.hidden", [10**9], "network.hidden.0=1000000000: must be less than or equal to 16384"),
    ],
)
def test_sizes_of_a_stored_config_are_bounded_alike(run, tmp_path, key, value, line, capsys, monkeypatch):
    monkeypatch.setattr(resumable, "check_unchanged", lambda run, then: None)  # the snapshots are forged consistently
    shutil.copytree(run, tmp_path / "run")
    config = yaml.safe_load((run / "config.yaml").read_text())
    section, _, name = key.rpartition(".")
    dotted.lookup(section, config)[name] = value
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["resume", str(tmp_path / "run"), "total_steps=16"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said


def test_num_envs_of_simulators_may_be_large():
    (job,) = jobs(["algo=ppo", "env=CartPole", "env.backend=native", f"env.num_envs={2**17}"])
    assert job.values["env"]["num_envs"] == 2**17
