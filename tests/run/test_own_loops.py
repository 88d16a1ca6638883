"""Environments, policies and replay for loops of the user's own, of a stored run and in a callback."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import VectorEnv

import rlrun
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.callback import Callback
from rlrun.envs.making.passed import passed
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_loop
from rlrun.run.plain_env import make_env
from rlrun.run.policy import Policy
from rlrun.settings import register, registry

SHORT = ["preset=none", "trainer.total_steps=60", "trainer.eval_every=30", "trainer.eval_episodes=1", "logger=[]",
         "network.hidden=[8]", "trainer.eval_max_steps=7", "trainer.log_every=30", "trainer.engine=eager"]  # fmt: skip
REPLAY = ["algo.loop.warmup_steps=20", "algo.loop.batch_size=8"]
ALGOS = {
    "sac": ["env=Pendulum", "env.num_envs=2", *REPLAY],
    "ppo": ["env=Pendulum", "env.num_envs=2", "env.normalize=both", "algo.loop.rollout_steps=5"],
    "ppo_lstm": ["env=Pendulum", "env.num_envs=2", "network.features=8", "algo.loop.rollout_steps=10"],
    "dqn": ["env=CartPole", "env.num_envs=2", *REPLAY],
}
SEEN: list[Any] = []


class Watcher(Callback):
    """Evaluates copies of the policy by itself, with all that they can do."""

    def on_evaluation(self, metrics: Any) -> None:
        policy = self.run.policy()
        env: Any = self.run.make_env()
        venv: Any = self.run.make_env(num_envs=2)
        obs, _ = env.reset(seed=0)
        for _ in range(3):
            for estimate in (policy.value, policy.q, policy.distribution):
                try:
                    estimate(obs)
                except (ConfigError, ValueError):
                    continue
            obs, *_ = env.step(policy.act(obs, explore=True))
        obs, _ = venv.reset(seed=0)
        venv.step(policy.act(obs))
        torch.nn.init.zeros_(next(policy.agent.parameters()))
        with torch.no_grad():
            for buffer in policy.addons.buffers():
                buffer.fill_(7)
        SEEN.append(policy)


class Keeper(Callback):
    """Keeps the policy and the replay of the last step."""

    def on_end(self, summary: Any) -> None:
        SEEN.append(self.run.policy())
        SEEN.append(self.run.replay())


@pytest.fixture(autouse=True)
def callbacks() -> Iterator[None]:
    SEEN.clear()
    for cls in (Watcher, Keeper):
        register("callback", cls.__name__.lower())(cls)
    yield
    for cls in (Watcher, Keeper):
        registry._registry["callback"].pop(cls.__name__.lower())


def train(folder: Path, algo: str, *words: str) -> rlrun.Run:
    given = {word.partition("=")[0] for word in words}
    short = [word for word in SHORT if word.partition("=")[0] not in given]
    return rlrun.train(f"algo={algo}", *ALGOS[algo], *short, *words, run_dir=folder)


def digest(run: rlrun.Run) -> dict[str, str]:
    """The SHA-256 of weights, state and replay in the last snapshot."""
    newest = max((run.path / "snapshots").glob("step_*"))
    files = [file for file in sorted(newest.rglob("*")) if file.suffix in (".safetensors", ".bin")]
    assert files
    return {str(file.relative_to(newest)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize(("algo", "engine"), [("sac", "eager"), ("ppo", "auto"), ("ppo_lstm", "eager")])
def test_policy_in_a_callback_changes_no_bit_of_the_run(algo: str, engine: str, tmp_path: Path) -> None:
    words = [f"trainer.engine={engine}"]
    alone = train(tmp_path / "alone", algo, *words)
    watched = train(tmp_path / "watched", algo, *words, "callbacks=[watcher]")
    assert len(SEEN) == 2 and SEEN[0].agent is not SEEN[1].agent
    assert digest(watched) == digest(alone)


def test_copies_in_a_callback_equal_what_is_stored(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "sac", "callbacks=[keeper]", "trainer.eval_episodes=0", "env.normalize=obs")
    copy, live = SEEN
    policy = run.load()
    obs = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    action = policy.act(obs)
    assert np.array_equal(copy.act(obs), action)
    assert np.array_equal(copy.q(obs, action), policy.q(obs, action))
    explored = copy.act(obs, explore=True)
    assert not np.array_equal(explored, action)
    assert not np.array_equal(explored, policy.act(obs, explore=True)), "its random numbers are not those of the run"
    replay = run.replay()
    assert replay.keys() == live.keys() >= {"obs", "action", "reward", "terminated", "truncated", "next_obs", "weight"}
    for name, values in replay.items():
        assert np.array_equal(values, live[name]), name


def test_replay_holds_the_steps_of_the_environment_in_order(tmp_path: Path) -> None:
    words = ["algo.buffer.capacity=40", "algo.buffer.reward_clip=0.5", "algo.n_step=3", "env.max_episode_steps=10"]
    replay = train(tmp_path / "run", "sac", *words).replay()
    assert len(replay["obs"]) == 40, "the last 20 of 30 steps of two environments"
    one = {name: values[1::2] for name, values in replay.items()}
    assert np.flatnonzero(one["truncated"]).tolist() == [9, 19] and not one["terminated"].any()
    inside = np.flatnonzero(~one["truncated"][:-1])
    assert np.array_equal(one["next_obs"][inside], one["obs"][inside + 1])
    cos, sin, speed = one["obs"].T
    angle, torque = np.arctan2(sin, cos), one["action"][:, 0]
    assert np.abs(torque).max() > 1, "in the units of the environment"
    assert one["reward"] == pytest.approx(-(angle**2 + 0.1 * speed**2 + 0.001 * torque**2), rel=1e-3)


def test_replay_of_a_recurrent_agent_is_of_single_steps(tmp_path: Path) -> None:
    words = ["network=gru", "network.features=8", "algo.loop.warmup_steps=100"]
    words = [word for word in [*ALGOS["sac"], *SHORT, *words] if word not in ("network.hidden=[8]", REPLAY[0])]
    replay = rlrun.train("algo=sac", *words, run_dir=tmp_path / "run").replay()
    assert replay["obs"].shape == (60, 3) and replay["reward"].shape == (60,) and "memory" in replay


def test_run_without_replay_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^algo=ppo has no replay buffer$"):
        train(tmp_path / "ppo", "ppo").replay()
    run = train(tmp_path / "sac", "sac", "trainer.snapshot_replay=false")
    with pytest.raises(
        ConfigError, match=r"step_000000060: holds no replay, because of trainer\.snapshot_replay=false$"
    ):
        run.replay()


CASES = {
    "pong": ["algo=ppo", "env=Pong"],
    "goals": ["algo=sac", "env=PointReach"],
    "wrapped": ["algo=sac", "env=Pendulum", "env.wrappers.time_limit.max_steps=5", "env.kwargs.g=3.0"],
    "dict": ["algo=ppo", "env=Platform"],
    "masked": ["algo=ppo", "env=Taxi", "env.action_mask=true"],
    "torch": ["algo=ppo", "env=CartPole", "env.backend=torch"],
}


@pytest.mark.parametrize("case", CASES)
def test_environments_of_a_run_are_those_of_its_evaluations(case: str) -> None:
    if case == "pong":
        pytest.importorskip("ale_py")
    words = ["preset=none", "env.num_envs=1", "env.selftest=off", "trainer.eval_max_steps=7", "trainer.engine=eager"]
    (job,) = jobs([*CASES[case], *words])
    config = run_config(job.values)
    loop = build_loop(config)
    loop.env.close()
    policy = Policy(loop.agent, loop.addons, loop.env.spec, loop.env.device)
    env: Any = make_env(config)
    assert isinstance(env, gym.Env)
    assert env.observation_space == policy.observation_space and env.action_space == policy.action_space
    obs, _ = env.reset(seed=0)
    steps, ended = 0, False
    while not ended:
        obs, _, terminated, truncated, _ = env.step(policy.act(obs))
        steps, ended = steps + 1, terminated or truncated
    assert terminated or steps == (5 if case == "wrapped" else 7), "trainer.eval_max_steps, or the wrapper"
    if case == "wrapped":
        assert env.unwrapped.g == 3.0
    venv: Any = make_env(config, num_envs=2)
    assert isinstance(venv, VectorEnv) and venv.num_envs == 2
    obs, _ = venv.reset(seed=[0, 1])
    obs, reward, *_ = venv.step(policy.act(obs))
    assert reward.shape == (2,)


def test_instance_seed_is_passed_to_every_reset() -> None:
    given: list[Any] = []

    class Own(gym.Env[Any, Any]):
        observation_space = action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
            given.append(options)
            return 0, {}

    with passed(Own) as id:
        (job,) = jobs(["algo=q_learning", f"env={id}", "env.instance_seed=5", "env.action_mask=false"])
        env = make_env(run_config(job.values))
    env.reset()
    env.reset(options={"other": 1})
    assert given == [{"instance_seed": 5}, {"other": 1, "instance_seed": 5}]


def test_environments_of_a_run_are_drawn_or_refused_in_one_line(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "dqn", "trainer.total_steps=24")
    env: Any = run.make_env(render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().ndim == 3
    of_snapshot = rlrun.Run(run.path / "snapshots/step_000000024").make_env()
    assert of_snapshot.reset(seed=0)[0].tolist() == env.reset(seed=0)[0].tolist()
    with pytest.raises(ConfigError, match=r"other: no such snapshot$"):
        rlrun.Run(run.path / "snapshots/other").make_env()
    with pytest.raises(ConfigError, match=r"^num_envs=0: must be a whole number"):
        run.make_env(num_envs=0)
    with pytest.raises(ConfigError, match="render_mode=nonsense: CartPole-v1 has no such render mode"):
        run.make_env(render_mode="nonsense")


def test_environment_of_an_untrusted_run_names_no_code_and_no_file(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "dqn", "trainer.total_steps=24")
    config = run.path / "config.yaml"
    text = config.read_text()
    assert "id: CartPole-v1" in text and "  kwargs: {}" in text
    config.write_text(text.replace("id: CartPole-v1", "id: colorsys:Evil-v1"))
    with pytest.raises(ConfigError, match="needs code of its own"):
        run.make_env()
    config.write_text(text.replace("  kwargs: {}", "  kwargs: {path: /etc/passwd}"))
    with pytest.raises(ConfigError, match=r"env\.kwargs\.path"):
        run.make_env()


def test_environment_passed_as_an_object_is_passed_again(tmp_path: Path) -> None:
    def own() -> gym.Env:
        return gym.make("CartPole-v1")

    words = [word for word in ALGOS["dqn"] if not word.startswith("env=")]
    run = rlrun.train("algo=dqn", *words, *SHORT, "trainer.total_steps=24", env=own, run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match="was passed as an object"):
        run.make_env()
    env: Any = run.make_env(env=own)
    assert run.load(env=own).act(env.reset(seed=0)[0]) in env.action_space


def test_environments_of_a_run_have_their_index_and_are_those_of_its_snapshots(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "dqn", "env.index_kwarg=sutton_barto_reward")
    venv: Any = run.make_env(num_envs=2)
    assert [env.unwrapped._sutton_barto_reward for env in venv.envs] == [0, 1]
    config = run.path / "config.yaml"
    config.write_text(config.read_text().replace("gamma: 0.99", "gamma: 0.5"))
    with pytest.raises(ConfigError, match=r"was edited: algo\.gamma 0\.99 -> 0\.5"):
        run.make_env()


def test_replay_beyond_the_memory_is_refused_before_it_is_composed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(tmp_path / "run", "sac")
    wanted = []
    monkeypatch.setattr("rlrun.run.replayed.memory", SimpleNamespace(check_fits=lambda *args: wanted.append(args)))
    run.replay()
    assert wanted == [("a replay of 60 steps", 60 * 2 * 3 * 4)], "float32 observations and next ones, of 3 numbers"
