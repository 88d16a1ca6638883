"""One generation of a population: trials of its members, and their fitness."""

import torch

from rlrun.loops.rounds import numbers_of_round
from rlrun.types import Step


class Generation:
    """Gives each member `episodes` trials, and averages their discounted returns.

    A trial is one episode of one member. An environment starts the next trial as soon as its episode ends; it does not
    wait for other environments.
    """

    def __init__(self, episodes: int, gamma: float, num_envs: int, device: torch.device):
        self.episodes, self.gamma = episodes, gamma
        self.fitness = torch.zeros(0, device=device)  # [members], sum of returns so far / episodes
        self.jobs: list[int] = []  # index of the trial that each environment runs, or -1 if none is left
        self.started = self.finished = 0  # how many trials of this generation have started and finished
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.discounts = torch.ones_like(self.returns)  # gamma^t, with the timestep t of each running episode

    def begin(self, members: int) -> None:
        """Begins a new generation. All environments are about to begin an episode."""
        self.fitness = self.returns.new_zeros(members)
        self.started = self.finished = 0
        self.returns.zero_()
        self.discounts.fill_(1.0)
        self.jobs = [self._next_job() for _ in range(len(self.returns))]

    @property
    def members(self) -> list[int]:
        """The member that is tried in each environment; member 0 acts where no trial is left."""
        return [max(job, 0) % len(self.fitness) for job in self.jobs]

    @property
    def is_finished(self) -> bool:
        """Whether all trials have finished."""
        return self.finished == self._num_trials

    def add(self, step: Step) -> bool:
        """Adds a step to the running trials. Returns whether one of them has finished."""
        before = self.finished
        self.returns += self.discounts * (step["reward"] * step["weight"])
        self.discounts *= self.gamma
        ended = step["terminated"] | step["truncated"]
        for slot in ended.nonzero().flatten().tolist():
            self._end(slot, is_masked=not step["weight"][slot])
        return self.finished > before

    def _end(self, slot: int, is_masked: bool) -> None:
        """Adds the return of an ended episode to the fitness of its member, and starts the next trial.

        slot: index of the environment. is_masked: whether the last step of the episode is; the trial is then repeated.
        """
        if not is_masked:
            if self.jobs[slot] >= 0:
                self.fitness[self.members[slot]] += self.returns[slot] / self.episodes
                self.finished += 1
            self.jobs[slot] = self._next_job()
        self.returns[slot] = 0
        self.discounts[slot] = 1

    def _next_job(self) -> int:
        """Returns the index of the next trial, which then counts as started, or -1."""
        if self.started == self._num_trials:
            return -1
        self.started += 1
        return self.started - 1

    @property
    def _num_trials(self) -> int:
        return len(self.fitness) * self.episodes


class Rounds(Generation):
    """A generation in rounds: every environment runs one trial, or none, and all begin the next round together."""

    def __init__(self, shards: int, episodes: int, gamma: float, num_envs: int, device: torch.device):
        super().__init__(episodes, gamma, num_envs, device)
        self.shards = shards

    def begin_round(self) -> list[int]:
        """Begins the next round. Returns the number of the episode of each environment, also where no trial is left."""
        numbers = numbers_of_round(self.started, len(self.returns), self.shards)
        self.jobs = [number if number < self._num_trials else -1 for number in numbers]
        self.started = min(self._num_trials, self.started + len(numbers))
        self.returns.zero_()
        self.discounts.fill_(1.0)
        return numbers

    def _next_job(self) -> int:
        return -1
