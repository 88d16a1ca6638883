"""Stable-Baselines3's pieces by the names that rlrun's have: prints the names as JSON, then, for each that it reads,
microseconds of CPU time per call."""

import json
import sys
import time
from functools import partial

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

SECONDS = 0.2
MODELS = (
    ("SAC", "HalfCheetah-v5", 1, 256), ("TD3", "HalfCheetah-v5", 1, 256), ("DQN", "CartPole-v1", 1, 256),
    ("PPO", "HalfCheetah-v5", 8, 64),
)  # fmt: skip
torch.set_num_threads(1)


def pieces():
    """Names of the pieces, and functions that do each once."""
    for algo, id, count, width in MODELS:
        env = make_vec_env(id, n_envs=count, seed=0)
        options = {} if algo == "PPO" else {"buffer_size": 1000}
        options["policy_kwargs"] = {"net_arch": [width, width]}
        model = getattr(stable_baselines3, algo)("MlpPolicy", env, seed=0, device="cpu", **options)
        obs = env.reset()
        yield f"act {algo.lower()}, {count} env, greedy", partial(model.predict, obs, deterministic=True)
        if algo != "TD3":  # whose noise is not added there
            yield f"act {algo.lower()}, {count} env, exploring", partial(model.predict, obs)
    env = make_vec_env("HalfCheetah-v5")
    buffer = ReplayBuffer(1_000_000, env.observation_space, env.action_space, device="cpu")
    for array in (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards, buffer.dones):
        array.fill(1)  # every page of its memory is written
    buffer.full = True
    yield "replay sample 256 of 1M", lambda: buffer.sample(256)


def microseconds(work):
    """CPU time of one call, in microseconds."""
    began = time.process_time()
    work()
    count = max(1, int(SECONDS / max(time.process_time() - began, 1e-6)))
    began = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - began) / count * 1e6


np.random.seed(0)
works = dict(pieces())
print(json.dumps([*works]), flush=True)
for line in sys.stdin:
    print(microseconds(works[line.strip()]), flush=True)
