"""SAC with the reward of Munchausen RL (Vieillard et al. 2020, arXiv 2007.14430).

rlrun train algo=docs/examples/munchausen_sac.py env=Pendulum
"""

from gymnasium.spaces import Box
from torch import Tensor

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Critic
from rlrun.settings import NonNegativeFloat, config, register
from rlrun.types import Batch


@register("algo", "munchausen_sac")
class MunchausenSAC(SAC):
    """SAC whose rewards have a bonus for actions that the policy finds likely."""

    actions = Box  # not mixed actions, whose choice has a probability of its own

    @config
    class Config(SAC.Config):
        munchausen_scale: NonNegativeFloat = 0.9  # weight of the bonus
        largest_penalty: NonNegativeFloat = 1.0  # limit of the bonus for unlikely actions

    cfg: Config

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        """Returns the target of SAC with the reward r + scale [alpha log pi(a|s)], clipped to [-largest_penalty, 0]."""
        log_prob = self.actor(batch["obs"]).log_prob(batch["action"])
        bonus = (self.entropy.alpha * log_prob).clamp(-self.cfg.largest_penalty, 0.0)
        reward = batch["reward"] + self.cfg.munchausen_scale * bonus
        return super().target_q(batch | {"reward": reward}, noise, target_critic)
