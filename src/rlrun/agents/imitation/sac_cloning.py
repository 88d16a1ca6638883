"""SAC whose policy also clones what data sets show (Nair et al. 2018, arXiv 1709.10089; Fujimoto and Gu 2021, arXiv
2106.06860, whose scale it has: the cloning error is counted in units of the mean absolute value).

Rows that were collected are not cloned. The first of these papers has DDPG and a filter of actions that are no better
than the policy's; the second TD3 and no environment.
"""

from torch import Tensor

from rlrun.agents.actor_critic.sac import SAC
from rlrun.config.schema import NonNegativeFloat, config
from rlrun.functional.losses import cloning_error
from rlrun.registry import register
from rlrun.types import Batch


@register("algo", "sac_cloning")
class SACCloning(SAC):
    @config
    class Config(SAC.Config):
        cloning_coef: NonNegativeFloat

    def actor_loss(self, batch: Batch, value: Tensor, log_prob: Tensor) -> Tensor:
        error = cloning_error(self.actor(batch["obs"]).mode(), batch["action"])
        shown = batch.get("shown", 1.0)  # from data sets alone, every row is
        coef = self.cfg.cloning_coef * value.detach().abs().mean()
        return super().actor_loss(batch, value, log_prob) + coef * shown * error
