"""TD3 for reward vectors: the critics have one value column per reward, and the actor maximises the weighted sum."""

from torch import Tensor

from rlrun.agents.actor_critic.td3 import TD3
from rlrun.agents.actor_critic.vector_sac import signs
from rlrun.agents.critics.ensemble import Critic
from rlrun.settings import register
from rlrun.types import Batch


@register("vector_algo", "td3")
class VectorTD3(TD3):
    """TD3 for reward vectors."""

    reward_vectors = True

    @property
    def columns(self) -> int:  # type: ignore[override]
        return self.spec.reward_dim

    def target_q(self, batch: Batch, noise: Tensor, target_critic: Critic) -> Tensor:
        """Returns the targets, [batch, rewards]."""
        next_z = target_critic(batch["next_obs"], self.next_action(batch, noise))
        next_q = self.ensemble.target(next_z, signs(batch["reward_weights"]))
        discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
        return self.ensemble.backup(next_q, batch["reward"], discount.unsqueeze(-1))

    def actor_q(self, batch: Batch, action: Tensor) -> Tensor:
        return super().actor_q(batch, action) @ batch["reward_weights"]
