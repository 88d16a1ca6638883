"""The V-trace actor-critic of IMPALA (Espeholt et al. 2018, arXiv 1802.01561).

This is A2C with V-trace targets and advantages, which correct for policy updates since the rollout was collected. In
the paper, actors and learner run asynchronously. Here every rollout is `algo.loop.lag` updates old.
"""

from torch import Tensor

from rlrun.agents.policy.a2c import A2C
from rlrun.agents.policy.columns import Column
from rlrun.config.schema import PositiveFloat, config
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.functional.returns import vtrace
from rlrun.nested import flat
from rlrun.registry import register
from rlrun.types import Batch, Spec


@register("algo", "vtrace")
class VTrace(A2C):
    """A2C with V-trace targets."""

    @config
    class Config(A2C.Config):
        rho_clip: PositiveFloat
        c_clip: PositiveFloat

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        if cfg.rho_clip < cfg.c_clip:
            raise ConfigError(f"algo.rho_clip={cfg.rho_clip}: must be at least algo.c_clip, which is {cfg.c_clip}")
        super().__init__(cfg, spec, parts)

    def estimate(self, rollout: Batch, column: Column) -> tuple[Tensor, Tensor]:
        dist = self.policy(flat(rollout["obs"]))
        log_prob = dist.log_prob(flat(rollout["action"])).view_as(column.value)
        log_ratio = log_prob - rollout["log_prob"]
        cfg = self.cfg
        target, advantage = vtrace(log_ratio, *column, cfg.rho_clip, cfg.c_clip, cfg.gae_lambda)
        return advantage, target
