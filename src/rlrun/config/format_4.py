"""What changed from format 3 to 4.

The loggers of a run became parts with settings, in place of true and false. The word in `env.normalize` became a
section with the constants that had no keys.
"""

from typing import Any

from rlrun.config.loggers import SECTION, switched

NORMALIZE = "normalize"
CONSTANTS = {"clip_obs": 10.0, "clip_reward": 10.0, "epsilon": 1e-8, "gamma": None}


def regroup(values: dict[str, Any]) -> None:
    """Replaces `logger: {console: true, tensorboard: false}` by the loggers that are on, and `env.normalize: obs` by a
    section, in place."""
    section = values.get(SECTION)
    if isinstance(section, dict):
        values[SECTION] = switched(section)
    env = values.get("env")
    if isinstance(env, dict) and isinstance(env.get(NORMALIZE), str):
        env[NORMALIZE] = {"kind": env[NORMALIZE]} | CONSTANTS
