"""Evolution loop: the agent proposes parameter vectors and learns from their fitness, the mean return over episodes."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from rlrun.core.agent import Agent
from rlrun.core.collector import check_ends
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.loops.generation import Generation
from rlrun.settings import Fraction, Size, config, register
from rlrun.types import Batch, Metrics, Obs, PopulationBatch


class MemberPolicy:
    """Acts in every environment with the parameters of the member that is tried there."""

    def __init__(self, agent: Agent, params: Tensor):
        self.agent, self.params = agent, params

    def act(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        return self.agent.act(obs, carry, explore, self.params)


@register("loop", "evolution")
class Evolution(Loop):
    """Runs `episodes` episodes per member of the population, then updates the agent.

    The fitness of a member is its mean return, discounted by `gamma`.
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
        self.generation = Generation(self.cfg.episodes, self.cfg.gamma, self.spec.num_envs, self.device)
        self.waited = 0  # timesteps since a trial has finished

    def tick(self) -> Metrics:
        self.start_tick()
        if self.params is None:
            self.params = self.agent.ask()
            if self.generation.jobs:  # environments without a trial are in the middle of an episode
                self.begin()
            self.generation.begin(len(self.params))
        (step,) = self.collect(policy=MemberPolicy(self.agent, self.params[self.generation.members]))
        self.set_parameters()
        self.waited = 0 if self.generation.add(step) else self.waited + 1
        check_ends(self.waited, self.spec)
        return self.learn_from_fitness(self.params) if self.generation.is_finished else {}

    def learn_from_fitness(self, params: Tensor) -> Metrics:
        """Updates the agent with the fitness of all members, params [members, P]."""
        batch: PopulationBatch = {"params": params, "fitness": self.generation.fitness.to(params)}
        ctx = self.context()
        self.begin_update(ctx)
        metrics, _ = self.update(batch, ctx)
        self.params = None
        return self.count_update(metrics)

    def saved(self) -> Iterator[tuple[object, Sequence[str]]]:
        yield from super().saved()
        yield self, ("params",)
        yield self.generation, ("fitness", "jobs", "started", "finished", "returns", "discounts")
