"""Critics whose targets are their mean minus a number of standard deviations, in place of their minimum.

pytest my_critic/
rlrun train algo=sac env=Pendulum algo.critic=./my_critic/my_critic.py algo.critic.members=5
"""

from torch import Tensor

from rlrun.agents.critics.ensemble import pessimistic
from rlrun.agents.critics.expected import Minimum
from rlrun.settings import NonNegativeFloat, config, register


@register("critic", "my_critic")
class MyCritic(Minimum):
    """With two members, pessimism=1 is the minimum and pessimism=0 the mean."""

    @config
    class Config(Minimum.Config):  # members, target_members and normalize_target
        pessimism: NonNegativeFloat = 1.0  # standard deviations that are subtracted from the mean

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        self.pessimism = cfg.pessimism

    def target_return(self, z: Tensor, weights: Tensor | None = None) -> Tensor:
        """Returns the return for the target of the loss; z [members, batch] -> [batch].

        weights: of several rewards. A reward with negative weight gets the upper bound in place of the lower one.
        """
        return pessimistic(self.lower_bound, self.value(z), weights)

    def lower_bound(self, returns: Tensor) -> Tensor:
        """Returns the mean over the members minus `pessimism` standard deviations."""
        return returns.mean(0) - self.pessimism * returns.std(0, correction=0)
