"""Meta-learning loop: explores and adapts in the task of every environment, then learns from all tasks at once."""

from collections.abc import Iterator, Mapping
from typing import Any

from rlrun.core.collector import Acts
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.loops.adaptation import MetaAgent, collect_episodes
from rlrun.settings import Around, PositiveInt, Size, config, register
from rlrun.types import Batch, MetaBatch, Metrics, Step


@register("loop", "meta")
class Meta(Loop):
    """Collects the batch of an update: the rollouts `explored` and `adapted`, both [time, env, ...]."""

    has_reports = False  # an evaluation adapts the policy without them

    @config
    class Config:
        episodes: Size
        new_tasks: bool
        test_tasks: Size | None
        shards: PositiveInt | None

    def __init__(self, *args: Any):
        super().__init__(*args)
        if not isinstance(self.agent, MetaAgent):
            raise ConfigError("algo.loop=meta: needs an algorithm that adapts to tasks, such as maml")

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        yield from super().requires(own, around)
        if own.get("new_tasks") and around.draws_tasks and around.instance_seed is not None:
            why = "gives training and evaluation the same tasks; leave it out, or set algo.loop.new_tasks=false"
            yield f"env.instance_seed={around.instance_seed}: {why}"
        test_tasks, episodes = own.get("test_tasks"), around.eval_episodes
        if isinstance(test_tasks, int) and 0 < episodes < test_tasks:
            why = f"must be at most trainer.eval_episodes={episodes}, because every task has an episode"
            yield f"algo.loop.test_tasks={test_tasks}: {why}"

    def tick(self) -> Metrics:
        self.start_tick()
        ctx = self.context()
        if self.cfg.new_tasks and self.updates:
            self.draw_tasks()
        agent: Any = self.agent
        policy = agent.get_exploration_policy()
        explored = self.collect_rollout(policy, agent.exploration_episodes)
        adapted = self.collect_rollout(agent.adapt_policy(policy, explored), self.cfg.episodes)
        batch: MetaBatch = {"explored": explored, "adapted": adapted}
        self.clock.lap("env")
        self.begin_update(ctx)
        metrics, _ = self.update(batch, ctx)
        return self.count_update(metrics)

    def collect_rollout(self, policy: Acts, count: int) -> Batch:
        """Returns a rollout of `count` episodes in every environment. The environments are reset first."""

        def steps() -> Iterator[Step]:
            for step in self.collect_episodes([count] * self.spec.num_envs, {}, policy):
                if self.cfg.shards is None:  # shards take no other call until the last step is there
                    self.set_parameters()
                yield step

        self.set_parameters()
        rollout = collect_episodes(steps(), self.spec, count)
        self.set_parameters()
        return self.relabel(rollout)
