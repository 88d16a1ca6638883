"""SAC whose policy also clones demonstrated actions (Nair et al. 2018, arXiv 1709.10089, who add cloning to DDPG).

With `cloning_filter`, only demonstrated actions whose Q-value exceeds that of the policy's action are cloned. The
cloning error is multiplied by the mean absolute Q-value (arXiv 2106.06860), which makes its weight independent of the
scale of rewards. Transitions that the agent collected are not cloned.
"""

from gymnasium.spaces import Box
from torch import Tensor

from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import q_function
from rlrun.functional.losses import batch_mean, cloning_error
from rlrun.settings import NonNegativeFloat, config, register
from rlrun.types import Batch


@register("algo", "sac_cloning")
class SACCloning(SAC):
    """SAC whose actor loss has a cloning error."""

    actions = Box  # the error compares continuous values

    @config
    class Config(SAC.Config):
        cloning_coef: NonNegativeFloat
        cloning_filter: bool

    cfg: Config

    def actor_loss(self, batch: Batch, q: Tensor, log_prob: Tensor) -> Tensor:
        # 1 for demonstrated transitions; a batch without this key comes from a data set, which is cloned as a whole
        cloned = batch.get("shown", batch["weight"].new_ones(()))
        if self.cfg.cloning_filter:
            critic = q_function(self.critic, self.ensemble.actor_value, batch)
            stored_q = critic(batch["obs"], batch["action"])
            cloned = cloned * (stored_q > q).detach()
        error = cloning_error(self.actor(batch["obs"]).mode(), batch["action"])
        coef = self.cfg.cloning_coef * batch_mean(q.detach().abs())
        return super().actor_loss(batch, q, log_prob) + coef * cloned * error
