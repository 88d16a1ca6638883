"""Expected SARSA (van Seijen et al. 2009): the target is the expected value over the policy's next actions."""

from torch import Tensor

from rlrun.agents.tabular.q_learning import QLearning
from rlrun.settings import register


@register("algo", "expected_sarsa")
class ExpectedSARSA(QLearning):
    """Q-learning with the target of Expected SARSA."""

    def next_value(self, table: Tensor, state: Tensor) -> Tensor:
        """Returns the expected value of the next state under the epsilon-greedy policy, [env].

        table [env]: the index of the table to update. With two tables, this one determines the greedy action, and the
        other one the values.
        """
        best = self.q[table, state].argmax(-1, keepdim=True)
        value = self.q[self.other(table), state]
        greedy_value = value.gather(-1, best).squeeze(-1)
        mean_value = value.mean(-1)
        return (1 - self.epsilon) * greedy_value + self.epsilon * mean_value
