"""What all loops with a replay buffer share: steps are stored in it, and the agent learns from samples of it.

With `lag` 1 the updates run while the workers step the environments, and do not use that step yet. Results still depend
only on the seed, not on where the environments run, and no environment step is pending between two ticks.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch

from rlrun.core.collector import Acts
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.loops.filling import Filling, Warmup
from rlrun.settings import NonNegativeInt, Size, config
from rlrun.types import Metrics


@config
class ReplayConfig:
    """Settings of all loops that collect transitions into replay."""

    warmup_steps: NonNegativeInt | None
    warmup_policy: Warmup
    refill_policy: Warmup
    start_update: NonNegativeInt | None
    batch_size: Size
    lag: Literal[0, 1]


class Replaying(Loop):
    """Collects steps into the replay buffer, and does the updates that are due."""

    replays = True
    phases: ClassVar[tuple[str, ...]] = ("rollout", "replay")
    refills = True

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.random = Stream(self.seed, "warmup")
        self.filling = Filling(self.cfg, self.agent, self.spec, self.random, self.device)
        self.offline_updates = 0  # updates that loops/hybrid.py makes before it collects; each is a step of the run
        self.learned: Metrics = {}  # metrics of the last update in this tick

    def tick(self) -> Metrics:
        self.start_tick()
        self.learned = {}
        self.collect_into_replay()
        self.clock.lap("sample")
        if not self.cfg.lag:
            self.learn_what_is_due()
        return self.learned

    def collect_into_replay(self) -> None:
        """Takes vector steps and adds them to the buffer. With `lag` 1, the updates run meanwhile."""
        steps = self.collect(self.steps_per_tick, self.policy, self.learn_what_is_due if self.cfg.lag else None)
        self.set_parameters()
        for step in steps:
            self.buffer.add(step)

    @property
    def steps_per_tick(self) -> int:
        """The number of vector steps of this tick."""
        return 1

    @property
    def policy(self) -> Acts | None:
        """What acts instead of the agent while the buffer is being filled; else None."""
        return self.filling if self.is_filling else None

    def learn_what_is_due(self) -> None:
        """Does all updates that are due. With `lag` 1, metrics include their number, `loss/lag`."""
        due = self.updates_called_for() - (self.updates - self.offline_updates)
        if due <= 0 or not len(self.buffer):
            return
        for _ in range(due):
            self.learned = self.learn_from_replay()
        if self.cfg.lag:
            lag = {"loss/lag": torch.tensor(float(due))}
            self.metrics.add(lag)  # `count_update` has added the others
            self.learned = self.learned | lag

    def updates_called_for(self) -> int:
        """Returns how many updates the collected transitions call for, including those that were made."""
        raise NotImplementedError

    def learn_from_replay(self) -> Metrics:
        """Does one update."""
        ctx = self.context(self.data)
        self.begin_update(ctx)
        batch = self.buffer.sample(self.cfg.batch_size)
        if self.addons.watch_batches:
            self.addons.on_batch(batch, self.phase)
        metrics, errors = self.learn(batch, ctx)
        if errors is not None:
            self.buffer.feedback(self.batch, errors)
        elif self.buffer.needs_errors and not self.updates:
            self.notices.append(
                f"algo.buffer={self.buffer.registered}: algo={self.agent.registered} returns no errors of its "
                "transitions, so priorities stay equal and transitions are drawn uniformly"
            )
        return self.count_update(metrics)

    @property
    def phase(self) -> str:
        """The one of `phases` to which the next batch belongs."""
        return "replay"

    def refill(self) -> None:
        """Empties the buffer and begins new episodes.

        The next `warmup_steps` transitions fill the buffer again, with actions of `refill_policy` and without updates.
        """
        self.filling.begin_again(self.collected, self.warmup_steps, self.start_update)
        self.buffer.clear()
        self.begin()

    @property
    def is_filling(self) -> bool:
        """Whether the buffer is being filled: at the start of the run, and after `refill`."""
        return self.filling.goes_on(self.collected, self.warmup_steps)

    @property
    def warmup_steps(self) -> int:
        """The number of transitions that fill the empty buffer."""
        return self.buffer.capacity if self.cfg.warmup_steps is None else self.cfg.warmup_steps

    @property
    def start_update(self) -> int:
        """The number of transitions collected before updates become due."""
        return self.warmup_steps if self.cfg.start_update is None else self.cfg.start_update

    def first_update(self) -> tuple[str, int]:
        name = "warmup_steps" if self.cfg.start_update is None else "start_update"
        return f"algo.loop.{name}={self.start_update}", self.start_update

    @property
    def collected(self) -> int:
        """The number of transitions collected so far."""
        return max(0, self.steps - self.offline_updates)

    def saved(self) -> Iterator[tuple[object, Sequence[str]]]:
        yield from super().saved()
        yield self.filling, ("emptied_at", "paused_steps")
