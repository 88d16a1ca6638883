"""Evolution loop: the agent proposes parameter vectors and learns from their fitness, the mean return over episodes."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from rlrun.core.agent import Agent
from rlrun.core.collector import MemberPolicy, check_ends
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.loops.generation import Generation, Rounds
from rlrun.settings import Fraction, PositiveInt, Size, config, register
from rlrun.types import Metrics, PopulationBatch


@register("loop", "evolution")
class Evolution(Loop):
    """Runs `episodes` episodes per member of the population, then updates the agent.

    The fitness of a member is its mean return, discounted by `gamma`. With shards, episodes are collected in rounds of
    one episode per environment, and the number of an episode determines what is random in it.
    """

    relabels = False

    @config
    class Config:
        episodes: Size
        gamma: Fraction
        shards: PositiveInt | None

    def __init__(self, *args: Any):
        super().__init__(*args)
        if type(self.agent).ask is Agent.ask:
            why = "which proposes no parameter vectors"
            raise ConfigError(f"algo.loop={self.registered} is not supported by algo={self.agent.registered}, {why}")
        self.params: Tensor | None = None  # [members, P], the current generation
        given = (self.cfg.episodes, self.cfg.gamma, self.spec.num_envs, self.device)
        self.rounds: Rounds | None = None  # the generation, if it has rounds
        if self.cfg.shards is not None:
            self.rounds = Rounds(self.cfg.shards, *given)
        self.generation = self.rounds or Generation(*given)
        self.waited = 0  # timesteps since a trial has finished

    def tick(self) -> Metrics:
        self.start_tick()
        if self.params is None:
            self.params = self.agent.ask()
            if self.generation.jobs and self.rounds is None:
                self.begin()  # environments without a trial are in the middle of an episode
            self.generation.begin(len(self.params))
        if self.rounds is None:
            self.take_step(self.params)
        else:
            self.take_round(self.params, self.rounds)
        return self.learn_from_fitness(self.params) if self.generation.is_finished else {}

    def take_step(self, params: Tensor) -> None:
        """Takes one step in every environment. params: of all members, [members, P]."""
        (step,) = self.collect(policy=MemberPolicy(self.agent, params[self.generation.members]))
        self.set_parameters()
        self.waited = 0 if self.generation.add(step) else self.waited + 1
        check_ends(self.waited, self.spec)

    def take_round(self, params: Tensor, rounds: Rounds) -> None:
        """Collects the next trial of every environment. params: of all members, [members, P]."""
        names = {slot: f"{self.updates}.{number}" for slot, number in enumerate(rounds.begin_round())}
        counts = [int(job >= 0) for job in rounds.jobs]
        for step in self.collect_episodes(counts, names, MemberPolicy(self.agent, params[rounds.members])):
            rounds.add(step)
        self.set_parameters()

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
