"""Dyna-Q (Sutton 1990): every real step also trains a model, and from the model more steps are learned than were made.

Planned steps start at pairs already tried, drawn uniformly; by option, where the table is most wrong (prioritized
sweeping, Moore and Atkeson 1993; found anew over the whole table instead of kept in a queue).
"""

from torch import Tensor

from rlrun.agents.tabular.model import TabularModel
from rlrun.agents.tabular.q_learning import QLearning
from rlrun.config.schema import PositiveInt, config
from rlrun.core.parts import Parts
from rlrun.functional.returns import td_target
from rlrun.registry import register
from rlrun.types import Batch, Metrics, Spec


@register("algo", "dyna_q")
class DynaQ(QLearning):
    @config
    class Config(QLearning.Config):
        planning_steps: PositiveInt
        prioritized: bool

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.model = TabularModel(self.q[0].numel())
        self.plans = parts.stream("plans")

    def learn(self, step: Batch) -> Metrics:
        metrics = super().learn(step)
        envs = len(step["reward"])
        self.model.add(self.transition(step))
        for _ in range(self.cfg.planning_steps * envs if self.cfg.prioritized else self.cfg.planning_steps):
            pair = self.most_wrong() if self.cfg.prioritized else self.model.sample(self.plans.uniform(envs))
            self.update_q(self.model.steps(pair), self.coins.integers(len(self.q), len(pair)))
        return metrics

    def most_wrong(self) -> Tensor:
        """The pair, [1], whose value is farthest from what the model says of it."""
        known, q = self.model, self.q.mean(0)
        target = td_target(known.reward, self.cfg.gamma * ~known.terminated, q.amax(-1)[known.next_state])
        return ((target - q.view(-1)).abs() * known.weight).argmax(keepdim=True)
