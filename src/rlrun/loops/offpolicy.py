"""Off-policy loop: stores every step in the replay buffer, and updates the agent from samples of the buffer.

With `lag` 1 the updates run while the workers step the environments, and do not use that step yet. Results still depend
only on the seed, not on where the environments run, and no environment step is pending between two ticks.
"""

from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.core.data import Data
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.networks.choices import uniform
from rlrun.settings import NonNegativeInt, PositiveFloat, PositiveInt, Scheduled, Size, config, register
from rlrun.spaces import MixedSpace
from rlrun.types import Batch, Metrics

Warmup = Literal["random", "zero", "agent"]


@config
class ReplayConfig:
    """Settings of all loops that collect transitions into replay."""

    warmup_steps: NonNegativeInt | None
    warmup_policy: Warmup
    refill_policy: Warmup
    start_update: NonNegativeInt | None
    batch_size: Size
    lag: Literal[0, 1]


@register("loop", "offpolicy")
class OffPolicy(Loop):
    """Takes one vector step, which it adds to the replay buffer, and does the updates that are due."""

    replays = True
    refills = True

    @config
    class Config(ReplayConfig):
        updates_per_step: Scheduled[PositiveFloat]
        update_every: PositiveInt

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.random = Stream(self.seed, "warmup")
        self.offline_updates = 0  # updates before the first transition, each a step of the run (loops/hybrid.py)
        self.emptied_at = 0  # `collected` when `refill` emptied the buffer; 0: never
        self.paused_steps = 0  # transitions that fill the buffer again, for which no updates become due
        # state of `integrate_rate`:
        self.rate: float | None = None  # the last value of `updates_per_step`; None before the first tick
        self.rate_steps = 0  # transitions after `start_update` with earlier values
        self.rate_updates = 0.0  # updates for these transitions

    def tick(self) -> Metrics:
        self.start_tick()
        metrics: Metrics = {}
        action, extras = self.act()
        self.clock.lap("act")
        if self.cfg.lag:
            self.env.begin(action)
            self.clock.lap("env")
            metrics = self.learn()
        step = self.receive(*self.collector.step(action, extras))
        self.clock.lap("env")
        self.buffer.add(step)
        self.clock.lap("sample")
        if not self.cfg.lag:
            metrics = self.learn()
        return metrics

    def learn(self) -> Metrics:
        """Does all updates that are due. Returns the metrics of the last update.

        With `lag` 1 they include `loss/lag`, the number of updates since the pending action was chosen.
        """
        metrics: Metrics = {}
        num_updates = self.updates_due()
        for _ in range(num_updates):
            metrics = self.update()
        if metrics and self.cfg.lag:
            lag = {"loss/lag": torch.tensor(float(num_updates))}
            self.metrics.add(lag)  # `count_update` has added the others
            metrics = metrics | lag
        return metrics

    def act(self) -> tuple[Tensor, Batch]:
        """Returns the exploration action of the agent, or of the warm-up policy while the buffer is being filled."""
        if not self.filling:
            return self.collector.act()
        policy = self.cfg.warmup_policy
        if self.emptied_at:
            policy = self.cfg.refill_policy
        if policy == "agent":
            return self.collector.act()
        if policy == "random":
            action = self.env.sample(self.random)
        else:
            action = self.zero_action()
        _, extras = self.addons.see(self.obs, self.carry, explore=True)
        action, agent_extras = self.agent.warm_up(action.to(self.env.device), self.carry)
        return action, extras | agent_extras

    def refill(self) -> None:
        """Empties the buffer and begins new episodes.

        The next `warmup_steps` transitions fill the buffer again, with actions of `refill_policy` and without updates.
        """
        # Updates pause for `warmup_steps` transitions from now on. If the buffer was still being filled, this time
        # replaces the rest of that filling, so only the transitions since its start are added.
        self.paused_steps += min(self.warmup_steps, self.collected - self.emptied_at)
        self.emptied_at = self.collected
        self.buffer.clear()
        self.begin()

    def get_extra_state(self) -> dict[str, Any]:
        own = ["emptied_at", "paused_steps"]
        if "loop.updates_per_step" in self.schedules.numbers:
            own += ["rate", "rate_steps", "rate_updates"]
        return super().get_extra_state() | {name: getattr(self, name) for name in own}

    def update(self) -> Metrics:
        ctx = self.context(Data(self.buffer, self.addons))
        self.begin_update(ctx)
        self.batch = batch = self.addons.relabel(self.buffer.sample(self.cfg.batch_size))
        self.clock.lap("sample")
        out = self.agent.update(batch, ctx)
        metrics: Metrics
        if isinstance(out, tuple):
            metrics, _ = out  # the rest is for `feedback`
        else:
            metrics = out
        metrics = metrics | self.addons.update(batch, ctx)
        self.buffer.feedback(batch, out)
        return self.count_update(metrics)

    def updates_due(self) -> int:
        """Returns the number of updates that are due; 0 while the buffer is empty."""
        due = self.updates_called_for() - (self.updates - self.offline_updates)
        if due <= 0 or not len(self.buffer):
            return 0
        return due

    def updates_called_for(self) -> int:
        """Returns how many updates the collected transitions call for, including those that were made.

        These are the transitions after `start_update`, rounded down to a multiple of `update_every`.
        """
        steps = max(0, self.collected - self.start_update - self.paused_steps)
        return int(self.integrate_rate(steps - steps % self.cfg.update_every))

    def integrate_rate(self, steps: int) -> float:
        """Returns the integral of `updates_per_step` over the first `steps` transitions after `start_update`.

        A value that is new since the last call holds for the transitions after these.
        """
        rate = float(self.cfg.updates_per_step)
        if rate != self.rate:
            if self.rate is not None:
                self.rate_updates += (steps - self.rate_steps) * self.rate
                self.rate_steps = steps
            self.rate = rate
        return self.rate_updates + (steps - self.rate_steps) * rate

    @property
    def warmup_steps(self) -> int:
        """The number of transitions that fill the empty buffer."""
        if self.cfg.warmup_steps is None:
            return self.buffer.capacity
        return self.cfg.warmup_steps

    def first_update(self) -> tuple[str, int]:
        name = "warmup_steps" if self.cfg.start_update is None else "start_update"
        return f"algo.loop.{name}={self.start_update}", self.start_update

    @property
    def start_update(self) -> int:
        """The number of transitions collected before updates become due."""
        if self.cfg.start_update is None:
            return self.warmup_steps
        return self.cfg.start_update

    @property
    def filling(self) -> bool:
        """Whether the buffer is being filled: at the start of the run, and after `refill`."""
        return self.collected - self.emptied_at < self.warmup_steps

    @property
    def collected(self) -> int:
        """The number of transitions collected so far."""
        return max(0, self.steps - self.offline_updates)

    def zero_action(self) -> Tensor:
        """Returns zeros for continuous values, and the first legal choices."""
        space, count, device = self.env.spec.action, self.env.spec.num_envs, self.env.device
        if isinstance(space, spaces.Box):
            return torch.zeros(count, *space.shape, device=device)
        chosen = uniform(space, count, self.obs, device).mode()  # of equal probabilities, the first
        if not isinstance(space, MixedSpace):
            return chosen
        continuous = torch.zeros(count, *space.continuous.shape, device=device)
        return torch.cat([chosen, continuous], -1)
