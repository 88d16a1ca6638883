"""Trains SAC of Stable-Baselines3 with its defaults, and writes its returns for the comparison in docs/learning.md:

    python scripts/bench/peers/sb3_returns.py Hopper 0 300000

Run it with the interpreter that `scripts/bench/run setup` installed for sb3. Warm-up takes 10,000 steps, as in RL Zoo's
hyperparameters for MuJoCo. Every 10,000 steps, ten deterministic episodes are evaluated. Adam is the fused variant,
which computes the same update.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

EVERY = 10_000
KEPT = Path(__file__).parents[3] / "docs" / "learning"


def returns(env: str, seed: int, steps: int) -> list[float]:
    """Trains with one seed. Returns the mean returns of the evaluations, one every `EVERY` steps."""
    torch.set_num_threads(1)
    adam = {"optimizer_kwargs": {"fused": True}}
    model = SAC("MlpPolicy", gym.make(f"{env}-v5"), seed=seed, learning_starts=10_000, policy_kwargs=adam, device="cpu")
    shown = Monitor(gym.make(f"{env}-v5"))
    shown.reset(seed=seed + 1000)
    means = []
    for done in range(EVERY, steps + 1, EVERY):
        model.learn(EVERY, reset_num_timesteps=False)
        means.append(round(float(evaluate_policy(model, shown, 10)[0]), 4))
        print(done, means[-1], flush=True)
    return means


def keep(env: str, seed: int, steps: int) -> None:
    """Measures the returns of one seed and adds them to the file in docs/learning."""
    path = KEPT / f"sb3_sac-{env}.json"
    kept = json.loads(path.read_text())["runs"] if path.exists() else []
    begun = time.time()
    means = returns(env, seed, steps)
    line = {
        "seed": seed, "steps": steps, "settings": "", "wall_s": round(time.time() - begun, 1), "git": None,
        "versions": {name: version(name) for name in ("stable-baselines3", "torch", "gymnasium", "mujoco")},
        "at": [*range(EVERY, steps + 1, EVERY)], "returns": means,
    }  # fmt: skip
    kept = [old for old in kept if (old["steps"], old["seed"]) != (steps, seed)] + [line]
    kept.sort(key=lambda old: old["seed"])
    lines = ",\n".join(f"  {json.dumps(old)}" for old in kept)
    path.write_text(f'{{"algo": "sac of stable-baselines3", "env": "{env}", "runs": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    keep(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
