"""Model-based reinforcement learning: acts by planning in dynamics that it learns (Chua et al. 2018, arXiv 1805.12114).

Dynamics and reward model have optimisers of their own. Either may be given, and is then not trained.
"""

from rlrun.agents.model_based.mpc import MPC
from rlrun.core.agent import kernel
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.losses import weighted_mean
from rlrun.nested import mapped
from rlrun.settings import PositiveFloat, config, register
from rlrun.types import Batch, Context, Metrics, Spec


@register("algo", "mbrl")
class MBRL(MPC):
    """Learns dynamics and rewards of single steps, and plans with them as MPC does."""

    @config
    class Config(MPC.Config):
        max_grad_norm: PositiveFloat | None

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        if self.dynamics.learns:
            self.dynamics_optim = Optim(
                self.dynamics.parameters(), self.dynamics.learning_rate, max_grad_norm=cfg.max_grad_norm
            )
        if self.reward_model.learns:
            self.reward_optim = Optim(
                self.reward_model.parameters(), self.reward_model.learning_rate, max_grad_norm=cfg.max_grad_norm
            )

    def check_models(self, dynamics_learn: bool, rewards_learn: bool) -> None:
        if not dynamics_learn and not rewards_learn:
            raise ConfigError(f"algo={self.registered}: dynamics and rewards are given; choose algo=mpc")

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        metrics: Metrics = {}
        if self.dynamics.learns:
            self.dynamics.observe(batch)
            metrics |= self.update_dynamics(self.divided(batch))
        if self.reward_model.learns:
            metrics |= self.update_reward_model(batch)
        return metrics

    def divided(self, batch: Batch) -> Batch:
        """Returns the rows as [members, rows of each member, ...]; a remainder is left out."""
        members = self.dynamics.members
        each = len(batch["weight"]) // members
        if not each:
            raise ConfigError(f"algo.loop.batch_size: must be at least algo.dynamics.members={members}")
        rows = {name: batch[name] for name in ("obs", "action", "next_obs", "weight")}
        return mapped(lambda x: x[: members * each].unflatten(0, (members, each)), rows)

    @kernel
    def update_dynamics(self, rows: Batch) -> Metrics:
        error = self.dynamics.loss(rows["obs"], rows["action"], rows["next_obs"])
        loss = weighted_mean(error, rows["weight"])
        self.dynamics_optim.step(loss * self.dynamics.members)  # the sum over members
        return {"loss/dynamics": loss.detach()}

    @kernel
    def update_reward_model(self, batch: Batch) -> Metrics:
        error = self.reward_model.loss(batch["obs"], batch["action"], batch["next_obs"], batch["reward"])
        loss = weighted_mean(error, batch["weight"])
        self.reward_optim.step(loss)
        return {"loss/reward_model": loss.detach()}
