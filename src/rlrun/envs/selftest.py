"""The self-test: finds a method of saving an environment that restores it bit for bit."""

import contextlib
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rlrun.envs.obs_adapter import sample
from rlrun.envs.replay import raw
from rlrun.envs.slot import EnvSlot, line

MethodName = Literal["native", "replay", "episode end"]
NATIVE: Final = "native"  # the state of the environment is saved
REPLAY: Final = "replay"  # the actions since the reset are saved, and replayed in a new environment
EPISODE_END: Final = "episode end"  # nothing is saved: the episode ends at a restore
MOMENTS, STEPS = 5, 20  # how often the test saves and restores, and the steps after each time


class Method(NamedTuple):
    """The result of the self-test: how the environment is saved."""

    name: MethodName
    reason: str  # why the method is not NATIVE; empty if it is


def self_test(make: Callable[[], EnvSlot]) -> Method:
    """Returns the first method that is exact, bit for bit, or EPISODE_END if no method is.

    Each test saves one instance in mid-episode, restores the state in another instance, and steps both across a reset.
    """
    reasons: list[str] = []
    for name, test in TESTS.items():
        reason = _failure(test, make)
        if not reason:
            return Method(name, "; ".join(reasons))
        reasons.append(reason)
    return Method(EPISODE_END, "; ".join(dict.fromkeys(reasons)))


def simulator_self_test(make: Callable[[], Any]) -> Method:
    """Returns NATIVE or EPISODE_END for a vector env with the methods `get_extra_state` and `set_extra_state`."""
    reason = _failure(_together, make)
    if reason:
        return Method(EPISODE_END, reason)
    return Method(NATIVE, "")


def _failure(test: Callable[[Any, Any], str], make: Callable[[], Any]) -> str:
    """Runs a test with two instances. Returns why it failed, or "" if it passed."""
    made: list[Any] = []
    try:
        made.append(make())
        made.append(make())
        return test(*made)
    except Exception as error:
        return f"its self-test failed ({line(error)})"
    finally:
        for env in made:
            with contextlib.suppress(Exception):
                env.close()


def _native(one: EnvSlot, other: EnvSlot) -> str:
    """Returns why saving the state is not exact, or "" if it is."""
    if _agree(one, other):
        return ""
    return "it holds state that cannot be saved"


def _replay(one: EnvSlot, other: EnvSlot) -> str:
    """Returns why replaying episodes is not exact, or "" if it is."""
    one.record()
    if _agree(one, other):
        return ""
    return "replays of its episodes give different results"


def _together(one: Any, other: Any) -> str:
    """Returns why saving the state of a vector env is not exact, or "" if it is."""
    one.action_space.seed(0)
    one.reset(seed=[0] * one.num_envs)
    for _ in range(MOMENTS):
        actions = [one.action_space.sample() for _ in range(STEPS)]
        other.set_extra_state(one.get_extra_state())
        seen = [raw(one.step(action)[:4]) for action in actions]
        again = [raw(other.step(action)[:4]) for action in actions]
        if seen != again:
            return "it holds state that cannot be saved"
    return ""


TESTS: dict[MethodName, Callable[[EnvSlot, EnvSlot], str]] = {NATIVE: _native, REPLAY: _replay}


def _agree(one: EnvSlot, other: EnvSlot) -> bool:
    """Returns whether `other`, restored from the saved state of `one`, then gives the same results bit for bit.

    It is tested in the first episode and in later ones, and across resets in mid-episode.
    """
    one.action_space.seed(0)
    obs, _ = one.reset(seed=0)
    played = _play(one, obs)
    for moment in range(MOMENTS):
        refused = other.load(one.save(), np.inf)
        if refused:
            raise ValueError(refused)
        reset_at = None
        if moment % 2:
            reset_at = STEPS // 2
        obs = played.obs
        played = _play(one, obs, reset_at)
        if played.seen != _play(other, obs, reset_at, played.actions).seen:
            return False
    return True


class Played(NamedTuple):
    """The record of some steps."""

    seen: list[Any]  # observations and rewards as bytes, and the flags terminated and truncated
    actions: list[Any]
    obs: Any  # the last observation


def _play(env: EnvSlot, obs: Any, reset_at: int | None = None, actions: list[Any] | None = None) -> Played:
    """Takes STEPS steps from `obs` with `actions`, or with random allowed actions if `actions` is None.

    Resets the environment after step `reset_at` and wherever an episode ends.
    """
    seen, taken = [], []
    for t in range(STEPS):
        if actions is None:
            action = sample(env.action_space, obs)
        else:
            action = actions[t]
        taken.append(action)
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append((raw(obs), np.float64(reward).tobytes(), terminated, truncated))
        if terminated or truncated or t == reset_at:
            obs, _ = env.reset()
            seen.append(raw(obs))
    return Played(seen, taken, obs)
