"""Offline loop: learns from data sets alone. The environment is used only for evaluation."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rlrun.buffers.demo_lines import lines, shortened
from rlrun.buffers.demos import Demo
from rlrun.buffers.replay import Replay
from rlrun.datasets.demonstrations import DataEnv
from rlrun.errors import ConfigError
from rlrun.loops.data_sets import recorded
from rlrun.loops.replaying import Replaying
from rlrun.nested import index
from rlrun.settings import PositiveInt, Size, config, register
from rlrun.types import Metrics

DATA = "algo.loop.data"


@register("loop", "offline")
class Offline(Replaying):
    """Fills the replay buffer from data sets, then updates the agent.

    Every update counts as a step of the run, because log rows, evaluations and snapshots are scheduled by steps.
    """

    has_reports = False  # data sets hold none
    phases: ClassVar[tuple[str, ...]] = ("rollout", "pretrain")
    refills = False  # the data sets are read only when the run begins

    @config
    class Config:
        data: str | list[str] | None
        data_steps: PositiveInt | None
        data_env: DataEnv
        batch_size: Size

    def __init__(self, *args: Any):
        super().__init__(*args)
        why = None
        if self.agent.stores:
            why = "learns from extras that are stored with each action, and data sets hold none"
        elif any(learner.stores for learner in self.learners):
            why = "learns from stored goals or hidden states, and data sets hold none"
        if self.agent.memory.stores:
            why = "learns from stored hidden states, and data sets hold none; set network.start=zero"
        if why:
            raise ConfigError(
                f"algo.loop={self.registered} is not supported by algo={self.agent.registered}, which {why}"
            )

    def first_update(self) -> tuple[str, int]:
        return "", 0  # there is no warm-up

    @property
    def phase(self) -> str:
        return "pretrain"

    @property
    def recorded(self) -> Replay:
        """The buffer that stores the transitions of the data sets."""
        return self.buffer

    def begin(self) -> None:
        super().begin()
        self.fill(self.recorded)

    def tick(self) -> Metrics:
        self.start_tick()
        self.steps += 1
        return self.learn_from_replay()

    def fill(self, buffer: Replay) -> None:
        """Stores the transitions of all data sets, num_envs at a time, and updates normalisers with them."""
        demos = self.read()
        num_envs = self.spec.num_envs
        steps = sum(len(demo["reward"]) for demo in demos)
        time = math.ceil(steps / num_envs)
        if time > buffer.ring.capacity:
            raise ConfigError(f"algo.buffer.capacity={buffer.cfg.capacity}: no room for {steps} recorded transitions")
        batch = lines(demos, num_envs, time)
        for t in range(time):
            row = index(batch, t)
            step = row | {"following": row["next_obs"], "executed": row["action"]}
            buffer.add(self.on_step(step))

    def read(self) -> list[Demo]:
        """Returns the demonstrations of all data sets, of each data set only the first `data_steps` transitions."""
        if not self.cfg.data:
            raise ConfigError(f"{DATA}: missing; name a data set, such as one from rlrun eval RUN record=demos-v0")
        names = self.cfg.data
        if isinstance(names, str):
            names = [names]
        demos: list[Demo] = []
        for name in names:
            demos += shortened(recorded(self, DATA, name, self.cfg.data_env), self.cfg.data_steps)
        return demos

    def saved(self) -> Iterator[tuple[object, Sequence[str]]]:
        yield from super().saved()
        yield self, ("digests",)
