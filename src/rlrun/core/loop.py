"""How data flows between environments and agent: what every loop shares."""

from typing import Any, ClassVar

from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.core.collector import Collector, Timestep
from rlrun.core.measures import Measures, add
from rlrun.core.random import Stream, sequence
from rlrun.core.schedule import Rewindable
from rlrun.module import Module
from rlrun.nested import on
from rlrun.types import Batch, Context, Metrics, Return, Step


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
        self.collector = Collector(agent, addons, env, self.clock)
        # The trainer reads and empties these three.
        self.episodes: list[tuple[Return, int]] = []  # return and length of those that ended
        self.successes: list[bool] = []  # of ended episodes, in environments that report success
        self.restarted: list[str] = []  # a line for each environment that was made anew
        self.digests: dict[str, str] = {}  # SHA-256 of each data set that was read, by the key that names it
        self.measures: Measures = {}  # what the environments report beside rewards
        self.batch: Batch | None = None  # of the last update, for a post-mortem

    def tick(self) -> Metrics:
        """At most one vector step plus its updates, or one rollout plus its update. Metrics of the last update."""
        raise NotImplementedError

    def context(self, data: Any = None) -> Context:
        return Context(self.updates, self.steps, min(1.0, self.steps / self.horizon), data)

    def begin(self) -> None:
        """Start the first episodes."""
        self.collector.begin()

    def reset(self, seed: int | None = None) -> None:
        """Start over with what was learned: counters, schedules and episodes anew, the weights as they are.

        With a seed, environments and random streams are those of a run with that seed; without, they go on."""
        self.steps = self.updates = 0
        self.episodes = []
        self.successes = []
        for module in self.modules():
            if isinstance(module, Rewindable):
                module.rewind()
            if seed is not None and isinstance(module, Stream):
                module.reseed(seed)
        if seed is not None:
            self.seed = seed
            self.env.reset(sequence(seed, "env"))
        self.begin()

    def receive(self, timestep: Timestep) -> Step:
        """Count a timestep over all environments, and let add-ons collect it: once each, in order.

        Returns the step as it is learned from, with the rewards of add-ons in further columns.
        """
        step = self.addons.collect(timestep.obs, timestep.step, timestep.extras)
        self.steps += self.env.spec.num_envs
        info = step.info
        self.episodes.extend(info["episodes"])
        if len(info) > 1:
            self.successes.extend(info.get("success", {}).values())
            self.restarted.extend(info.get("restarted", ()))
            add(self.measures, info.get("measures", {}))
        return step

    def fetch_episodes(self) -> None:
        """Read the episodes that ended in a simulator on an accelerator, which waits for it: so not at every step."""
        self.episodes.extend(self.env.pending_episodes())

    @property
    def obs(self) -> Any:
        """The observations to act on next."""
        return self.collector.obs

    @obs.setter
    def obs(self, obs: Any) -> None:
        self.collector.obs = obs

    @property
    def carry(self) -> Batch:
        """What acting carries from step to step."""
        return self.collector.carry

    @carry.setter
    def carry(self, carry: Batch) -> None:
        self.collector.carry = carry

    def get_extra_state(self) -> dict[str, Any]:
        self.fetch_episodes()
        return {
            "steps": self.steps,
            "updates": self.updates,
            "horizon": self.horizon,
            "episodes": self.episodes,
            "successes": self.successes,
            "obs": self.obs,
            "carry": self.carry,
            "measures": self.measures,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Raises ValueError for a type that `get_extra_state` never gives: a snapshot may come from anyone."""
        for name, now in self.get_extra_state().items():
            value = on(self.env.device, state.get(name, now))
            expected = Tensor if isinstance(now, Tensor) else type(now)
            if now is not None and not isinstance(value, expected):
                raise ValueError(f"{name} is no {type(now).__name__}")
            setattr(self, name, value)
        self.episodes = [(returned, int(length)) for returned, length in self.episodes]
