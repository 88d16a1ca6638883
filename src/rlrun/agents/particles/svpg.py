"""Stein variational policy gradient (Liu et al. 2017, arXiv 1704.02399): policies that climb and repel each other.

Any on-policy learner is a particle: each learns from its own environments as it would alone, but the gradients of its
policy are collected, and all particles move together. Critics are not mixed. In the paper the prior is flat or normal;
here it is flat.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from rlrun.config.schema import Part, PositiveFloat, Units, config
from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.svgd import median_bandwidth, squared_distances, svgd_direction
from rlrun.nested import index
from rlrun.registry import register
from rlrun.types import Batch, Context, Metrics, Spec


class Gradients(nn.Module):
    """Stands where a learner's optimiser does: collects what it would step along, until `take`."""

    total: Tensor
    count: Tensor
    starts_fresh = True

    def __init__(self, optim: Optim):
        super().__init__()
        self.optim = optim
        self.register_buffer("total", torch.zeros_like(optim.flat))
        self.register_buffer("count", optim.flat.new_zeros(()))

    def tick(self, progress: float) -> None:
        self.optim.tick(progress)

    def step(self, loss: Tensor) -> Tensor:
        """Returns the norm of the gradients, as an optimiser does."""
        grads = self.optim.grads(loss)
        self.total.add_(grads)
        self.count.add_(1)
        return torch.linalg.vector_norm(grads)

    def take(self) -> Tensor:
        """The mean of what was collected, [P]."""
        mean = self.total / self.count
        self.total.zero_()
        self.count.zero_()
        return mean


@register("algo", "svpg")
class SVPG(Agent):
    @config
    class Config:
        num_particles: Units
        temperature: PositiveFloat
        bandwidth: PositiveFloat | None
        particle: Annotated[dict[str, Any], Part("algo")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        if spec.num_envs % cfg.num_particles:
            raise ConfigError(
                f"env.num_envs={spec.num_envs}: must be a multiple of algo.num_particles={cfg.num_particles}, "
                "for each particle has environments of its own"
            )
        particles = [parts.agent(cfg.particle, f"particle{i}") for i in range(cfg.num_particles)]
        for particle in particles:
            if particle.critic.in_policy_loss:
                raise ConfigError(
                    f"algo.particle.critic_update={particle.critic.registered}: must be split, first or none, because "
                    "only the policies of the particles are mixed"
                )
            particle.optim = Gradients(particle.optim)
        self.particles: Any = nn.ModuleList(particles)

    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        """Environments are split over the particles in order, as evenly as may be."""
        chosen = [
            particle.act(index(obs, rows), index(carry, rows), explore) for particle, rows in self.split(carry["first"])
        ]
        actions, extras = zip(*chosen, strict=True)
        return torch.cat(actions), {key: torch.cat([extra[key] for extra in extras]) for key in extras[0]}

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        learned: list[Metrics] = []
        for particle, rows in self.split(rollout["weight"][0]):
            learned.append(particle.update(index(rollout, (slice(None), rows)), ctx))
        metrics = {key: torch.stack([one[key] for one in learned]).mean() for key in learned[0]}
        return metrics | self.move()

    def split(self, envs: Tensor) -> Iterator[tuple[Any, slice]]:
        """The particles that have environments, and which."""
        begin = 0
        for particle, part in zip(self.particles, envs.tensor_split(len(self.particles)), strict=True):
            if len(part):
                yield particle, slice(begin, begin := begin + len(part))

    def move(self) -> Metrics:
        """One step of every policy along the mixed direction."""
        optims = [particle.optim.optim for particle in self.particles]
        x = torch.stack([optim.flat for optim in optims])
        score = -torch.stack([particle.optim.take() for particle in self.particles])
        distances = squared_distances(x)
        bandwidth = median_bandwidth(distances) if self.cfg.bandwidth is None else self.cfg.bandwidth
        direction = svgd_direction(x, score, self.cfg.temperature, bandwidth)
        for optim, up in zip(optims, direction, strict=True):
            optim.apply(-up)
        return {"distance": distances.mean().sqrt()}
