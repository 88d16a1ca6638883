"""Base class of loops. A loop decides when to collect steps and when to learn. How that is done is here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from rlrun.core.accumulator import Accumulator
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.clock import Clock
from rlrun.core.collector import Acts, Collector
from rlrun.core.data import Data
from rlrun.core.learner import Learner
from rlrun.module import Module
from rlrun.schedules.curriculum import Curriculum
from rlrun.schedules.numbers import Schedules
from rlrun.settings import Around, Requires
from rlrun.tensors import on
from rlrun.types import NOTHING, Batch, Context, Events, MetaBatch, Metrics, Obs, PopulationBatch, Spec, Step


class Loop(Requires, Module):
    """Owns agent, add-ons, environments and buffer, so its state dict is the state of the run.

    A loop writes `tick`, and calls the other methods, above all `begin`, `collect`, `learn` and `set_parameters`. It
    names neither environments nor add-ons.

    horizon: the number of steps over which schedules run. A resume with more steps does not change the horizon.
    update_horizon: the same in updates; 0 for a run without a number of updates.
    """

    replays: ClassVar[bool] = False  # whether it learns from a replay buffer
    has_reports: ClassVar[bool] = True  # whether its batches may hold reports of the environment
    relabels: ClassVar[bool] = True  # whether it learns from batches as add-ons relabel them
    # where rows for running statistics come from: steps ("rollout"), and batches of replay, those of an offline phase
    # ("pretrain") or others ("replay")
    phases: ClassVar[tuple[str, ...]] = ("rollout",)
    refills: ClassVar[bool] = False  # whether it can fill an empty buffer again in mid-run, by `refill`

    def __init__(self, cfg: Any, agent: Agent, addons: Addons, env: Any, buffer: Any, seed: int, horizon: int):
        super().__init__()
        self.agent, self.addons, self.env, self.buffer = agent, addons, env, buffer
        self.spec, self.device = env.spec, env.device
        self.cfg, self.seed, self.horizon = cfg, seed, horizon
        self.objective = addons.spec_after(env.spec).objective
        self.steps = self.updates = self.update_horizon = 0
        self.clock = Clock()
        self.collector = Collector(agent, addons, env, self.clock)
        # lines for the user, such as those of environments that failed; the trainer logs and removes them
        self.notices: list[str] = []
        self.digests: dict[str, str] = {}  # SHA-256 of each data set that was read, by `key=value` of its setting
        # moving averages are over a 20th of the run
        self.metrics = Accumulator(env.device, window=max(1, horizon // env.spec.num_envs // 20))
        self.curriculum: Curriculum | None = None  # schedules of environment parameters, if there are any
        self.schedules = Schedules({})  # of hyperparameters
        self.tick_start = 0  # `steps` at the start of the tick, at which piecewise schedules are read
        self.updates_before_tick = 0
        self.measure_after = 0  # steps whose measures do not count
        self.batch: Any = None  # the last relabelled batch that was learned from
        # is called with every step and its measures, for callbacks
        self.watch: Callable[[Step, Mapping[str, np.ndarray]], object] | None = None
        # is called before every update with its batch, for callbacks
        self.watch_update: Callable[[object, Context], object] | None = None

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        if cls.replays != around.keeps_replay:
            why = "which learns from replay" if around.keeps_replay else "which has no replay"
            yield f"algo.loop={around.loop} is not supported by algo={around.algo}, {why}"
        if around.executed_action is not None and not cls.replays:
            why = "which learns from the actions that its agent chose"
            yield f"env.executed_action={around.executed_action}: is not supported by algo.loop={around.loop}, {why}"
        if cls.replays and not cls.refills and not around.snapshot_replay:
            yield (
                f"trainer.snapshot_replay=false is not supported by algo.loop={around.loop}: replay holds data sets, "
                "which a resumed run does not read again"
            )

    @classmethod
    def replay_spec(cls, own: Mapping[str, object], spec: Spec) -> Spec:
        """Returns the spec of the steps that replay stores. own: settings of the loop. spec: of the environments."""
        return spec

    def tick(self) -> Metrics:
        """Runs some timesteps and the updates due, or one rollout and its update. Returns the last update's metrics, or
        {} if there was no update."""
        raise NotImplementedError

    def first_update(self) -> tuple[str, int]:
        """Returns the config setting that determines when the first update is made, and the number of transitions
        before that update; ("", 0) if the loop does not know this number."""
        return "", 0

    def last_points(self) -> Iterator[tuple[str, int]]:
        """Yields the setting of each schedule that lists environment steps, and the last of these steps."""
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
        self.updates_before_tick = self.updates

    def begin(self) -> None:
        """Resets all environments."""
        self.set_parameters()
        self.collector.begin()

    def refill(self) -> None:
        """Empties the replay buffer and begins new episodes, which fill it again. Only for loops with `refills`."""
        raise NotImplementedError

    def start(self, names: Mapping[int, str]) -> None:
        """Starts new episodes. names: index of an environment -> name of its episode, which determines its seeds."""
        self.collector.start(names, self.seed)

    def join(self) -> None:
        """Lets random streams, which `start` split by episode, draw for all environments together again."""
        self.collector.join()

    def draw_tasks(self) -> None:
        """Draws new tasks for all environments; the next `begin` starts them."""
        self.env.draw_tasks()

    def collect(
        self, count: int = 1, policy: Acts | None = None, meanwhile: Callable[[], object] | None = None
    ) -> list[Step]:
        """Takes `count` steps in every environment, and then counts them in order. Returns the steps to learn from.

        policy: acts instead of the agent. meanwhile: is called once while workers step the environments; no action of
        these steps depends on it.
        """
        acts = self.agent if policy is None else policy
        found = self.collector.collect(count, acts, meanwhile)
        steps = [self.count(step, events) for step, events in found]
        self.clock.lap("env")
        return steps

    def collect_episodes(
        self, counts: Sequence[int], names: Mapping[int, str], policy: Acts | None = None
    ) -> Iterator[Step]:
        """Starts new episodes and yields the steps to learn from, until enough episodes have ended.

        counts: for each environment, the number of episodes that must end. names: as in `start`, for all environments;
        without names, all are reset. policy: acts instead of the agent. With shards, one request brings all steps of a
        shard, which waits when its episodes have ended; its rows are masked from then on.
        """
        for step, events in self.collector.episodes(counts, names, self.seed, policy):
            counted = self.count(step, events)
            self.clock.lap("env")
            yield {name: value for name, value in counted.items() if name != "idle"}

    def count(self, step: Step, events: Events) -> Step:
        """Counts a step and passes it to the add-ons. Called exactly once for each step, in order.

        Returns the step to learn from.
        """
        self.steps += self.env.spec.num_envs
        if "idle" in step:
            self.steps -= int(step["idle"].sum())
        if events is not NOTHING:
            self.metrics.episodes.extend(events.episodes)
            self.notices.extend(events.restarted)
            if self.steps > self.measure_after:
                self.metrics.measure(events.measures)
            self.metrics.log(events.logged)
        if self.curriculum is not None:
            self.curriculum.observe(events.episodes)
        if self.watch is not None:
            self.watch(step, events.measures)
        return self.addons.on_step(step)

    def on_step(self, step: Step) -> Step:
        """Passes a step to the add-ons. Returns the step to learn from, with a column for each intrinsic reward."""
        return self.addons.on_step(step)

    @property
    def progress(self) -> float:
        """The fraction of the run that is done, in steps or in updates, whichever is nearer to its end."""
        done = self.steps / self.horizon
        if self.update_horizon:
            done = max(done, self.updates / self.update_horizon)
        return min(1.0, done)

    def context(self, data: object = None) -> Context:
        """Returns the context of an update at this point of the run."""
        return Context(self.updates, self.steps, self.progress, data, self.updates - self.updates_before_tick)

    def begin_update(self, ctx: Context) -> None:
        """Sets hyperparameters that have a schedule to their values for this update."""
        if self.schedules.numbers:
            self.schedules.update(ctx, self.tick_start)

    def learn(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor | None]:
        """Updates agent and add-ons from a batch of collected steps, which the add-ons relabel first.

        Returns their metrics, and what the agent returned besides (`Learner.update`).
        """
        relabelled = self.addons.relabel(batch)
        self.clock.lap("sample")
        metrics, more = self.update_agent(relabelled, ctx)
        return metrics | self.update_addons(ctx), more

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        """Returns the observations that the agent acts on, and the extras of the add-ons."""
        return self.addons.see(obs, carry, explore)

    def relabel(self, batch: Batch) -> Batch:
        """Returns a batch of collected steps as the agent learns from it."""
        return self.addons.relabel(batch)

    def update(self, batch: Batch | MetaBatch | PopulationBatch, ctx: Context) -> tuple[Metrics, Tensor | None]:
        """Updates agent and add-ons as `learn` does, but from a batch that is relabelled already."""
        metrics, more = self.update_agent(batch, ctx)
        return metrics | self.update_addons(ctx), more

    def update_agent(self, batch: Batch | MetaBatch | PopulationBatch, ctx: Context) -> tuple[Metrics, Tensor | None]:
        """Does the first half of `update`; `update_addons` does the second."""
        self.batch = batch
        if self.watch_update is not None:
            self.watch_update(batch, ctx)
        more: Tensor | None = None
        metrics = self.agent.update(batch, ctx)
        if isinstance(metrics, tuple):
            metrics, more = metrics
        return metrics, more

    def update_addons(self, ctx: Context) -> Metrics:
        """Updates the add-ons from the batch that the agent has learned from."""
        return self.addons.update(self.batch, ctx)

    def count_update(self, metrics: Metrics) -> Metrics:
        """Counts an update, and adds its metrics to the means of the next log row. Returns the metrics."""
        self.updates += 1
        self.metrics.add(metrics)
        self.clock.lap("update")
        return metrics

    @property
    def data(self) -> Data:
        """The replay buffer as an update may read it."""
        return Data(self.buffer, self.addons)

    @property
    def learners(self) -> list[Learner]:
        """All that learns in this run: the agent and its add-ons."""
        return [self.agent, *self.addons]

    def set_parameters(self) -> None:
        """Passes the current values of scheduled parameters to the environments.

        Each loop calls it where they may change: after a step, or after a rollout. Called when a run is resumed too.
        """
        if self.curriculum is not None:
            self.env.set_parameters(self.env_parameters())

    def env_parameters(self) -> dict[str, float]:
        """Returns the current values of scheduled parameters of the environments."""
        if self.curriculum is None:
            return {}
        return self.curriculum.values(self.steps, self.progress)

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

    def saved(self) -> Iterator[tuple[object, Sequence[str]]]:
        """Yields what snapshots hold besides modules: each owner, with the names of its attributes."""
        yield self, ("steps", "updates", "horizon", "update_horizon", "obs", "carry")

    def get_extra_state(self) -> dict[str, object]:
        self.fetch_episodes()
        return {name: getattr(owner, name) for owner, names in self.saved() for name in names}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the state. Raises ValueError if a value has a wrong type, because snapshots may be untrusted."""
        owners = {name: owner for owner, names in self.saved() for name in names}
        for name, now in self.get_extra_state().items():
            value = on(self.device, state.get(name, now))
            expected = Tensor if isinstance(now, Tensor) else type(now)
            if now is not None and not isinstance(value, expected):
                raise ValueError(f"{name} is no {type(now).__name__}")
            setattr(owners.get(name, self), name, value)
