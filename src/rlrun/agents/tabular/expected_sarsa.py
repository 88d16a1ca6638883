"""Expected SARSA (van Seijen et al. 2009): the target is the expected value over the policy's next actions."""

from torch import Tensor

from rlrun.agents.tabular.q_learning import QLearning
from rlrun.settings import register


@register("algo", "expected_sarsa")
class ExpectedSARSA(QLearning):
    """Q-learning whose target is the expectation over the epsilon-greedy policy."""

    def next_value(self, table: Tensor, state: Tensor) -> Tensor:
        """Returns the expected value of the next state under the policy, [env].

        With two tables, `table` determines the greedy action and the other table its value.
        """
        best = self.q[table, state].argmax(-1, keepdim=True)
        value = self.q[self.other(table), state]
        greedy_value = value.gather(-1, best).squeeze(-1)
        mean_value = value.mean(-1)
        return (1 - self.epsilon) * greedy_value + self.epsilon * mean_value
