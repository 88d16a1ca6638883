"""Running normalisation of observations and rewards. Evaluation uses the statistics and does not change them."""

from rlrun.addons.normalise.observations import NormaliseObservations
from rlrun.addons.normalise.rewards import NormaliseRewards
from rlrun.core.addon import Addon
from rlrun.errors import ConfigError
from rlrun.types import Spec


def normalisers(kind: str, spec: Spec, gamma: float | None) -> list[Addon]:
    """Returns the add-ons that `env.normalize` names: none, obs, reward or both."""
    addons: list[Addon] = []
    if kind in ("obs", "both"):
        addons.append(NormaliseObservations(spec))
    if kind in ("reward", "both"):
        if gamma is None:
            raise ConfigError(f"env.normalize={kind}: rewards are scaled by discounted returns, but algo has no gamma")
        addons.append(NormaliseRewards(spec, gamma))
    return addons
