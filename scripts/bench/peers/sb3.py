"""Trains Stable-Baselines3 or SBX in their own venv: `python sb3.py sb3|sbx STEPS THREADS CASE_AS_JSON`."""

import importlib
import json
import sys

library, steps, threads, text = sys.argv[1:]
case = json.loads(text)
options = dict(case["peer"])
num_envs, normalize = int(options.pop("num_envs", 1)), options.pop("normalize", False)

import torch  # noqa: E402

torch.set_num_threads(int(threads))
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402

package = importlib.import_module({"sb3": "stable_baselines3", "sbx": "sbx"}[library])
env = make_vec_env(case["env"], n_envs=num_envs, seed=0)
if normalize:
    env = VecNormalize(env)
if library == "sb3":
    options["device"] = "cpu"
model = getattr(package, case["algo"].upper())("MlpPolicy", env, seed=0, verbose=0, **options)
model.learn(total_timesteps=int(steps))
