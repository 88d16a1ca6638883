"""Off-policy loop in iterations: whole episodes are collected into replay, then the agent makes a block of updates.

The weights are constant while an iteration collects. When it ends, other environments are in the middle of episodes;
these go on with the new weights, and count in the iteration in which they end. With `complete`, each iteration starts
all its episodes anew and stores the first ones alone, one after another, as if one environment had played them
(`loops/whole_episodes.py`). What is stored then does not depend on the number of environments, unless a schedule over
steps, which count discarded ones too, changes how the agent acts.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from rlrun.buffers.rollout import Rollout
from rlrun.core.collector import check_ends
from rlrun.errors import ConfigError
from rlrun.loops.episode_spans import one_by_one
from rlrun.loops.replaying import ReplayConfig, Replaying
from rlrun.loops.whole_episodes import transitions, whole_episodes
from rlrun.settings import PositiveInt, Scheduled, config, register
from rlrun.types import Events, Spec, Step


@register("loop", "offpolicy_episodes")
class OffPolicyEpisodes(Replaying):
    """Collects episodes until both minimums are reached, then does `updates_per_iteration` updates."""

    @config
    class Config(ReplayConfig):
        min_steps: Scheduled[PositiveInt] | None
        min_rollouts: Scheduled[PositiveInt] | None
        updates_per_iteration: PositiveInt | Literal["episodes"] | None  # None: as in `updates_of_minimums`
        complete: bool

    def __init__(self, *args: Any):
        super().__init__(*args)
        if self.cfg.updates_per_iteration is None and self.cfg.min_steps is not None and self.spec.time_limit is None:
            raise ConfigError(
                "algo.loop.updates_per_iteration=null: divides min_steps by the time limit of the environment, which "
                "has none; set a number, episodes, or env.max_episode_steps"
            )
        if self.cfg.complete and self.cfg.lag:
            raise ConfigError("algo.loop.lag=1: is not supported with complete=true, which waits for whole episodes")
        self.kept = 0  # with `complete`: transitions that were stored so far
        self.iteration_steps = 0  # transitions in this iteration
        self.iteration_rollouts = 0  # episodes that ended in this iteration
        self.called_for = 0  # updates of all iterations so far

    @classmethod
    def replay_spec(cls, own: Mapping[str, object], spec: Spec) -> Spec:
        if own["complete"]:
            return dataclasses.replace(spec, num_envs=1)
        return spec

    def collect_into_replay(self) -> None:
        if self.cfg.complete:
            self.collect_whole_episodes()
        else:
            super().collect_into_replay()

    def collect_whole_episodes(self) -> None:
        """Collects the episodes of an iteration, or those before the first updates, and stores them."""
        if self.is_filling:
            enough = self.enough_to_fill
        elif self.collected < self.start_update:
            enough = self.enough_to_start
        else:
            enough = self.enough
        rollout = Rollout(self.spec)
        episodes = whole_episodes(self, rollout, str(self.kept), enough, self.policy)
        self.set_parameters()
        for step in one_by_one(rollout.batch(), episodes):
            self.buffer.add(step | {"executed": step["action"]})
        self.kept += transitions(episodes)
        if enough == self.enough:
            self.iteration_rollouts = len(episodes)
            self.end_iteration()

    def enough_to_fill(self, steps: int, episodes: int) -> bool:
        """Returns whether so many more transitions fill the buffer."""
        return not self.filling.goes_on(self.collected + steps, self.warmup_steps)

    def enough_to_start(self, steps: int, episodes: int) -> bool:
        """Returns whether updates become due after so many more transitions."""
        return self.collected + steps >= self.start_update

    def start(self, names: Mapping[int, str]) -> None:
        super().start(names)
        for slot, name in names.items():
            self.random.split(slot, name)

    @property
    def collected(self) -> int:
        return self.kept if self.cfg.complete else super().collected

    def count(self, step: Step, events: Events) -> Step:
        """Counts a step, and ends the iteration if an episode has ended and both minimums are reached."""
        if self.cfg.complete:
            step = super().count(step, events)
            return step | {"action": step["executed"]}  # as in replay
        counts = not self.is_filling and self.collected >= self.start_update  # the warm-up belongs to no iteration
        step = super().count(step, events)
        if counts:
            self.iteration_steps += self.spec.num_envs
            done = (step["terminated"] | step["truncated"]) & (step["weight"] > 0)
            num_ended = int(done.sum())
            self.iteration_rollouts += num_ended
            if num_ended and self.enough(self.iteration_steps, self.iteration_rollouts):
                self.end_iteration()
            if not self.iteration_rollouts:
                check_ends(self.iteration_steps // self.spec.num_envs, self.spec)
        return step

    def enough(self, steps: int, episodes: int) -> bool:
        """Returns whether so many transitions in so many episodes reach both minimums of an iteration."""
        return steps >= (self.cfg.min_steps or 0) and episodes >= (self.cfg.min_rollouts or 0)

    def end_iteration(self) -> None:
        """Calls for the updates of this iteration, and starts the next one."""
        updates = self.cfg.updates_per_iteration
        if updates is None:
            updates = self.updates_of_minimums()
        elif updates == "episodes":
            updates = self.iteration_rollouts
        self.called_for += updates
        self.iteration_steps = self.iteration_rollouts = 0

    def updates_of_minimums(self) -> int:
        """Returns how many episodes reach the minimums: for `min_steps`, episodes that end at the time limit."""
        cfg = self.cfg
        if cfg.min_steps is None:
            return math.ceil(cfg.min_rollouts or 1)
        return math.ceil(cfg.min_steps / self.spec.time_limit)

    def updates_called_for(self) -> int:
        """Returns the number of updates of all iterations so far."""
        return self.called_for

    @property
    def warmup_steps(self) -> int:
        """The number of transitions that fill the empty buffer: at least a batch, and at most the capacity."""
        return min(max(super().warmup_steps, self.cfg.batch_size), self.buffer.capacity)

    def saved(self) -> Iterator[tuple[object, Sequence[str]]]:
        yield from super().saved()
        yield self, ("iteration_steps", "iteration_rollouts", "called_for")
        if self.cfg.complete:
            yield self, ("kept",)
