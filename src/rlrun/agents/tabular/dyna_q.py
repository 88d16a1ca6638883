"""Dyna-Q (Sutton 1990): every real step also trains a model, and additional updates use steps of the model.

Planning steps start at visited state-action pairs, drawn uniformly. With `prioritized`, each planning step starts at
the pair with the largest TD error (prioritized sweeping, Moore and Atkeson 1993), found by a search of the whole table
instead of a queue. With real_updates=false, the agent learns from the model alone.
"""

from torch import Tensor

from rlrun.agents.tabular.model import TabularModel
from rlrun.agents.tabular.q_learning import QLearning
from rlrun.core.parts import Parts
from rlrun.functional.returns import td_target
from rlrun.settings import NonNegativeInt, PositiveInt, config, register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "dyna_q")
class DynaQ(QLearning):
    """Q-learning from real steps and from steps of a learned model."""

    @config
    class Config(QLearning.Config):
        planning_steps: PositiveInt
        prioritized: bool
        start_plan: NonNegativeInt
        real_updates: bool

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.model = TabularModel(self.q[0].numel())
        self.plans = parts.stream("plans")
        self.is_planning = False  # set by every update

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        self.is_planning = ctx.env_steps >= self.cfg.start_plan
        return super().update(rollout, ctx)

    def learn(self, step: Batch) -> Metrics:
        """Learns from a step, and then from steps of the model.

        Returns the metrics of the update with the real step if there was one, else those of planning.
        """
        metrics: Metrics = {}
        if self.cfg.real_updates:
            metrics = super().learn(step)
        transition = self.transition(step)
        self.model.add(transition)
        if self.is_planning:
            planned = self.plan_steps(len(step["reward"]))
            if not metrics:
                metrics = planned
        return metrics

    def plan_steps(self, envs: int) -> Metrics:
        """Takes the planning steps of one step of `envs` environments. Returns the metrics of the last one."""
        if self.cfg.prioritized:
            for _ in range(self.cfg.planning_steps * envs):
                metrics = self.plan(self.largest_error())
        else:
            for _ in range(self.cfg.planning_steps):
                noise = self.plans.uniform(envs)
                pair = self.model.sample(noise)
                metrics = self.plan(pair)
        return metrics

    def plan(self, pair: Tensor) -> Metrics:
        """Updates the tables with the steps that the model predicts for pairs [batch]."""
        coin = self.coins.integers(len(self.q), len(pair))
        return self.update_q(self.model.steps(pair), coin)

    def largest_error(self) -> Tensor:
        """Returns the visited pair with the largest absolute TD error under the model, [1]."""
        model = self.model
        q = self.q.mean(0)
        next_value = q.amax(-1)[model.next_state]
        target = td_target(model.reward, self.cfg.gamma * ~model.terminated, next_value)
        error = (target - q.view(-1)).abs()
        return (error * model.weight).argmax(keepdim=True)
