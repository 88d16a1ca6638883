"""Off-policy: store every step, learn from what was stored. With `lag` 1 that is done while workers take the next step:
equal seeds give equal runs wherever environments live, and between two ticks nothing is under way."""

from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from rlrun.config.schema import NonNegativeInt, PositiveFloat, PositiveInt, Size, config
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.networks.choices import choices, distribution
from rlrun.registry import register
from rlrun.types import Batch, Metrics

Warmup = Literal["random", "zero", "agent"]


@register("loop", "offpolicy")
class OffPolicy(Loop):
    """One vector step into replay, then the updates that are due."""

    replays = True

    @config
    class Config:
        warmup_steps: NonNegativeInt
        warmup_policy: Warmup
        updates_per_step: PositiveFloat
        update_every: PositiveInt
        batch_size: Size
        lag: Literal[0, 1]

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self.random = Stream(self.seed, "warmup")
        self.before = 0  # updates without a transition that come first, each counted as a step
        self.refill: Warmup | None = None  # what fills the buffer after a reset, if not the warm-up's policy

    def tick(self) -> Metrics:
        self.clock.start()
        metrics: Metrics = {}
        action, extras = self.act()
        self.clock.lap("act")
        if self.cfg.lag:
            self.env.begin(action)
            self.clock.lap("env")
            metrics = self.learn()
        timestep = self.collector.step(action, extras)
        step = self.receive(timestep)
        self.clock.lap("env")
        self.buffer.add(timestep.obs, step.action, step, extras)
        self.clock.lap("sample")
        if not self.cfg.lag:
            metrics = self.learn()
        return metrics

    def learn(self) -> Metrics:
        """All updates that are due; metrics of the last, and how many came after the action that is under way."""
        metrics: Metrics = {}
        num_updates = self.updates_due()
        for _ in range(num_updates):
            metrics = self.update()
        if metrics and self.cfg.lag:
            metrics["lag"] = torch.tensor(float(num_updates))
        return metrics

    def act(self) -> tuple[Tensor, Batch]:
        """What the agent does to explore, or what the warm-up does in its stead."""
        policy = self.refill or self.cfg.warmup_policy
        if policy == "agent" or self.collected >= self.cfg.warmup_steps:
            return self.collector.act()
        if policy == "random":
            action = self.uniform_action()
        else:
            action = self.zero_action()
        _, extras = self.addons.see(self.obs, self.carry, True)
        return action, extras

    def reset(self, seed: int | None = None, refill: Warmup | None = None) -> None:
        """As every loop; the buffer is emptied, and filled again by another policy than at first if one is given."""
        self.buffer.clear()
        super().reset(seed)
        self.refill = refill

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {"refill": self.refill}

    def update(self) -> Metrics:
        ctx = self.context(self.buffer)
        self.batch = batch = self.addons.relabel(self.buffer.sample(self.cfg.batch_size, ctx.progress))
        self.clock.lap("sample")
        out = self.agent.update(batch, ctx)
        metrics: Metrics = out[0] if isinstance(out, tuple) else out
        metrics = metrics | self.addons.update(batch, ctx)
        self.buffer.feedback(batch, out)
        self.updates += 1
        self.clock.lap("update")
        return metrics

    def updates_due(self) -> int:
        """Updates owed for steps from the warm-up to the last burst that is due; none while the buffer is empty."""
        steps = max(0, self.collected - self.cfg.warmup_steps) // self.cfg.update_every * self.cfg.update_every
        owed = int(steps * self.cfg.updates_per_step) - (self.updates - self.before)
        if not len(self.buffer):
            return 0
        return max(0, owed)

    @property
    def collected(self) -> int:
        """Transitions so far."""
        return max(0, self.steps - self.before)

    def uniform_action(self) -> Tensor:
        """Actions of the warm-up: uniform over what is allowed, standard normal where there are no bounds."""
        space, num_envs = self.env.spec.action, self.env.spec.num_envs
        if not isinstance(space, spaces.Box):
            uniform = self.uniform()
            return uniform.sample(uniform.noise(self.random).to(self.env.device))
        if not space.is_bounded():
            return self.random.normal(num_envs, *space.shape)
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        return low + (high - low) * self.random.uniform(num_envs, *space.shape)

    def zero_action(self) -> Tensor:
        """0, or the first choices that are allowed."""
        space, device = self.env.spec.action, self.env.device
        if isinstance(space, spaces.Box):
            return torch.zeros(self.env.spec.num_envs, *space.shape, device=device)
        return self.uniform().mode()

    def uniform(self) -> Any:
        """The distribution over a discrete space that prefers nothing."""
        space = self.env.spec.action
        logits = torch.zeros(self.env.spec.num_envs, sum(choices(space)), device=self.env.device)
        return distribution(space, logits, self.obs)
