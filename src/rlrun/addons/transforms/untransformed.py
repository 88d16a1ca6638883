"""The transform `untransformed`: keeps what the environment returned beside what the other transforms make of it."""

from rlrun.core.addon import Transform
from rlrun.settings import config, register
from rlrun.types import Batch


@register("transform", "untransformed")
class Untransformed(Transform):
    """Adds `untransformed.obs` and `untransformed.reward` to batches, for later transforms and the agent.

    From replay, the reward is the n-step sum of raw rewards, which the buffer adds.
    """

    is_first = True

    @config
    class Config:
        pass

    def relabel(self, batch: Batch) -> Batch:
        raw = {"untransformed.obs": batch["obs"], "untransformed.reward": batch["reward"]}
        return raw | batch
