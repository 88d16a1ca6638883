"""Measures pieces of Stable-Baselines3, by rlrun's names of these pieces.

Prints the names as JSON. Then reads names from stdin, and prints for each the microseconds of CPU time per call.
"""

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
    """Yields the name of each piece, and a function that calls it once."""
    for algo, id, count, width in MODELS:
        env = make_vec_env(id, n_envs=count, seed=0)
        options = {} if algo == "PPO" else {"buffer_size": 1000}
        options["policy_kwargs"] = {"net_arch": [width, width]}
        model = getattr(stable_baselines3, algo)("MlpPolicy", env, seed=0, device="cpu", **options)
        obs = env.reset()
        yield f"act {algo.lower()}, {count} env, greedy", partial(model.predict, obs, deterministic=True)
        if algo != "TD3":  # `predict` adds no exploration noise for TD3
            yield f"act {algo.lower()}, {count} env, exploring", partial(model.predict, obs)
    env = make_vec_env("HalfCheetah-v5")
    buffer = ReplayBuffer(1_000_000, env.observation_space, env.action_space, device="cpu")
    for array in (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards, buffer.dones):
        array.fill(1)  # writes every page of the memory, so that it is allocated
    buffer.full = True
    yield "replay sample 256 of 1M", lambda: buffer.sample(256)


def microseconds(work):
    """Returns the CPU time of one call, in microseconds."""
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
