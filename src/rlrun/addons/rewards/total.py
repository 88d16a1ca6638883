"""Sum of the environment's reward and the intrinsic rewards of all reward modules."""

from collections.abc import Sequence

import torch

from rlrun.addons.rewards.intrinsic.bonus import SeparateBonus, SharedBonus
from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.addon import Addon, RewardModule
from rlrun.errors import ConfigError
from rlrun.functional.losses import batch_mean
from rlrun.types import Batch, Context, Metrics, Spec


class RewardSum(Addon):
    """Sets the reward of a batch to coef * environment reward + sum of the scaled rewards of all reward modules.

    Intrinsic rewards are stored unscaled, as additional reward columns, and are scaled and summed whenever a batch is
    learned from. Coefficients can therefore change while older steps are in the replay buffer.
    """

    def __init__(self, reward_modules: Sequence[RewardModule], coef: float):
        super().__init__()
        self.reward_modules = tuple(reward_modules)  # a tuple, because they are submodules of Addons already
        self.coef = coef

    def relabel(self, batch: Batch) -> Batch:
        reward = self.coef * batch["reward"]
        if not self.reward_modules:
            return batch | {"reward": reward}
        columns = batch["intrinsic_rewards"].unbind(-1)
        scaled = [module.scale(column) for module, column in zip(self.reward_modules, columns, strict=True)]
        bonus = torch.stack(scaled).sum(0)
        return batch | {"reward": reward + bonus, "bonus": bonus}

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        if not self.reward_modules:
            return {}
        return {"loss/bonus": batch_mean(batch["bonus"])}


def intrinsic_addons(
    reward_modules: Sequence[RewardModule], intrinsic: Intrinsic | None, spec: Spec, replays: bool, n_step: int
) -> list[Addon]:
    """Returns the add-ons to append after the existing `reward_modules`; they add the intrinsic rewards to the reward.

    replays: whether the loop learns from replay. n_step: number of rewards in the agent's returns.
    """
    if intrinsic is None:
        if not reward_modules:
            return []
        _check_single_reward(spec)
        return [RewardSum(reward_modules, 1.0)]
    cfg = intrinsic.cfg
    is_separate = not replays and cfg.separate is not False
    if reward_modules or not is_separate:
        _check_single_reward(spec)
    if replays and cfg.separate:
        raise ConfigError("algo.intrinsic.separate=true: only on-policy algorithms support separate returns")
    if n_step > 1 and intrinsic.single_steps:
        name = type(intrinsic).registered  # type: ignore[attr-defined]
        raise ConfigError(f"algo.n_step={n_step}: must be 1 with algo.intrinsic={name}, which learns from single steps")
    if is_separate:
        return [RewardSum(reward_modules, cfg.reward_coef), SeparateBonus(intrinsic)]
    bonus = SharedBonus(intrinsic, spec.num_envs)
    return [bonus, RewardSum([*reward_modules, bonus], cfg.reward_coef)]


def _check_single_reward(spec: Spec) -> None:
    if spec.reward_dim > 1:
        raise ConfigError(
            "algo.intrinsic: intrinsic rewards are not supported with a reward vector, which this environment has"
        )
