"""The record of an episode: the generators before its reset, the reset, and the actions since.

Where an engine hides its state (Box2D, PyBullet), a replay of these in a new environment reaches the same state, as
long as nothing else determines it; the self-test finds out.
"""

import hashlib
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np

from rlrun.envs.state import NotSavableError, Tree, encode

MAX_BYTES = 1_000_000  # of actions: 125,000 discrete ones, 62,500 of four floats
QUIET_S = 1.0  # a replay that takes longer is announced
TOO_LONG = f"its episode has more than {MAX_BYTES:,} bytes of actions"
NOT_RECORDED = "the beginning of its episode was not recorded"


class Episode:
    """The record of the episode under way. Grows by its actions, up to a limit."""

    def __init__(self, before: Tree | None, seed: int | None, options: dict[str, Any] | None):
        self.before = before  # from `save_before_reset`; None: the environment had just been made
        self.seed, self.options = seed, options  # of the reset
        self.actions = bytearray()
        self.obs: Any = None  # the last one

    def add(self, action: Any, obs: Any) -> None:
        self.obs = obs
        if len(self.actions) <= MAX_BYTES:
            self.actions += action.tobytes()

    def save(self) -> Tree:
        """Raises NotSavableError where the episode cannot be played again."""
        if len(self.actions) > MAX_BYTES:
            raise NotSavableError(TOO_LONG)
        start = {"before": self.before, "seed": self.seed, "options": encode(self.options)}
        return start | {"actions": np.frombuffer(bytes(self.actions), np.uint8).copy(), "obs": digest(self.obs)}


def recorded(tree: Tree) -> bool:
    """Whether a tree is an episode's, not an environment's."""
    return "actions" in tree


def play(env: gym.Env, obs: Any, tree: Tree, replay_limit_s: float) -> None:
    """Step `env` through a saved episode, of which its reset just gave `obs`.

    Raises NotSavableError where the last observation is not the one it was, bit for bit, or where it takes too long.
    One that takes long is announced, once.
    """
    if tree["actions"].nbytes > MAX_BYTES:
        raise NotSavableError(TOO_LONG)
    space: Any = env.action_space
    actions = np.frombuffer(tree["actions"].tobytes(), space.dtype).reshape(-1, *space.shape).copy()
    start, announced = time.monotonic(), False
    for action in actions:
        elapsed_s = time.monotonic() - start
        if elapsed_s > replay_limit_s:
            raise NotSavableError(f"its episode took longer than {replay_limit_s:g} s to play again")
        if elapsed_s > QUIET_S and not announced:
            print(
                f"playing {len(actions):,} steps of an episode again, to go on from there", file=sys.stderr, flush=True
            )
            announced = True
        obs, *_ = env.step(action)
    if not np.array_equal(digest(obs), tree["obs"]):
        raise NotSavableError("its episode, played again, came out differently")


def digest(obs: Any) -> np.ndarray:
    """The SHA-256 of an observation, [32] uint8: equal for observations that are equal bit for bit."""
    return np.frombuffer(hashlib.sha256(repr(raw(obs)).encode()).digest(), np.uint8).copy()


def raw(obs: Any) -> Any:
    """All bytes of an observation, however nested."""
    if isinstance(obs, dict):
        return [(key, raw(obs[key])) for key in sorted(obs)]
    if isinstance(obs, (tuple, list)):
        return [raw(part) for part in obs]
    return np.asarray(obs).tobytes()
