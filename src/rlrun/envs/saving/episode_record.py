"""Saves an environment as the record of its current episode: the state before the reset, the reset, and the actions.

This is for engines whose state cannot be read (Box2D, PyBullet): a replay of the record in a new environment reaches
the same state, provided that nothing else determines it. The self-test checks that.
"""

import hashlib
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np

from rlrun.envs.saving.state import NotSavableError, Tree, encode
from rlrun.envs.stepping.actions import leaves, nested

MAX_BYTES = 1_000_000  # of recorded actions: 125,000 discrete actions, or 62,500 actions of four floats
QUIET_S = 1.0  # if a replay takes longer than this, a message is printed
TOO_LONG = f"its episode has more than {MAX_BYTES:,} bytes of actions"
NOT_RECORDED = "the beginning of its episode was not recorded"


class RecordedEpisode:
    """The record of the current episode. Every step adds an action and sets `obs`.

    Actions are kept until they exceed MAX_BYTES; `save` then refuses the record.
    """

    def __init__(self, before: Tree | None, seed: int | None, options: dict[str, object] | None):
        self.before = before  # from `save_before_reset`; None if it is the first episode of a new environment
        self.seed, self.options = seed, options  # arguments of the reset
        self.actions = bytearray()
        self.obs: object = None  # the last observation

    def add(self, action: object) -> None:
        if len(self.actions) <= MAX_BYTES:
            self.actions += encoded(action)

    def save(self) -> Tree:
        """Returns the record as a tree. Raises NotSavableError if the episode is too long to be replayed."""
        if len(self.actions) > MAX_BYTES:
            raise NotSavableError(TOO_LONG)
        return {
            "before": self.before,
            "seed": self.seed,
            "options": encode(self.options),
            "actions": np.frombuffer(bytes(self.actions), np.uint8).copy(),
            "obs": digest(self.obs),
        }


def is_record(tree: Any) -> bool:
    """Returns whether a tree is the record of an episode rather than the state of an environment."""
    return "actions" in tree


def play(env: gym.Env, obs: object, tree: Any, replay_limit_s: float) -> None:
    """Replays the actions of a saved episode in `env`, which was reset with the seed and options of that episode.

    obs: the observation that this reset returned.

    Raises NotSavableError if the last observation differs in any bit from the recorded one, or if the replay takes
    longer than `replay_limit_s`. Prints one message if it takes longer than QUIET_S.
    """
    if tree["actions"].nbytes > MAX_BYTES:
        raise NotSavableError(TOO_LONG)
    actions = decoded(env.action_space, tree["actions"].tobytes())
    start = time.monotonic()
    announced = False
    for action in actions:
        elapsed_s = time.monotonic() - start
        if elapsed_s > replay_limit_s:
            raise NotSavableError(f"the replay of its episode took longer than {replay_limit_s:g} s")
        if elapsed_s > QUIET_S and not announced:
            print(
                f"replaying {len(actions):,} steps of an episode, to continue from there", file=sys.stderr, flush=True
            )
            announced = True
        obs, *_ = env.step(action)
    if not np.array_equal(digest(obs), tree["obs"]):
        raise NotSavableError("the replay of its episode gave different results")


def encoded(action: Any) -> bytes:
    """Returns the bytes of an action, part by part if it is a tuple or dict."""
    if isinstance(action, dict):
        return b"".join(map(encoded, action.values()))
    if isinstance(action, tuple):
        return b"".join(map(encoded, action))
    return action.tobytes()  # type: ignore[no-any-return]


def decoded(space: gym.Space, data: bytes) -> list[Any]:
    """Returns the actions whose bytes, as from `encoded`, are joined in `data`. Raises ValueError for other lengths."""
    parts = [np.dtype((part.dtype, part.shape)) for _, part in leaves(space)]
    record = np.dtype([(str(index), part) for index, part in enumerate(parts)])
    actions = []
    for row in np.frombuffer(data, record):
        values = [row[str(index)].copy() for index in range(len(parts))]
        actions.append(nested(space, iter(values)))
    return actions


def digest(obs: object) -> np.ndarray:
    """Returns the SHA-256 of an observation, [32] uint8; equal only if two observations have the same bits."""
    return np.frombuffer(hashlib.sha256(repr(raw(obs)).encode()).digest(), np.uint8).copy()


def raw(obs: object) -> Any:
    """Returns an observation with its arrays as bytes and its dicts as lists of (key, value), sorted by key."""
    if isinstance(obs, dict):
        return [(key, raw(obs[key])) for key in sorted(obs)]
    if isinstance(obs, (tuple, list)):
        return [raw(part) for part in obs]
    return np.asarray(obs).tobytes()
