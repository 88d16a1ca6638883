"""Settings of algorithms that discount rewards."""

from rlrun.settings.configs import config
from rlrun.settings.types import Fraction, PositiveInt


@config
class Discounted:
    """Hyperparameters of an algorithm with a discount per step."""

    gamma: Fraction


@config
class NStepReturns(Discounted):
    """Hyperparameters of an algorithm with n-step returns from replay: `n_step` rewards, discounted by gamma."""

    n_step: PositiveInt
