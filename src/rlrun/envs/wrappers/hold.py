"""A wrapper with which an agent chooses how long to hold each action (Sharma et al. 2017, arXiv 1702.06054)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np

from rlrun.settings import Around, Fraction, Requires, Units, config, register
from rlrun.types import Info

HELD = "rlrun.held"  # key of infos


class Held(NamedTuple):
    """What happened while an action was held."""

    n_steps: int  # steps of the wrapped environment
    reward: Any  # reward of one of these steps, drawn uniformly


@register("wrapper", "hold")
class Hold(Requires, gym.Wrapper):
    """Adds to the action how long it is held: (k, action) takes up to k + 1 steps, for k from 0 to max_steps - 1.

    The reward is the discounted sum of the rewards of these steps. The end of an episode also ends a hold. An agent
    discounts the value after n steps by gamma^n, so it must have the same gamma.
    """

    registered: ClassVar[str]
    holds = True  # its infos have HELD

    @config
    class Config:
        max_steps: Units
        gamma: Fraction

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        if around.gamma is not None and around.gamma != own["gamma"]:
            yield (
                f"env.wrappers.hold.gamma={own['gamma']}: must be algo.gamma, which is {around.gamma}, because the "
                "agent discounts the value after a held action"
            )
        if around.discounts is not None:
            yield (
                f"algo.reward_weights.gamma={around.discounts}: is not supported with env.wrappers.hold, which sums "
                "rewards with one discount; set null"
            )
        if around.reads_data or around.buffer == "demos":
            yield "env.wrappers.hold: is not supported with data sets and demonstrations"
        if around.executed_action is not None:
            yield f"env.wrappers.hold: is not supported with env.executed_action={around.executed_action}"
        if around.recurrent and around.buffer is not None:
            yield (
                f"env.wrappers.hold: is not supported by algo={around.algo} with network={around.network}, which "
                "counts the steps of replayed sequences"
            )

    def __init__(self, cfg: Config, env: gym.Env):
        super().__init__(env)
        self.gamma = cfg.gamma
        self.action_space = gym.spaces.Tuple((gym.spaces.Discrete(cfg.max_steps), env.action_space))
        self.random = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Sequence[object]) -> tuple[object, SupportsFloat, bool, bool, Info]:
        k, held_action = action
        limit = int(np.asarray(k).item()) + 1
        total: Any = 0.0
        n_steps = 0
        ended = False
        while n_steps < limit and not ended:
            obs, reward, terminated, truncated, info = self.env.step(held_action)
            total = total + self.gamma**n_steps * np.asarray(reward)
            n_steps += 1
            if self.random.integers(n_steps) == 0:  # reservoir sampling: the n-th reward is kept with probability 1 / n
                drawn = reward
            ended = terminated or truncated
        return obs, total, terminated, truncated, info | {HELD: Held(n_steps, drawn)}


def holds(env: gym.Env) -> bool:
    """Returns whether a step of an environment may last several steps of the environment that it wraps."""
    try:
        return bool(env.get_wrapper_attr("holds"))
    except AttributeError:
        return False
