"""Add-ons that determine the reward to learn from: its scale, weights of reward vectors, and intrinsic rewards."""

from rlrun.core.addon import Addon
from rlrun.errors import ConfigError
from rlrun.settings import registry
from rlrun.types import Spec


def reward_weight_addons(values: dict[str, object], spec: Spec, evaluates: bool) -> list[Addon]:
    """Returns the add-on that `algo.reward_weights` names, or [] if the reward is scalar.

    evaluates: whether the run is evaluated during training. Raises ConfigError if the settings need evaluations or a
    reward vector that the run does not have.
    """
    if values.get("measure") == "evaluation" and not evaluates:
        never = "trainer.eval_every=0 or trainer.eval_episodes=0"
        raise ConfigError(f"algo.reward_weights.measure=evaluation: nothing is evaluated with {never}")
    if spec.reward_dim > 1:
        addon = registry.build("reward_weights", values, spec, path="algo.reward_weights")
        return [addon]
    gamma = values["gamma"]
    if gamma is not None:
        why = "needs a reward vector, but the reward of this environment is one number; set algo.gamma"
        raise ConfigError(f"algo.reward_weights.gamma={gamma}: {why}")
    if values != {"name": "fixed", "weights": None, "gamma": None}:
        key = f"algo.reward_weights={values['name']}"
        raise ConfigError(f"{key} needs a reward vector; this environment has one number, which is not supported")
    return []
