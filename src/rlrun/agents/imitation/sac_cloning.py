"""SAC whose policy also clones what data sets show (Nair et al. 2018, arXiv 1709.10089, there for DDPG).

By option only where the critics think more of the shown action than of the policy's own. The error is counted in units
of the mean absolute value, as in arXiv 2106.06860, so that its weight depends on no scale of rewards. Rows that were
collected are not cloned.
"""

from torch import Tensor

from rlrun.agents.actor_critic.columns import signed, total
from rlrun.agents.actor_critic.sac import JOINS, SAC
from rlrun.config.schema import NonNegativeFloat, config
from rlrun.functional.losses import cloning_error
from rlrun.registry import register
from rlrun.types import Batch


@register("algo", "sac_cloning")
class SACCloning(SAC):
    @config
    class Config(SAC.Config):
        cloning_coef: NonNegativeFloat
        cloning_filter: bool

    def actor_loss(self, batch: Batch, value: Tensor, log_prob: Tensor) -> Tensor:
        wanted = batch.get("shown", batch["weight"].new_ones(()))  # from data sets alone, every row is
        if self.cfg.cloning_filter:
            weights = batch.get("reward_weights")
            least = total(signed(JOINS["min"], weights)(self.q(batch)), weights)
            wanted = wanted * (least > value).detach()
        error = cloning_error(self.actor(batch["obs"]).mode(), batch["action"])
        coef = self.cfg.cloning_coef * value.detach().abs().mean()
        return super().actor_loss(batch, value, log_prob) + coef * wanted * error
