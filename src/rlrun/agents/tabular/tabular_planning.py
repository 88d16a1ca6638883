"""Planning alone: real steps train the model of Dyna-Q, and action values are learned from steps of the model only."""

from rlrun.agents.tabular.dyna_q import DynaQ
from rlrun.registry import register
from rlrun.types import Batch, Metrics


@register("algo", "tabular_planning")
class TabularPlanning(DynaQ):
    """Dyna-Q without updates from real steps."""

    def learn(self, step: Batch) -> Metrics:
        self.model.add(self.transition(step))
        if not self.is_planning:
            return {}
        return self.plan_steps(len(step["reward"]))
