"""SAC whose policy also clones demonstrated actions (Nair et al. 2018, arXiv 1709.10089, who add cloning to DDPG).

With `cloning_filter`, only demonstrated actions whose Q-value exceeds that of the policy's action are cloned. The
cloning error is multiplied by the mean absolute Q-value (arXiv 2106.06860), which makes its weight independent of the
scale of rewards. Transitions that the agent collected are not cloned.
"""

from typing import Any

from torch import Tensor

from rlrun.agents.actor_critic.sac import SAC
from rlrun.functional.losses import batch_mean, cloning_error
from rlrun.settings import NonNegativeFloat, config, register
from rlrun.types import Batch


class Cloning:
    """A mixin that adds a cloning error to the actor loss of SAC or of a variant of SAC."""

    @config
    class Config(SAC.Config):
        cloning_coef: NonNegativeFloat
        cloning_filter: bool

    cfg: Any
    entropy: Any
    ensemble: Any
    critic: Any
    actor: Any

    def actor_loss(self, batch: Batch, q: Tensor, log_prob: Tensor) -> Tensor:
        cloned = batch.get("shown", batch["weight"].new_ones(()))  # a batch without this key comes from a data set
        if self.cfg.cloning_filter:
            cloned = cloned * (self.stored_q(batch) > q).detach()
        error = cloning_error(self.actor(batch["obs"]).mode(), batch["action"])
        coef = self.cfg.cloning_coef * batch_mean(q.detach().abs())
        return self.entropy.alpha * log_prob - q + coef * cloned * error

    def stored_q(self, batch: Batch) -> Tensor:
        """Returns the Q-value of the stored action, reduced over the members as for the actor; [batch]."""
        q: Tensor = self.ensemble.actor(self.critic(batch["obs"], batch["action"]))
        return q


@register("algo", "sac_cloning")
class SACCloning(Cloning, SAC):
    """SAC for continuous actions that clones demonstrations."""

    @config
    class Config(Cloning.Config):
        pass

    cfg: Config
