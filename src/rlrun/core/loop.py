"""Base class of loops, which collect steps from the environments and call the agent's `update`."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from rlrun.core.accumulator import Accumulator
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.core.collector import Collector
from rlrun.module import Module
from rlrun.nested import on
from rlrun.schedules.curriculum import Curriculum
from rlrun.schedules.numbers import Schedules
from rlrun.settings import Around, Requires
from rlrun.types import NOTHING, Batch, Context, Events, Metrics, Obs, Step


class Loop(Requires, Module):
    """Owns agent, add-ons, environments and buffer, so its state dict is the state of the run.

    horizon: the number of steps over which schedules run. A resume with more steps does not change the horizon.
    """

    replays: ClassVar[bool] = False  # whether it learns from a replay buffer
    has_reports: ClassVar[bool] = True  # whether its batches may hold reports of the environment
    refills: ClassVar[bool] = False  # whether it can fill an empty buffer again in mid-run, by `refill`

    def __init__(self, cfg: Any, agent: Agent, addons: Addons, env: Any, buffer: Any, seed: int, horizon: int):
        super().__init__()
        self.agent, self.addons, self.env, self.buffer = agent, addons, env, buffer
        self.cfg, self.seed, self.horizon = cfg, seed, horizon
        self.objective = addons.spec_after(env.spec).objective
        self.steps = self.updates = 0
        self.clock = Clock()
        self.collector = Collector(agent, addons, env, self.clock)
        # a line for each environment that failed and was created again; the trainer reads and empties it
        self.restarted: list[str] = []
        self.digests: dict[str, str] = {}  # SHA-256 of each data set that was read, by `key=value` of its setting
        # moving averages are over a 20th of the run
        self.metrics = Accumulator(env.device, window=max(1, horizon // env.spec.num_envs // 20))
        self.curriculum: Curriculum | None = None  # schedules of environment parameters, if there are any
        self.schedules = Schedules({})  # of hyperparameters
        self.tick_start = 0  # `steps` at the start of the tick
        self.batch: Any = None  # batch of the last update, for a post-mortem

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        if cls.replays != around.keeps_replay:
            why = "which learns from replay" if around.keeps_replay else "which has no replay"
            yield f"algo.loop={around.loop} is not supported by algo={around.algo}, {why}"
        if cls.replays and not cls.refills and not around.snapshot_replay:
            yield (
                f"trainer.snapshot_replay=false is not supported by algo.loop={around.loop}: replay holds data sets, "
                "which a resumed run does not read again"
            )

    def tick(self) -> Metrics:
        """Runs one timestep and the updates due, or one rollout and its update. Returns the last update's metrics, or
        {} if there was no update."""
        raise NotImplementedError

    def first_update(self) -> tuple[str, int]:
        """Returns the config setting that determines when the first update is made, and the number of transitions
        before that update; ("", 0) if the loop does not know this number."""
        return "", 0

    def last_points(self) -> Iterator[tuple[str, int]]:
        """Yields (setting, environment step of the last value) of each schedule with values at environment steps."""
        yield from self.schedules.last_points()
        if self.curriculum is not None:
            yield from self.curriculum.last_points()

    def shorten_rollouts(self, transitions: int) -> float:
        """Limits rollouts to about this many transitions, for measurements of time.

        Returns the new length divided by the configured one: 1 for loops whose rollouts cannot be shortened.
        """
        return 1.0

    def start_tick(self) -> None:
        """Starts the clock of a tick."""
        self.clock.start()
        self.tick_start = self.steps

    def begin_update(self, ctx: Context) -> None:
        """Sets hyperparameters that have a schedule to their values for this update."""
        if self.schedules.numbers:
            self.schedules.update(ctx, self.tick_start)

    def context(self, data: object = None) -> Context:
        """Returns the context of an update at this point of the run."""
        return Context(self.updates, self.steps, min(1.0, self.steps / self.horizon), data)

    def count_update(self, metrics: Metrics) -> Metrics:
        """Counts an update, and adds its metrics to the means of the next log row. Returns the metrics."""
        self.updates += 1
        self.metrics.add(metrics)
        self.clock.lap("update")
        return metrics

    def begin(self) -> None:
        """Resets all environments."""
        self.set_parameters()
        self.collector.begin()

    def refill(self) -> None:
        """Empties the replay buffer and begins new episodes, which fill it again. Only for loops with `refills`."""
        raise NotImplementedError

    def receive(self, step: Step, events: Events) -> Step:
        """Counts a step as `count` does, and passes scheduled parameters to the environments."""
        step = self.count(step, events)
        self.set_parameters()
        return step

    def count(self, step: Step, events: Events) -> Step:
        """Counts a step and passes it to the add-ons. Called exactly once for each step, in order.

        Returns the step to learn from, which has a further reward column for each intrinsic reward.
        """
        self.steps += self.env.spec.num_envs
        if events is not NOTHING:
            self.metrics.episodes.extend(events.episodes)
            self.restarted.extend(events.restarted)
            self.metrics.measure(events.measures)
            self.metrics.log(events.logged)
        if self.curriculum is not None:
            self.curriculum.observe(events.episodes)
        return self.addons.on_step(step)

    def set_parameters(self) -> None:
        """Passes the current values of scheduled parameters to the environments. Called when a run is resumed too."""
        if self.curriculum is not None:
            self.env.set_parameters(self.env_parameters())

    def env_parameters(self) -> dict[str, float]:
        """Returns the current values of scheduled parameters of the environments."""
        if self.curriculum is None:
            return {}
        return self.curriculum.values(self.steps, min(1.0, self.steps / self.horizon))

    def fetch_episodes(self) -> None:
        """Reads the episodes that ended in a simulator on a GPU. Called rarely, because it waits for the GPU."""
        self.metrics.episodes.extend(self.env.pending_episodes())

    @property
    def obs(self) -> Any:
        """The observations to act on next."""
        return self.collector.obs

    @obs.setter
    def obs(self, obs: Obs) -> None:
        self.collector.obs = obs

    @property
    def carry(self) -> Batch:
        """The carry for the next call of `act`."""
        return self.collector.carry

    @carry.setter
    def carry(self, carry: Batch) -> None:
        self.collector.carry = carry

    def get_extra_state(self) -> dict[str, object]:
        self.fetch_episodes()
        return {
            "steps": self.steps,
            "updates": self.updates,
            "horizon": self.horizon,
            "obs": self.obs,
            "carry": self.carry,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the state. Raises ValueError if a value has a wrong type, because snapshots may be untrusted."""
        for name, now in self.get_extra_state().items():
            value = on(self.env.device, state.get(name, now))
            expected = Tensor if isinstance(now, Tensor) else type(now)
            if now is not None and not isinstance(value, expected):
                raise ValueError(f"{name} is no {type(now).__name__}")
            setattr(self, name, value)
