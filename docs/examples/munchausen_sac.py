"""SAC with the reward of Munchausen RL (Vieillard et al. 2020, arXiv 2007.14430).

rlrun train algo=docs/examples/munchausen_sac.py env=Pendulum
"""

from torch import Tensor

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import Critic
from rlrun.settings import NonNegativeFloat, config, register
from rlrun.types import Batch


@register("algo", "munchausen_sac")
class MunchausenSAC(SAC):
    """SAC whose rewards have a bonus for actions that the policy finds likely."""

    @config
    class Config(SAC.Config):
        munchausen_scale: NonNegativeFloat
        largest_penalty: NonNegativeFloat

    cfg: Config

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        """Returns the target of SAC with the reward r + scale [alpha log pi(a|s)], clipped to [-largest_penalty, 0]."""
        log_prob = self.actor(batch["obs"]).log_prob(batch["action"])
        bonus = (self.entropy.alpha * log_prob).clamp(-self.cfg.largest_penalty, 0.0)
        reward = batch["reward"] + self.cfg.munchausen_scale * bonus
        return super().target_q(batch | {"reward": reward}, noise, target_critic)
