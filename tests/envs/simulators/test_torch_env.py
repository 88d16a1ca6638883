"""Environments in torch end and begin episodes, draw random numbers, and are saved, as every other environment."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pages import snippets
from toys import equal, toy, train

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.envs.simulators.suite import ENTRY_POINTS
from rlrun.envs.simulators.torch_env import _put, _where
from rlrun.envs.stepping.accelerated import Accelerated
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.run.assemble import build_loop, eval_env
from rlrun.snapshot import tree

Make = Callable[..., VectorEnv]


@pytest.fixture
def make(make_env: Make) -> Make:
    return lambda num_envs=8, id="CartPole-v1", **values: make_env(id, num_envs, backend="torch", **values)


def test_torch_env_truncates_at_the_limit_and_keeps_next_obs(make: Make) -> None:
    env = make(id="Pendulum-v1", max_episode_steps=3)
    begun = env.reset()
    steps = [env.step(torch.zeros(8, 1))[0] for _ in range(6)]
    assert [step["truncated"].all().item() for step in steps] == [False, False, True] * 2
    assert not any(step["terminated"].any() for step in steps)
    assert not torch.equal(steps[2]["next_obs"], steps[2]["following"]) and not torch.equal(
        steps[2]["following"], begun
    )
    assert torch.equal(steps[1]["next_obs"], steps[1]["following"])
    assert [episode.length for episode in env.pending_episodes()] == [3] * 16


def test_torch_env_step_that_terminates_at_the_limit_is_terminated(make: Make) -> None:
    env = make(id="rlrun/ProbeRecall-v0", max_episode_steps=4, kwargs={"length": 3})
    env.reset()
    steps = [env.step(torch.ones(8, dtype=torch.int64))[0] for _ in range(4)]
    assert steps[3]["terminated"].all() and not steps[3]["truncated"].any()


def test_torch_env_resets_only_rows_whose_episode_ended(make: Make) -> None:
    env, random = make(64), Stream(0, "actions")
    begun, ended = [*env.reset().tolist()], 0
    for _ in range(200):
        step, _ = env.step(env.sample(random))
        rows = step["terminated"] | step["truncated"]
        assert torch.equal(step["following"][~rows], step["next_obs"][~rows])
        begun += step["following"][rows].tolist()
        ended += int(rows.sum())
    assert ended > 300 and len({tuple(obs) for obs in begun}) == 64 + ended
    assert np.abs(begun).max() <= 0.05 and 0.02 < np.std(begun) < 0.04, "uniform in +-0.05"
    episodes = env.pending_episodes()
    assert len(episodes) == ended and all(episode.returned == episode.length for episode in episodes)


def test_torch_env_resets_on_a_gpu_select_the_rows_that_the_cpu_writes() -> None:
    random, ended = Stream(0, "values"), torch.tensor([True, False, False, True, False])
    rows = ended.nonzero()[:, 0]
    floats, new_floats = random.uniform(5, 2, 3), random.uniform(5, 2, 3)
    for old, new in ((floats, new_floats), (torch.arange(5), -torch.arange(5)), (floats > 0.5, new_floats > 0.5)):
        before = old.clone()
        selected = _where(ended, old, new)
        assert torch.equal(selected, _put(rows, old, new[rows])) and selected.dtype == old.dtype
        assert torch.equal(selected[~ended], before[~ended]) and torch.equal(selected[ended], new[ended])
        assert torch.equal(old, before), "what was handed out is not written to"


def test_torch_env_draws_the_same_numbers_for_the_same_seed(make: Make) -> None:
    one, same, other = make(seed=1), make(seed=1), make(seed=2)
    first = one.reset()
    assert torch.equal(first, same.reset()) and not torch.equal(first, other.reset())
    again = one.reset()
    assert torch.equal(again, same.reset()) and not torch.equal(again, first)
    assert torch.equal(one.reset(np.random.SeedSequence(1)), first)


@pytest.mark.parametrize("id", ENTRY_POINTS)
def test_torch_env_resumes_bit_for_bit(id: str, make: Make) -> None:
    one, other, random = make(16, id, seed=1), make(16, id, seed=2), Stream(0, "actions")
    one.reset()
    actions = [one.sample(random) for _ in range(60)]
    for action in actions[:20]:
        one.step(action)
    one.pending_episodes()
    other.set_extra_state(tree.decode(*tree.encode({"env": one.get_extra_state()}))["env"])
    for action in actions[20:]:
        assert equal(one.step(action), other.step(action))
    assert one.pending_episodes() == other.pending_episodes()


def test_ppo_with_torch_envs_resumes_bit_for_bit(build: Callable[..., Loop]) -> None:
    values = toy("ppo")
    values["env"] = values["env"] | {"id": "CartPole-v1", "backend": "torch", "num_envs": 8, "max_episode_steps": None}
    one, other = train(build(values), 2), build(values)
    other.load_state_dict(one.state_dict())
    first, second = (tree.encode(train(loop, 4).state_dict()) for loop in (one, other))
    assert first[0] == second[0] and one.metrics.episodes
    assert all(torch.equal(tensor, second[1][name]) for name, tensor in first[1].items())


def test_torch_env_of_the_page_trains_and_can_be_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_walk.py").write_text(snippets("docs/environments.md")[-1])
    monkeypatch.chdir(tmp_path)
    words = ["algo=ppo", "env=./own_walk.py:Walk-v0", "preset=none", "env.backend=native", "env.num_envs=16"]
    words += ["env.kwargs.step=0.5", "algo.loop.rollout_steps=8", "algo.minibatch_size=64"]
    words += ["trainer.total_steps=256", "trainer.eval_episodes=2", "trainer.eval_max_steps=50", "logger=[]"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    assert main(["eval", str(tmp_path / "run"), "episodes=2", "plugins=[./own_walk.py]"]) == 0


@pytest.mark.parametrize(
    ("env", "kind"), [("CartPole", VectorEnv), ("PointMass", VectorEnv), ("GridMaze", Accelerated)]
)
def test_evaluation_uses_single_environments_where_they_exist(env: str, kind: type) -> None:
    config = run_config(jobs(["algo=ppo", f"env={env}", "preset=none", "env.backend=torch"])[0].values)
    made = eval_env(config, 0, "eval", 2, torch.device("cpu"))
    assert type(made) is kind
    made.close()


def test_hindsight_replay_learns_from_torch_envs() -> None:
    words = ["algo=dqn", "env=BitFlip", "preset=none", "env.backend=torch", "env.num_envs=16", "algo.buffer=hindsight"]
    loop = build_loop(run_config(jobs([*words, "algo.loop.warmup_steps=64", "algo.buffer.capacity=256"])[0].values))
    loop.begin()
    train(loop, 3)
    loop.env.close()


def test_run_with_torch_envs_is_resumed_and_evaluated_from_the_command_line(tmp_path: Path) -> None:
    words = ["trainer.total_steps=3072", "trainer.eval_episodes=2", "logger=[]", "trainer.log_every=1024"]
    words += ["algo.loop.rollout_steps=16", "algo.minibatch_size=256", "trainer.eval_every=0"]
    train = ["train", "algo=ppo", "env=GridMaze", "preset=none", "env.num_envs=64", *words]
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    assert main([*train, f"run_dir={whole}"]) == 0
    assert main([*train, f"run_dir={paused}", "trainer.stop_at=1024"]) == 0
    assert main(["resume", str(paused), "trainer.stop_at=null"]) == 0
    assert main(["eval", str(paused), "episodes=2"]) == 0
    rows = [[json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()] for run in (whole, paused)]
    assert len(rows[0]) == len(rows[1]) > 2
    for one, other in zip(*rows, strict=True):
        losses = [key for key in one if key.startswith(("train/", "loss/", "eval/"))]
        assert losses and all(one[key] == other[key] for key in losses)


def test_torch_env_without_images_is_not_filmed_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["algo=ppo", "env=GridMaze", "preset=none", "env.num_envs=8", "algo.loop.rollout_steps=8"]
    words += ["algo.minibatch_size=64", "trainer.total_steps=64", "trainer.eval_episodes=0", "logger=[]"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("DISPLAY", ":7")
    line = "rlrun/GridMaze-v0 has no such render mode; it draws no images, so it can be neither filmed nor shown\n"
    for command, mode in ((["eval", "video=true"], "rgb_array"), (["watch"], "human")):
        assert main([command[0], str(tmp_path / "run"), *command[1:]]) == 2
        out, err = capsys.readouterr()
        assert (out, err) == ("", f"error: env.kwargs.render_mode={mode}: {line}")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["env=Acrobot"],
            "env.backend=torch: Acrobot-v1 is not written in torch (there are: CartPole-v1, Pendulum-v1, ",
        ),
        (["env=CartPole", "env.wrappers.time_limit.max_steps=5"], "and does not support wrappers"),
        (["env=CartPole", "env.instance_seed=3"], "and does not support instance_seed"),
        (["env=Pendulum", "env.kwargs.gravity=5"], "unexpected keyword argument 'gravity'"),
        (["env=BitFlip", "env.kwargs.bits=63"], "bits=63: must be from 1 to 62"),
        (["env=GridMaze", "env.kwargs.render_mode=rgb_array"], "rlrun/GridMaze-v0 has no such render mode"),
        (["env=GridMaze", "env.kwargs.size=1"], "size=1 mazes=10: must be at least 2 and at least 1"),
    ],
)
def test_torch_backend_refuses_in_one_line(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["algo=ppo", "preset=none", "env.backend=torch", f"run_dir={tmp_path / 'run'}", "logger=[]"]
    assert main(["train", *common, *words]) == 2
    error = capsys.readouterr().err
    assert line in error and len(error.strip().splitlines()) == 1
