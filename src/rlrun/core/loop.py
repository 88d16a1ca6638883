"""How data flows between environments and agent: what every loop shares."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.core.measures import Measures, add
from rlrun.core.random import Stream, sequence
from rlrun.module import Module
from rlrun.nested import on
from rlrun.types import Batch, Context, Metrics, Return, Step, carried


class Loop(Module):
    """Owns everything that a run is made of, so that its state dict is the run's state.

    horizon: the number of steps over which schedules run, fixed for the life of the run.
    """

    replays: ClassVar[bool] = False  # whether it learns from a buffer of steps, and from each more than once

    def __init__(self, cfg: Any, agent: Agent, addons: Addons, env: Any, buffer: Any, seed: int, horizon: int):
        super().__init__()
        self.agent, self.addons, self.env, self.buffer = agent, addons, env, buffer
        self.cfg, self.seed, self.horizon = cfg, seed, horizon
        self.objective = addons.spec(env.spec).objective
        self.steps = self.updates = 0
        self.clock = Clock()
        self.episodes: list[tuple[Return, int]] = []  # (return, length) of those ended; whoever reads it empties it
        self.successes: list[bool] = []  # of ended episodes, where environments tell; likewise
        self.restarted: list[str] = []  # a line for each environment made anew; whoever reads them empties it
        self.digests: dict[str, str] = {}  # SHA-256 of each data set that was read, by the key that names it
        self.measures: Measures = {}  # what the environments report beside rewards
        self.obs: Any = None  # to act on next
        self.carry: Batch = {}
        self.batch: Batch | None = None  # of the last update, for a post-mortem

    def tick(self) -> Metrics:
        """At most one vector step plus its updates, or one rollout plus its update. Metrics of the last update."""
        raise NotImplementedError

    def context(self, data: Any = None) -> Context:
        return Context(self.updates, self.steps, min(1.0, self.steps / self.horizon), data)

    def begin(self) -> None:
        """Start the first episodes."""
        self.obs = self.env.reset()
        self.carry = {"first": torch.ones(self.env.spec.num_envs, dtype=torch.bool, device=self.env.device)}

    def reset(self, seed: int | None = None) -> None:
        """Start over with what was learned: counters, schedules and episodes anew, the weights as they are.

        With a seed, environments and random streams are those of a run with that seed; without, they go on."""
        self.steps = self.updates = 0
        self.episodes, self.successes = [], []
        for module in self.modules():
            if hasattr(module, "rewind"):  # schedules, and what agents have of that kind
                module.rewind()  # type: ignore[operator]
            if seed is not None and isinstance(module, Stream):
                module.reseed(seed)
        if seed is not None:
            self.seed = seed
            self.env.reset(sequence(seed, "env"))
        self.begin()

    def advance(self, action: Tensor, extras: Batch) -> Step:
        """One vector step: counts it, keeps the carry and the episodes that ended."""
        step = self.addons.collect(self.obs, self.env.step(action), extras)
        self.obs = step.obs
        self.carry = carried(extras, step.terminated | step.truncated)
        self.steps += self.env.spec.num_envs
        info = step.info
        self.episodes.extend(info["episodes"])
        if len(info) > 1:
            self.successes.extend(info.get("success", {}).values())
            self.restarted.extend(info.get("restarted", ()))
            add(self.measures, info.get("measures", {}))
        return step

    def hear(self) -> None:
        """Take in the episodes that a simulator on an accelerator has not told, for telling would make it wait."""
        self.episodes.extend(self.env.pending_episodes())

    def get_extra_state(self) -> dict[str, Any]:
        self.hear()
        return {
            "steps": self.steps, "updates": self.updates, "horizon": self.horizon,
            "episodes": self.episodes, "successes": self.successes, "obs": self.obs, "carry": self.carry,
            "measures": self.measures,
        }  # fmt: skip

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Raises ValueError for a type that `get_extra_state` never gives: a snapshot may come from anyone."""
        for name, now in self.get_extra_state().items():
            value = on(self.env.device, state.get(name, now))
            if now is not None and not isinstance(value, Tensor if isinstance(now, Tensor) else type(now)):
                raise ValueError(f"{name} is no {type(now).__name__}")
            setattr(self, name, value)
        self.episodes = [(returned, int(length)) for returned, length in self.episodes]
