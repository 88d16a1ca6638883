"""The self-test: which method of saving an environment restores it bit for bit."""

import contextlib
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rlrun.envs.obs_adapter import sample
from rlrun.envs.replay import raw
from rlrun.envs.slot import EnvSlot, line

MethodName = Literal["native", "replay", "episode end"]
NATIVE: Final = "native"  # its state is saved
REPLAY: Final = "replay"  # its episode is saved as the actions since the reset, and played again
EPISODE_END: Final = "episode end"  # nothing is saved: the episode ends at a restore
MOMENTS, STEPS = 5, 20  # how often it is saved, and steps in between


class Method(NamedTuple):
    """How an environment is saved, as the self-test found it."""

    name: MethodName
    reason: str  # why not NATIVE; empty where it is


def self_test(make: Callable[[], EnvSlot]) -> Method:
    """The first method that is exact bit for bit: saved in mid-episode, restored in another instance, stepped across a
    reset."""
    reasons: list[str] = []
    for name, test in TESTS.items():
        reason = _failure(test, make)
        if not reason:
            return Method(name, "; ".join(reasons))
        reasons.append(reason)
    return Method(EPISODE_END, "; ".join(dict.fromkeys(reasons)))


def simulator_self_test(make: Callable[[], Any]) -> Method:
    """NATIVE or EPISODE_END, for simulators that step all their environments at once and save their own state."""
    reason = _failure(_together, make)
    if reason:
        return Method(EPISODE_END, reason)
    return Method(NATIVE, "")


def _failure(test: Callable[[Any, Any], str], make: Callable[[], Any]) -> str:
    """Run a test with two instances. Returns why it failed, or nothing."""
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
    """Why saving the state is not exact, or nothing."""
    if _agree(one, other):
        return ""
    return "it holds state that cannot be saved"


def _replay(one: EnvSlot, other: EnvSlot) -> str:
    """Why replaying episodes is not exact, or nothing."""
    one.record()
    if _agree(one, other):
        return ""
    return "its episodes, played again, come out differently"


def _together(one: Any, other: Any) -> str:
    """Why saving the state of a simulator is not exact, or nothing."""
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
    """Whether `other`, restored from `one`, does the same from there on; in a first episode and in later ones."""
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

    seen: list[Any]  # observations, rewards and ends, as bytes
    actions: list[Any]
    obs: Any  # the last one


def _play(env: EnvSlot, obs: Any, reset_at: int | None = None, actions: list[Any] | None = None) -> Played:
    """From `obs` through `actions`, or allowed random ones, resetting at `reset_at` and where episodes end."""
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
