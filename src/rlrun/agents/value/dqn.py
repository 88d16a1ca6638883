"""Deep Q-learning (Mnih et al. 2015, doi 10.1038/nature14236) and what was added to it, by option.

Double Q-learning (arXiv 1509.06461), dueling networks (arXiv 1511.06581), noisy networks (arXiv 1706.10295), n-step
returns, and with other `returns` than their mean C51 and QR-DQN; all of them and prioritised replay make Rainbow
(arXiv 1710.02298).
"""

from typing import Any, Literal

import torch
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from rlrun import registry
from rlrun.config.schema import NStepReturns, PositiveFloat, PositiveFraction, PositiveInt, config
from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.random import Stream
from rlrun.core.state import Optim, Target
from rlrun.functional.losses import weighted_mean
from rlrun.networks.choices import legal
from rlrun.networks.heads import ActionValues, Dueling
from rlrun.networks.noisy import Noisy
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics


@register("algo", "dqn")
class DQN(Agent):
    actions = Discrete
    remembers = True

    @config
    class Config(NStepReturns):
        learning_rate: PositiveFloat
        optimizer_eps: PositiveFloat
        lr_schedule: dict[str, Any]
        double: bool
        dueling: bool
        noisy_std: PositiveFloat | None
        max_grad_norm: PositiveFloat | None
        target_tau: PositiveFraction
        target_every: PositiveInt
        target_unit: Literal["updates", "steps"]
        returns: dict[str, Any]
        epsilon: dict[str, Any]

    epsilon: Tensor

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.num_actions = int(spec.action.n)
        self.returns = registry.build("returns", cfg.returns, path="algo.returns")
        self.schedule = registry.build("epsilon", cfg.epsilon, path="algo.epsilon")
        self.q: nn.Module = (Dueling if cfg.dueling else ActionValues)(
            parts.torso(), self.num_actions, self.returns.size
        )
        if cfg.noisy_std is not None:
            self.q = Noisy(self.q, cfg.noisy_std)
        self.target_q = Target(self.q, cfg.target_tau)
        options: Any = {"eps": cfg.optimizer_eps, "max_grad_norm": cfg.max_grad_norm, "schedule": cfg.lr_schedule}
        self.optim = Optim(self.q.parameters(), cfg.learning_rate, **options)
        self.register_buffer("epsilon", torch.zeros(()))
        self.rewind()
        self.act_noise, self.update_noise = parts.stream("act"), parts.stream("update")

    def rewind(self) -> None:
        """Exploration starts over, with the run."""
        self.epsilon.fill_(self.schedule(Context(0, 0, 0.0)))

    @policy
    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        seen, extras = self.memory.advanced(obs)
        if not explore:
            return self.values(seen).argmax(-1), extras
        values = self.values(obs, *self.noise(self.act_noise))  # anew, for noise is in front of the memory too
        random = legal(self.act_noise.uniform(*values.shape), obs).argmax(-1)  # any legal action, all alike
        return torch.where(self.act_noise.uniform(len(values)) < self.epsilon, random, values.argmax(-1)), extras

    def values(self, obs: Any, *noise: Tensor) -> Tensor:
        """Of every action, -inf where it is forbidden: [batch, actions]."""
        return legal(self.returns.value(self.q(obs, *noise)), obs)

    def noise(self, source: Stream) -> tuple[Tensor, ...]:
        """What a call of the network takes beside the observation: nothing, unless it is noisy."""
        return (self.q.noise(source),) if isinstance(self.q, Noisy) else ()

    def update(self, batch: Batch, ctx: Context) -> tuple[Metrics, Tensor]:
        cfg = self.cfg
        self.epsilon.fill_(self.schedule(ctx))
        self.optim.tick(ctx.progress)
        metrics, priority = self.update_q(batch, [self.noise(self.update_noise) for _ in range(3)])
        self.target_q.track_every(cfg.target_every, ctx.updates + 1 if cfg.target_unit == "updates" else ctx.env_steps)
        return metrics | {"epsilon": self.epsilon.clone()}, priority

    @kernel
    def update_q(self, batch: Batch, noise: list[tuple[Tensor, ...]]) -> tuple[Metrics, Tensor]:
        with torch.no_grad():
            next_z = self.target_q(batch["next_obs"], *noise[0])  # [batch, actions, size]
            chooser = self.q(batch["next_obs"], *noise[1]) if self.cfg.double else next_z
            next_z = of_action(next_z, legal(self.returns.value(chooser), batch["next_obs"]).argmax(-1))
        z = of_action(self.q(batch["obs"], *noise[2]), batch["action"])  # [batch, size]
        discount = self.cfg.gamma ** batch["n_steps"] * (1 - batch["terminated"])
        rows, priority = self.returns.loss(z, next_z, batch["reward"], discount)
        loss = weighted_mean(rows, batch["weight"])
        self.optim.step(loss)
        return {"q_loss": loss.detach(), "q": self.returns.value(z).detach().mean()}, priority.detach()


def of_action(z: Tensor, action: Tensor) -> Tensor:
    """What is said of one action per row: z [batch, actions, size], action [batch] -> [batch, size]."""
    return z.gather(1, action.view(-1, 1, 1).expand(-1, 1, z.shape[2])).squeeze(1)
