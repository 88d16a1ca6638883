"""On-policy loop with demonstrations: after an episode ends, demonstrations may be replayed (PPO+D, arXiv 2007.03328).

In the paper, the environment waits while a demonstration is replayed. Here the environments keep stepping, and the
demonstrations are appended to the rollout as additional time lines. The counter of environment steps excludes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from rlrun.buffers.demo_lines import shown, with_lines
from rlrun.buffers.demos import Demo
from rlrun.buffers.open_episodes import OpenEpisodes
from rlrun.core.addon import RewardModule
from rlrun.errors import ConfigError
from rlrun.loops.data_sets import recorded
from rlrun.loops.exchange import Exchange
from rlrun.loops.onpolicy import OnPolicy
from rlrun.settings import Around, register
from rlrun.types import GOAL, Batch, Context, Metrics


@register("loop", "demonstrations")
class Demonstrations(OnPolicy):
    """Learns from rollouts to which replayed demonstrations are appended: [time, env + n, ...]."""

    has_reports = False  # demonstrations hold none

    def __init__(self, *args: Any):
        super().__init__(*args)
        if not self.agent.returns_values:
            why = "whose updates return no values by which demonstrations are ranked (Agent.returns_values)"
            raise ConfigError(f"algo.loop=demonstrations is not supported by algo={self.agent.registered}, {why}")
        if any(f"carry.{GOAL}" in learner.stores or isinstance(learner, RewardModule) for learner in self.learners):
            raise ConfigError("algo.loop=demonstrations: demonstrations have no goals and no stored intrinsic rewards")
        if any(learner.reads_previous for learner in self.learners):
            raise ConfigError(
                "algo.loop=demonstrations: is not supported with network.previous, which they do not hold"
            )
        self.episodes = OpenEpisodes(self.spec)
        self.exchange = Exchange(self.buffer)

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        yield from super().requires(own, around)
        if around.buffer != "demos":
            yield f"algo.loop={around.loop} is not supported by algo={around.algo}, which has no algo.buffer=demos"

    def begin(self) -> None:
        super().begin()
        self.episodes.begin()
        self.exchange.read = []
        cfg = self.buffer.cfg
        given = recorded(self, "algo.buffer.given", cfg.given, cfg.data_env)
        self.buffer.begin(given, recorded(self, "algo.buffer.own", cfg.own, cfg.data_env))

    def learn_from_rollout(self, rollout: Batch, ctx: Context) -> Iterator[Metrics]:
        self.begin_update(ctx)
        demos = self.draw(rollout)
        rows = shown([self.buffer.restored(demo) for demo in demos], self.see)
        relabelled = self.relabel(with_lines(rollout, rows))
        self.clock.lap("sample")
        metrics, value = self.update_agent(relabelled, ctx)
        self.clock.lap("update")
        yield metrics
        yield self.update_addons(ctx)
        assert value is not None  # [time, env + n], of an agent that `returns_values`
        num_envs = rollout["weight"].shape[1]
        self.refresh(demos, value[:, num_envs:].T.flatten())
        for demo, highest_value in self.episodes.ended(rollout, value[:, :num_envs]):
            self.buffer.add(demo, highest_value)
        if (self.updates + 1) % self.buffer.cfg.save_every == 0:
            self.exchange.run(self)
        steps = sum(len(demo["reward"]) for demo in demos)
        num_demos = len(self.buffer.reward_demos)
        counts = {"loss/demo_steps": steps, "loss/reward_demos": num_demos, "loss/rho": self.buffer.rho}
        yield {name: value.new_tensor(count) for name, count in counts.items()}

    def draw(self, rollout: Batch) -> list[Demo]:
        """Returns the demonstrations to replay after the episodes that ended in the rollout.

        For each of these episodes, demonstrations are drawn until a draw returns none.
        """
        ended = (rollout["terminated"] | rollout["truncated"]) & (rollout["weight"] > 0)
        demos = []
        self.buffer.follow_schedules()
        for _ in range(int(ended.sum())):
            while demo := self.buffer.draw():
                demos.append(demo)
        return demos

    def refresh(self, demos: list[Demo], value: Tensor) -> None:
        """Updates the highest predicted values of replayed demonstrations.

        value: predictions for the rows of all these demonstrations, one demonstration after the other.
        """
        lengths = [len(demo["reward"]) for demo in demos]
        for demo, along in zip(demos, value[: sum(lengths)].split(lengths), strict=True):
            self.buffer.refresh(demo, float(along.max()))

    def set_extra_state(self, state: dict[str, object]) -> None:
        super().set_extra_state(state)
        self.episodes.check()

    def saved(self) -> Iterator[tuple[object, Sequence[str]]]:
        yield from super().saved()
        yield self.episodes, ("open",)
        yield self.exchange, ("read",)
        yield self, ("digests",)
