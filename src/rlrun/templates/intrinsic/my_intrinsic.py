"""A bonus for rarely visited groups of observations (Tang et al. 2017, arXiv 1611.04717, section 2.2).

pytest my_intrinsic/
rlrun train algo=ppo env=MountainCar algo.intrinsic=./my_intrinsic/my_intrinsic.py
"""

import torch
from torch import Tensor

from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.parts import Parts
from rlrun.networks.inputs import FlattenInputs
from rlrun.settings import PositiveInt, config, register
from rlrun.types import Batch, Metrics, Obs, Spec


@register("intrinsic", "my_intrinsic")
class MyIntrinsic(Intrinsic):
    """The intrinsic reward of a step is 1 / sqrt(visits to the group of its next observation).

    An observation belongs to the group with the signs of its random projections. `algo.intrinsic.coef` weights the
    reward, which is first divided by the standard deviation of its discounted sums.
    """

    @config
    class Config(Intrinsic.Config):  # the settings of every intrinsic reward, such as coef
        bits: PositiveInt = 10  # number of projections; there are 2^bits groups

    projection: Tensor
    counts: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.flat = FlattenInputs(self.space)
        # what changes must be a buffer or a parameter, which snapshots hold
        self.register_buffer("projection", torch.randn(self.flat.size, cfg.bits))
        self.register_buffer("counts", torch.zeros(2**cfg.bits))

    def groups(self, obs: Obs) -> Tensor:
        """Returns the group of each observation, a number from 0 to 2^bits - 1."""
        signs = (self.flat(obs) @ self.projection > 0).long()
        return (signs << torch.arange(self.cfg.bits, device=signs.device)).sum(-1)

    def observe(self, rows: Batch) -> None:
        """Called once for every collected row, before its reward is computed. The weight of a masked row is 0."""
        super().observe(rows)  # for algo.intrinsic.obs_statistics, which are none by default
        groups = self.groups(self.preprocess(rows)["next_obs"])
        self.counts.scatter_add_(0, groups.flatten(), rows["weight"].flatten())

    def raw_reward(self, rows: Batch) -> Tensor:
        """Returns the rewards of rows, [batch]. The rows have `obs`, `action`, `next_obs` and `weight`."""
        visits = self.counts[self.groups(rows["next_obs"])]
        return visits.clamp(min=1.0).rsqrt()

    def fit(self, rows: Batch) -> Metrics:
        """Called with batches of rows, for gradient steps of a model. There is none here; returns metrics."""
        return {"loss/visited_groups": (self.counts > 0).float().sum()}
