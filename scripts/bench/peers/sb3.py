"""Trains an agent of Stable-Baselines3 or SBX in its virtual environment:

`python sb3.py sb3|sbx STEPS THREADS CASE_AS_JSON`
"""

import importlib
import json
import sys

library, steps, threads, text = sys.argv[1:]
case = json.loads(text)
options = dict(case["peer"])
hidden, num_envs, frames = options.pop("hidden"), options.pop("num_envs", 1), options.pop("frames", 0)
normalize, critics = options.pop("normalize", False), options.pop("critics", None)

import torch  # noqa: E402

torch.set_num_threads(int(threads))
from stable_baselines3.common.env_util import make_atari_env, make_vec_env  # noqa: E402
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize  # noqa: E402

package = importlib.import_module({"sb3": "stable_baselines3", "sbx": "sbx"}[library])
if frames:
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    # SB3's wrappers skip frames, so the emulator does not; its sticky actions are kept
    kwargs = {"frameskip": 1, "repeat_action_probability": 0.25}
    env = VecFrameStack(make_atari_env(case["env"], n_envs=1, seed=0, env_kwargs=kwargs), frames)
else:  # with frames, CnnPolicy has the 512 units of `hidden` by default
    env = make_vec_env(case["env"], n_envs=num_envs, seed=0)
    options["policy_kwargs"] = {"net_arch": hidden} | ({"n_critics": critics} if critics else {})
if normalize:
    env = VecNormalize(env)
if library == "sb3":
    options["device"] = "cpu"
model = getattr(package, case["algo"].upper())("CnnPolicy" if frames else "MlpPolicy", env, seed=0, **options)
model.learn(total_timesteps=int(steps))
