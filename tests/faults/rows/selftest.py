"""Exact saving of environments: every id that can be created here, by its self-test and by one more trial."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from saving_methods import saving_methods
from toys import NO_RAY, NOT_NORMALIZED, equal

from rlrun.envs.config import EnvConfig
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError
from rlrun.snapshot import tree
from rows import Options, Tally, some

SHARE = 0.95  # minimum fraction of the ids that must be exact
STEPS = 12


def every_id(options: Options) -> Tally:
    from rlrun.envs.saving.selftest import EPISODE_END, NATIVE, REPLAY

    ids = some(options.count, registered(), options.random("selftest"))
    tally, made, tried = Tally(), saving_methods(ids), 0
    exact = [id for id, method in made.items() if method.name in (NATIVE, REPLAY)]
    for id, method in made.items():
        tally.expect(method.name != EPISODE_END or method.reason, f"{id}: not exact, and it does not say why")
    for id in exact:
        try:
            tried += 1
            tally.expect(goes_on(id), f"{id}: {made[id].name}, but the restored one does other things")
        except ConfigError:  # an observation space that needs a wrapper
            tried -= 1
    tally.cases = len(made)
    tally.expect(len(exact) >= SHARE * len(made), f"{len(exact)} of {len(made)} are exact")
    counts = ", ".join(f"{count} {name}" for name, count in Counter(m.name for m in made.values()).most_common())
    share = 100 * len(exact) / max(1, len(made))
    inexact = ", ".join(sorted({*made} - {*exact})) or "none"
    tally.note = f"{counts} of {len(ids)} ids; {share:.1f} % exact, {tried} tried once more as vectors; not: {inexact}"
    return tally


def registered() -> list[str]:
    import gymnasium

    import rlrun.envs.builtin  # noqa: F401 (registers its ids)

    try:
        import ale_py

        gymnasium.register_envs(ale_py)
    except ImportError:
        pass
    return sorted(gymnasium.registry)


def goes_on(id: str) -> bool:
    """Whether a vector environment that is saved in mid-episode and restored in another one continues bit for bit; the
    state is converted to the form of a snapshot and back."""
    made = [VectorEnv.make(config(id), np.random.SeedSequence(seed)) for seed in (1, 2)]
    try:
        one, other = made
        assert one.method == other.method
        actions = draws(one, 3 * STEPS)
        one.reset()
        play(one, actions[:STEPS])
        skeleton, arrays = tree.encode({"env": one.get_extra_state()})
        other.set_extra_state(tree.decode(skeleton, arrays)["env"])
        return equal(play(one, actions[STEPS:]), play(other, actions[STEPS:]))
    finally:
        for env in made:
            env.close()


def config(id: str) -> EnvConfig:
    given: dict[str, Any] = {
        "backend": "sync",
        "ray": NO_RAY,
        "kwargs": {},
        "task_kwargs": {},
        "index_kwarg": None,
        "wrappers": {},
        "normalize": NOT_NORMALIZED,
        "transforms": [],
        "timeout_s": 60.0,
    }
    given |= {"max_episode_steps": None, "instance_seed": None, "on_failure": "raise"}
    given |= {"eval_kwargs": {}}
    given |= {"action_mask": True, "selftest": "auto", "log_info": [], "executed_action": None, "schedule": {}}
    return EnvConfig(id=id, num_envs=1, **given)


def draws(env: VectorEnv, count: int) -> list[torch.Tensor]:
    space = env.spec.action
    space.seed(3)
    return [torch.as_tensor(np.asarray(space.sample()))[None] for _ in range(count)]


def play(env: VectorEnv, actions: list[torch.Tensor]) -> list[tuple]:
    seen = []
    for action in actions:
        step, _ = env.step(action)
        seen.append((step["following"], step["next_obs"], step["reward"], step["terminated"], step["truncated"]))
    return seen
