"""Which way of saving is exact for an environment: tried, not believed."""

import contextlib
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rlrun.envs.presented import sample
from rlrun.envs.replay import raw
from rlrun.envs.slot import Slot, line

MethodName = Literal["native", "replay", "episode end"]
NATIVE: Final = "native"  # its state is saved
REPLAY: Final = "replay"  # its episode is saved as the actions since the reset, and played again
EPISODE_END: Final = "episode end"  # nothing is saved: the episode ends at a restore
MOMENTS, STEPS = 5, 20  # of saving, and between them: what a first draw hides, another shows


class Method(NamedTuple):
    """How an environment is saved, as the self-test found it."""

    name: MethodName
    reason: str  # why not NATIVE; empty where it is


def self_test(make: Callable[[], Slot]) -> Method:
    """The first method that proves bitwise exact: saved in mid-episode, restored elsewhere, stepped across a reset."""
    reasons: list[str] = []
    for name, test in TESTS.items():
        reason = _failure(test, make)
        if not reason:
            return Method(name, "; ".join(reasons))
        reasons.append(reason)
    return Method(EPISODE_END, "; ".join(dict.fromkeys(reasons)))


def simulator_self_test(make: Callable[[], Any]) -> Method:
    """NATIVE or EPISODE_END, for simulators that step all their environments at once and are to know their state."""
    reason = _failure(_together, make)
    return Method(EPISODE_END if reason else NATIVE, reason)


def _failure(test: Callable[[Any, Any], str], make: Callable[[], Any]) -> str:
    made: list[Any] = []
    try:
        made += [make()]
        made += [make()]
        return test(*made)
    except Exception as error:
        return f"its self-test failed ({line(error)})"
    finally:
        for env in made:
            with contextlib.suppress(Exception):
                env.close()


def _native(one: Slot, other: Slot) -> str:
    """Why saving the state does not do, or nothing."""
    return "" if _agree(one, other) else "it holds state that cannot be saved"


def _replay(one: Slot, other: Slot) -> str:
    """Why playing episodes again does not do, or nothing."""
    one.record()
    return "" if _agree(one, other) else "its episodes, played again, come out differently"


def _together(one: Any, other: Any) -> str:
    """Why saving the state of a simulator does not do, or nothing."""
    one.action_space.seed(0)
    one.reset(seed=[0] * one.num_envs)
    for _ in range(MOMENTS):
        actions = [one.action_space.sample() for _ in range(STEPS)]
        other.set_extra_state(one.get_extra_state())
        seen, again = ([[raw(part) for part in env.step(a)[:4]] for a in actions] for env in (one, other))
        if seen != again:
            return "it holds state that cannot be saved"
    return ""


TESTS: dict[MethodName, Callable[[Slot, Slot], str]] = {NATIVE: _native, REPLAY: _replay}


def _agree(one: Slot, other: Slot) -> bool:
    """Whether `other`, restored from `one`, does the same from there on; in a first episode and in later ones."""
    one.action_space.seed(0)
    obs, _ = one.reset(seed=0)
    played = _play(one, obs)
    for moment in range(MOMENTS):
        refused = other.load(one.save(), np.inf)
        if refused:
            raise ValueError(refused)
        reset_at = STEPS // 2 if moment % 2 else None
        obs = played.obs
        played = _play(one, obs, reset_at)
        if played.seen != _play(other, obs, reset_at, played.actions).seen:
            return False
    return True


class Played(NamedTuple):
    """What came out of some steps."""

    seen: list[Any]  # all that came out, as bytes
    actions: list[Any]
    obs: Any  # the last one


def _play(env: Slot, obs: Any, reset_at: int | None = None, actions: list[Any] | None = None) -> Played:
    """From `obs` through `actions`, or allowed random ones, resetting at `reset_at` and where episodes end."""
    seen, taken = [], []
    for t in range(STEPS):
        taken.append(sample(env.action_space, obs) if actions is None else actions[t])
        obs, reward, terminated, truncated, _ = env.step(taken[-1])
        seen.append((raw(obs), np.float64(reward).tobytes(), terminated, truncated))
        if terminated or truncated or t == reset_at:
            obs, _ = env.reset()
            seen.append(raw(obs))
    return Played(seen, taken, obs)
