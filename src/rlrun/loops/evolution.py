"""Evolution loop: the agent proposes parameter vectors and learns from their fitness, the mean return over episodes."""

from typing import Any

import torch
from torch import Tensor

from rlrun.core.agent import Agent
from rlrun.core.collector import check_ends
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.settings import Fraction, Size, config, register
from rlrun.types import Metrics, PopulationBatch


@register("loop", "evolution")
class Evolution(Loop):
    """Runs `episodes` episodes per member of the population, then updates the agent.

    The fitness of a member is its mean return, discounted by `gamma`.

    A trial is one episode of one member. An environment starts the next trial as soon as its episode ends; it does not
    wait for other environments.
    """

    @config
    class Config:
        episodes: Size
        gamma: Fraction

    def __init__(self, *args: Any):
        super().__init__(*args)
        if type(self.agent).ask is Agent.ask:
            why = "which proposes no parameter vectors"
            raise ConfigError(f"algo.loop={self.registered} is not supported by algo={self.agent.registered}, {why}")
        self.params: Tensor | None = None  # [members, P], the current generation
        self.fitness = torch.zeros(0, device=self.env.device)  # [members], sum of returns so far / episodes
        self.jobs: list[int] = []  # the number of the trial that each environment runs, or -1 if none is left
        self.started = self.finished = 0  # numbers of trials in this generation
        self.returns = torch.zeros(self.env.spec.num_envs, dtype=torch.float64, device=self.env.device)
        self.waited = 0  # timesteps since a trial has finished
        self.discounts = torch.ones_like(self.returns)  # gamma^t, with the timestep t of each running episode

    def tick(self) -> Metrics:
        self.start_tick()
        if self.params is None:
            self.start_generation()
        # an environment without a trial acts like member 0
        members = [max(job, 0) % len(self.params) for job in self.jobs]  # type: ignore[arg-type]
        params = self.params[members]  # type: ignore[index]
        action, extras = self.collector.act(params)
        self.clock.lap("act")
        step = self.receive(*self.collector.step(action, extras))
        self.clock.lap("env")
        self.returns += self.discounts * (step["reward"] * step["weight"])
        self.discounts *= self.cfg.gamma
        self.waited += 1
        ended = step["terminated"] | step["truncated"]
        for slot in ended.nonzero().flatten().tolist():
            self.finish(slot, counts=bool(step["weight"][slot]))
        check_ends(self.waited, self.env.spec)
        if self.finished < self.trials:
            return {}
        return self.learn()

    @property
    def trials(self) -> int:
        """The number of trials in a generation."""
        return len(self.fitness) * self.cfg.episodes

    def start_generation(self) -> None:
        self.params = self.agent.ask()
        self.fitness = self.returns.new_zeros(len(self.params))
        self.started = self.finished = 0
        self.returns.zero_()
        self.discounts.fill_(1.0)
        if self.jobs:  # environments without a trial are in the middle of an episode
            self.begin()
        self.jobs = [self.next_job() for _ in range(self.env.spec.num_envs)]

    def next_job(self) -> int:
        """Returns the number of the next trial of this generation, which then counts as started, or -1."""
        if self.started == self.trials:
            return -1
        self.started += 1
        return self.started - 1

    def finish(self, slot: int, counts: bool) -> None:
        """Adds the return of an ended episode to the fitness of its member, and starts the next trial.

        slot: index of the environment. counts: False if the last step of the episode is masked; the trial is then
        repeated.
        """
        if counts and self.jobs[slot] >= 0:
            self.fitness[self.jobs[slot] % len(self.fitness)] += self.returns[slot] / self.cfg.episodes
            self.finished += 1
            self.waited = 0
        if counts:
            self.jobs[slot] = self.next_job()
        self.returns[slot] = 0
        self.discounts[slot] = 1

    def learn(self) -> Metrics:
        batch: PopulationBatch = {"params": self.params, "fitness": self.fitness.to(self.params)}  # type: ignore[typeddict-item]
        ctx = self.context()
        self.begin_update(ctx)
        metrics: Any = self.agent.update(batch, ctx)
        metrics |= self.addons.update(batch, ctx)
        self.params = None
        return self.count_update(metrics)

    def get_extra_state(self) -> dict[str, Any]:
        own = ("params", "fitness", "jobs", "started", "finished", "returns", "discounts")
        return super().get_extra_state() | {name: getattr(self, name) for name in own}
