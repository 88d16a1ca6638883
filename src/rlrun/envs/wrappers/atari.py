"""Atari: the preprocessing of frames and actions, and sticky actions (arXiv 1709.06009) whose state can be saved."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np

from rlrun.envs.wrappers.wrapper import CONTINUES, RESTART, Wrapper
from rlrun.settings import IntRange, NonNegativeInt, Units, config, register
from rlrun.types import Info

STICKY, STICKY_DEFAULT = "repeat_action_probability", 0.25  # ale_py's keyword and its default
NOOP, FIRE = "NOOP", "FIRE"  # as ALE names these actions


class StickyALE:
    """An ALEInterface that repeats the last action with some probability, in place of ALE's own sticky actions.

    ALE's saved state lacks the last action. If the first frame after a restore repeats that action, the game continues
    differently (measured: in 5 of 48 restores). Here the last action is an attribute that `saving.state` saves, and
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


@register("wrapper", "atari")
class Atari(Wrapper):
    """Prepares Atari games for an agent, as in Mnih et al. 2015 (doi 10.1038/nature14236) and OpenAI Baselines.

    A game begins with up to `noop_max` no-ops, and with FIRE if the game has this action: in Breakout, for example,
    only FIRE serves a ball. Every step repeats its action for `frame_skip` frames and shows the maximum of the last two
    frames of this step, in grey or colour, resized to a square. If the game ends within a step, these are the last
    frames before the end. With `terminal_on_life_loss`, a lost life is the end of an episode for the agent, but not for
    the game: the next reset makes one step without action, presses FIRE, and goes on (EpisodicLifeEnv of Baselines).
    Returns, time limits and evaluations are of whole games.

    RAM observations (obs_type=ram) are those after the last frame, unchanged.
    """

    evaluation: ClassVar[Mapping[str, Any]] = MappingProxyType({"terminal_on_life_loss": False})

    @config
    class Config:
        noop_max: NonNegativeInt
        fire_reset: bool
        frame_skip: IntRange
        grayscale: bool
        screen_size: Units
        terminal_on_life_loss: bool

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        self.cfg = cfg
        core: Any = env.unwrapped
        if not hasattr(core, "ale"):
            raise ValueError("env.wrappers.atari is for Atari environments only")
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise ValueError("env.wrappers.atari needs env.kwargs.continuous=false")
        if cfg.frame_skip != [1, 1] and getattr(core, "_frameskip", 1) != 1:
            raise ValueError("env.wrappers.atari skips frames itself; set env.kwargs.frameskip=1")
        self.core, self.ale = core, core.ale
        self.lives = 0
        self.continues = False  # whether the last step lost a life and ended the agent's episode, but not the game
        actions = core.get_action_meanings()
        self.noop = actions.index(NOOP)
        self.fire: int | None = None  # the action to press at a reset
        if cfg.fire_reset and FIRE in actions:
            self.fire = actions.index(FIRE)
        self._choose_screen()

    def _choose_screen(self) -> None:
        """Sets the observation space, and how a frame is read if the environment does not show it in this form."""
        self.read: Callable[[], np.ndarray] | None = None
        space = self.env.observation_space
        if not isinstance(space, gym.spaces.Box):
            raise ValueError(f"env.wrappers.atari needs Box observations, got {type(space).__name__}")
        self.shows_ram = len(space.shape) == 1
        if self.shows_ram:
            return
        shape: tuple[int, ...] = (self.cfg.screen_size, self.cfg.screen_size)
        if not self.cfg.grayscale:
            shape = (*shape, 3)
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        if len(space.shape) == len(shape):
            return
        self.read = self.ale.getScreenRGB
        if self.cfg.grayscale:
            self.read = self.ale.getScreenGrayscale

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[object, Info]:
        """Begins a new game, or goes on with the game after a lost life unless there is a seed or RESTART."""
        restart = False
        if options is not None:
            options = dict(options)
            restart = options.pop(RESTART, False)
        continues = self.continues and seed is None and not restart
        if continues:
            obs, info, continues = self._press(self.noop)
        else:
            obs, info = self._begin(seed, options)
        if self.fire is not None:
            obs, info, is_same_game = self._press(self.fire)
            continues = continues and is_same_game
        self.continues = False
        self.lives = self.ale.lives()
        if continues:
            info = info | {CONTINUES: True}
        return obs, info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self._repeat(action)
        self.continues = not (terminated or truncated) and self._is_life_lost()
        self.lives = self.ale.lives()
        if self.continues:
            return obs, reward, True, False, info | {CONTINUES: True}
        return obs, reward, terminated, truncated, info

    def _begin(self, seed: int | None, options: dict[str, object] | None) -> tuple[object, Info]:
        """Begins a new game, with a random number of no-ops."""
        frame, info = self.env.reset(seed=seed, options=options)
        noops = 0
        if self.cfg.noop_max:
            noops = self.core.np_random.integers(1, self.cfg.noop_max + 1)
        for _ in range(noops):
            frame, _, terminated, truncated, info = self.env.step(self.noop)
            if terminated or truncated:
                frame, info = self.env.reset(options=options)
        return self._shown([self._frame(frame)]), info

    def _press(self, action: int) -> tuple[object, Info, bool]:
        """Takes a step within a reset, and begins a new game if the step ends the game.

        Returns (observation, info, whether it is still the same game).
        """
        obs, _, terminated, truncated, info = self._repeat(action)
        if terminated or truncated:
            return *self._begin(None, None), False
        return obs, info, True

    def _repeat(self, action: Any) -> tuple[object, float, bool, bool, Info]:
        """Repeats an action for the frames of one step, until the game ends or a life that counts is lost."""
        low, high = self.cfg.frame_skip
        skip = low
        if low < high:
            skip = self.core.np_random.integers(low, high + 1)
        frames: list[np.ndarray] = []
        total = 0.0
        terminated = truncated = False
        info: Info = {}
        for _ in range(skip):
            frame, reward, terminated, truncated, info = self.env.step(action)
            frames.append(self._frame(frame))
            total += float(reward)
            if terminated or truncated or self._is_life_lost():
                break
        return self._shown(frames), total, terminated, truncated, info

    def _is_life_lost(self) -> bool:
        """Returns whether a life has been lost that ends the episode for the agent.

        The number of lives may be 0 before the game is over (in Q*bert); then the game's own end follows.
        """
        return self.cfg.terminal_on_life_loss and 0 < self.ale.lives() < self.lives

    def _frame(self, frame: object) -> Any:
        """Returns the current frame in grey or colour, as the agent's observation needs it."""
        if self.read is None:
            return frame
        return self.read()

    def _shown(self, frames: list[Any]) -> np.ndarray:
        """Returns the observation after these frames of one step."""
        if self.shows_ram:
            return frames[-1]
        import cv2

        image = frames[-1]
        if len(frames) > 1:
            image = np.maximum(frames[-2], image)
        side = self.cfg.screen_size
        return cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
