"""The self-test: finds a method of saving an environment that restores it bit for bit.

It also compares episodes with equal seeds.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from rlrun.envs.saving import state
from rlrun.envs.saving.episode_record import raw
from rlrun.envs.stepping.obs_adapter import sample
from rlrun.envs.stepping.slot import EnvSlot, line

MethodName = Literal["native", "replay", "episode end"]
NATIVE: Final = "native"  # the state of the environment is saved
REPLAY: Final = "replay"  # the actions since the reset are saved, and replayed in a new environment
EPISODE_END: Final = "episode end"  # nothing is saved: the episode ends at a restore
MOMENTS = 5  # how often the test saves and restores
STEPS = 20  # steps before the first of these moments and after each
UNSEEDED = (
    "two new environments differ after a reset with the same seed, so equal seeds do not give equal runs; draw random "
    "numbers from self.np_random"
)
METHODS: tuple[MethodName, ...] = (NATIVE, REPLAY)  # in the order in which they are tried
INEXACT: dict[MethodName, str] = {  # the reason why a method is not used
    NATIVE: "it holds state that cannot be saved",
    REPLAY: "replays of its episodes give different results",
}
MOST_NAMES = 3  # attributes that a message names


class Method(NamedTuple):
    """The result of the self-test: how the environment is saved."""

    name: MethodName
    reason: str  # why the method is not NATIVE; empty if it is
    unrepeatable: str = ""  # why equal seeds do not give equal episodes; empty if they do


def self_test(make: Callable[[], EnvSlot]) -> Method:
    """Returns the first method that is exact, bit for bit, or EPISODE_END if no method is.

    Each test saves one instance in mid-episode, restores the state in another instance, and steps both across a reset.
    """
    unrepeatable = _unrepeatable(make, partial(_play, reset_at=STEPS // 2))
    reasons: list[str] = []
    for name in METHODS:
        reason = _failure(partial(_restore_fault, name=name), make)
        if not reason:
            return Method(name, "; ".join(reasons), unrepeatable)
        reasons.append(reason)
    return Method(EPISODE_END, "; ".join(dict.fromkeys(reasons)), unrepeatable)


def simulator_self_test(make: Callable[[], object]) -> Method:
    """Returns NATIVE or EPISODE_END for a vector env with the methods `get_extra_state` and `set_extra_state`."""
    unrepeatable = _unrepeatable(make, _play_together)
    reason = _failure(_restore_fault_together, make)
    if reason:
        return Method(EPISODE_END, reason, unrepeatable)
    return Method(NATIVE, "", unrepeatable)


@contextlib.contextmanager
def _pair(make: Callable[[], object]) -> Iterator[list[Any]]:
    """As a context manager, yields two new instances, and closes them at the end."""
    made: list[Any] = []
    try:
        made.append(make())
        made.append(make())
        yield made
    finally:
        for env in made:
            with contextlib.suppress(Exception):
                env.close()


def _failure(test: Callable[[object, object], str], make: Callable[[], object]) -> str:
    """Runs a test with two instances. Returns why it failed, or "" if it passed."""
    try:
        with _pair(make) as made:
            return test(*made)
    except Exception as error:
        return f"its self-test failed ({line(error)})"


def _unrepeatable(make: Callable[[], object], play: Callable[..., "Played"]) -> str:
    """Returns `Method.unrepeatable`, or "" if the environment fails, because the tests of methods then fail too."""
    with contextlib.suppress(Exception), _pair(make) as (one, other):
        return _seed_fault(one, other, play)
    return ""


def _seed_fault(one: Any, other: Any, play: Callable[..., "Played"]) -> str:
    """Returns why episodes with equal seeds differ, or "" if they are equal.

    Compares the first episodes of two new instances, and then the first with a later episode of the same instance.
    """
    obs, _ = one.reset(seed=0)
    start = raw(obs)
    begun = _attributes(one)
    first = play(one, obs, _actions(one))
    obs, _ = other.reset(seed=0)
    if raw(obs) != start or play(other, obs, first.actions).seen != first.seen:
        return UNSEEDED
    obs, _ = one.reset(seed=0)
    now = _attributes(one)
    if raw(obs) == start and play(one, obs, first.actions).seen == first.seen:
        return ""
    names = [name for name, value in now.items() if begun.get(name) != value]
    kept = ""
    if names:
        kept = f" ({', '.join(names[:MOST_NAMES])})"
    return (
        f"it keeps state{kept} across a reset with the same seed, which new environments lack, such as those of every "
        "evaluation; env.normalize=obs shares the statistics of normalized observations"
    )


def _attributes(env: object) -> dict[str, object]:
    """Returns the attributes of all wrappers of an instance and of the environment in them, by name; see `_comparable`.

    Attributes that a saved state cannot hold are left out.
    """
    found = {}
    layer = vars(env)["env"]
    while layer is not None:
        for name, value in state.attributes(layer).items():
            found[f"{type(layer).__name__}.{name}"] = _comparable(value)
        layer = vars(layer).get("env")
    return found


def _comparable(tree: state.Tree) -> object:
    """Returns a saved state with its arrays as bytes."""
    if isinstance(tree, np.ndarray):
        return tree.tobytes()
    if isinstance(tree, dict):
        return {key: _comparable(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_comparable(value) for value in tree]
    return tree


def _actions(env: gym.Env) -> gym.Space:
    """Returns a seeded copy of an action space, as the environment may sample from its own."""
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    return space


def _restore_fault(one: EnvSlot, other: EnvSlot, name: MethodName) -> str:
    """Returns why an environment that a method has saved and restored differs in any bit, or "" if it does not.

    Saves `one` at several moments, restores each state in `other`, and steps both with the same actions. After every
    other moment, both are reset on the way.
    """
    if name == REPLAY:
        one.record()
    space = _actions(one)
    obs, _ = one.reset(seed=0)
    played = _play(one, obs, space)
    for moment in range(MOMENTS):
        refused = other.load(one.save(), replay_limit_s=np.inf)
        if refused:
            raise ValueError(refused)
        reset_at = None
        if moment % 2:
            reset_at = STEPS // 2
        obs = played.obs
        played = _play(one, obs, space, reset_at)
        if played.seen != _play(other, obs, played.actions, reset_at).seen:
            return INEXACT[name]
    return ""


def _restore_fault_together(one: Any, other: Any) -> str:
    """Returns why saving the state of a vector env is not exact, or "" if it is."""
    space = _actions(one)
    obs, _ = one.reset(seed=0)
    for _ in range(MOMENTS):
        other.set_extra_state(one.get_extra_state())
        played = _play_together(one, obs, space)
        if _play_together(other, obs, played.actions).seen != played.seen:
            return INEXACT[NATIVE]
    return ""


class Played(NamedTuple):
    """The record of some steps."""

    seen: Sequence[object]  # observations and rewards as bytes, and the flags terminated and truncated
    actions: list[object]
    obs: object  # the last observation


def _play(env: EnvSlot, obs: object, actions: list[object] | gym.Space, reset_at: int | None = None) -> Played:
    """Takes STEPS steps from `obs` with `actions`, or with allowed actions drawn from a space.

    Resets the environment after step `reset_at` and wherever an episode ends.
    """
    seen, taken = [], []
    for t in range(STEPS):
        if isinstance(actions, gym.Space):
            action = sample(actions, obs)
        else:
            action = actions[t]
        taken.append(action)
        obs, reward, terminated, truncated, _ = env.step(copy.deepcopy(action))  # the environment may change its copy
        seen.append((raw(obs), np.float64(reward).tobytes(), terminated, truncated))
        if terminated or truncated or t == reset_at:
            obs, _ = env.reset()
            seen.append(raw(obs))
    return Played(seen, taken, obs)


def _play_together(env: gym.Env, obs: object, actions: list[object] | gym.Space) -> Played:
    """Takes STEPS steps of a vector env with `actions`, or with actions drawn from a space."""
    if isinstance(actions, gym.Space):
        actions = [actions.sample() for _ in range(STEPS)]
    seen = []
    for action in actions:
        *result, _ = env.step(copy.deepcopy(action))
        seen.append(raw(result))
        obs = result[0]
    return Played(seen, actions, obs)
