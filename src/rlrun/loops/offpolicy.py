"""Off-policy loop: makes `updates_per_step` updates for each transition."""

from collections.abc import Iterator, Sequence
from typing import Any

from rlrun.buffers.rollout import check_fits
from rlrun.loops.replaying import ReplayConfig, Replaying
from rlrun.settings import PositiveFloat, PositiveInt, Scheduled, config, register


@register("loop", "offpolicy")
class OffPolicy(Replaying):
    """Updates are due in a fixed or scheduled ratio to transitions.

    With `shard_steps`, the agent takes so many steps before they are exchanged for new weights: counted, stored and
    followed by the updates that are due.
    """

    @config
    class Config(ReplayConfig):
        updates_per_step: Scheduled[PositiveFloat]
        update_every: PositiveInt
        shards: PositiveInt | None
        shard_steps: PositiveInt | None

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.ratio = ReplayRatio()
        if self.cfg.shard_steps is not None:
            setting = f"algo.loop.shard_steps={self.cfg.shard_steps}"
            check_fits(setting, self.cfg.shard_steps, self.spec, {}, self.device)

    @property
    def steps_per_tick(self) -> int:
        if self.is_filling:  # its policy acts in the process of the run, so there are no weights to wait for
            return 1
        return self.cfg.shard_steps or 1

    def updates_called_for(self) -> int:
        """Returns the number of updates for all transitions so far.

        Those before `start_update` count none, and the others by multiples of `update_every`.
        """
        steps = max(0, self.collected - self.start_update - self.filling.paused_steps)
        return int(self.ratio.updates(steps - steps % self.cfg.update_every, float(self.cfg.updates_per_step)))

    def saved(self) -> Iterator[tuple[object, Sequence[str]]]:
        yield from super().saved()
        if "loop.updates_per_step" in self.schedules.numbers:
            yield self.ratio, ("rate", "rate_steps", "rate_updates")


class ReplayRatio:
    """The integral of `updates_per_step` over transitions, because a schedule may change it."""

    def __init__(self) -> None:
        self.rate: float | None = None  # the last value of `updates_per_step`; None before the first step
        self.rate_steps = 0  # transitions with earlier values
        self.rate_updates = 0.0  # updates for these transitions

    def updates(self, steps: int, rate: float) -> float:
        """Returns the number of updates for the first `steps` transitions.

        A rate that is new since the last call holds for the transitions after those of that call.
        """
        if rate != self.rate:
            if self.rate is not None:
                self.rate_updates += (steps - self.rate_steps) * self.rate
                self.rate_steps = steps
            self.rate = rate
        return self.rate_updates + (steps - self.rate_steps) * rate
