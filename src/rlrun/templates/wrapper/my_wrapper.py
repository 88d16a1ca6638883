"""Repeats every action.

pytest my_wrapper/
rlrun train algo=ppo env=CartPole plugins=[./my_wrapper/my_wrapper.py] env.wrappers.my_wrapper.repeat=2
"""

from typing import Any

import gymnasium as gym

from rlrun.settings import PositiveInt, config, register


@register("wrapper", "my_wrapper")
class MyWrapper(gym.Wrapper):
    """Takes `repeat` steps with the same action, and returns the sum of their rewards.

    Evaluations report the rewards of the environment itself, beneath all wrappers.
    """

    @config
    class Config:
        repeat: PositiveInt = 2  # steps per action

    def __init__(self, cfg: Config, env: gym.Env):
        """Wraps one environment. A wrapper that changes observations or actions also sets their spaces here."""
        super().__init__(env)
        self.repeat = cfg.repeat

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Returns the last observation and the sum of the rewards; stops early at the end of an episode."""
        total = 0.0
        for _ in range(self.repeat):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info
