"""The reward that is learned from, where others than the environment pay too."""

from collections.abc import Sequence

import torch

from rlrun.addons.exploration.bonus import SeparateBonus, SharedBonus
from rlrun.addons.exploration.intrinsic import Intrinsic
from rlrun.core.addon import Addon
from rlrun.errors import ConfigError
from rlrun.types import Batch, Context, Metrics, Spec


class RewardSum(Addon):
    """coef * r + what each payer's share is now: c_ext r_ext + r_goal + c_int r_int.

    What is paid is stored apart, in further columns of the reward, and added up whenever it is learned from; so
    coefficients may move while a replay buffer remembers.
    """

    def __init__(self, payers: Sequence[Addon], coef: float):
        super().__init__()
        self.payers, self.coef = tuple(payers), coef  # a tuple, for their state is saved where they stand themselves

    def relabel(self, batch: Batch) -> Batch:
        own = self.coef * batch["reward"]
        if not self.payers:
            return batch | {"reward": own}
        paid = zip(self.payers, batch["paid"].unbind(-1), strict=True)
        bonus = torch.stack([payer.share(column) for payer, column in paid]).sum(0)
        return batch | {"reward": own + bonus, "bonus": bonus}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return {"bonus": batch["bonus"].mean()} if self.payers else {}


def rewarding(
    payers: Sequence[Addon], intrinsic: Intrinsic | None, spec: Spec, replays: bool, n_step: int
) -> list[Addon]:
    """The add-ons that make the reward. replays: whether the loop does, n_step: rewards that the agent sums."""
    if spec.reward_dim > 1 and (payers or (intrinsic and (replays or intrinsic.cfg.separate is False))):
        raise ConfigError(
            "algo.intrinsic: is added to one number; this environment pays a vector, which is not supported"
        )
    if intrinsic is None:
        return [RewardSum(payers, 1.0)] if payers else []
    cfg, name = intrinsic.cfg, type(intrinsic).registered  # type: ignore[attr-defined]
    if replays and cfg.separate:
        raise ConfigError("algo.intrinsic.separate=true: only on-policy algorithms have returns for every reward")
    if n_step > 1 and intrinsic.single_steps:
        raise ConfigError(f"algo.n_step={n_step}: must be 1 with algo.intrinsic={name}, which learns from single steps")
    if not replays and cfg.separate is not False:
        return [RewardSum(payers, cfg.reward_coef), SeparateBonus(intrinsic)]
    bonus = SharedBonus(intrinsic, spec.num_envs)
    return [bonus, RewardSum([*payers, bonus], cfg.reward_coef)]
