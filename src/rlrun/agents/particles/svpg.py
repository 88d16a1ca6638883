"""Stein variational policy gradient (Liu et al. 2017, arXiv 1704.02399): a population of policies that follow their
policy gradients and repel each other.

Every particle is an on-policy agent with its own environments. It computes its update as usual, but the gradients of
its policy are only accumulated. Then one SVGD step moves all policies together. Critics learn independently. The prior
over policy parameters is flat.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from rlrun.core.accumulator import mean_metrics
from rlrun.core.agent import Agent
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, StartsFresh
from rlrun.errors import ConfigError
from rlrun.functional.svgd import median_bandwidth, squared_distances, svgd_direction
from rlrun.nested import index
from rlrun.settings import Around, Part, PositiveFloat, Units, config, register
from rlrun.tensors import flat
from rlrun.types import Batch, Context, Metrics, Obs, Spec


class Gradients(StartsFresh, nn.Module):
    """Replaces the optimiser of a particle: accumulates gradients instead of applying them."""

    total: Tensor
    count: Tensor

    def __init__(self, optim: Optim):
        super().__init__()
        self.optim = optim
        self.register_buffer("total", torch.zeros_like(optim.flat))
        self.register_buffer("count", optim.flat.new_zeros(()))

    def step(self, loss: Tensor) -> Tensor:
        """Accumulates the gradients of the loss and returns their global norm, as `Optim.step` does."""
        grads = self.optim.grads(loss)
        self.total.add_(grads)
        self.count.add_(1)
        return torch.linalg.vector_norm(grads)

    def take(self) -> Tensor:
        """Returns the mean of the accumulated gradients, [P], and resets the accumulator."""
        mean = self.total / self.count
        self.total.zero_()
        self.count.zero_()
        return mean


@register("algo", "svpg")
class SVPG(Agent):
    """A population of on-policy agents that move by Stein variational gradient descent."""

    unexportable = "each of its particles acts in environments of its own"

    @config
    class Config:
        num_particles: Units
        temperature: PositiveFloat
        bandwidth: PositiveFloat | None
        particle: Annotated[dict[str, object], Part("algo")]

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        if spec.num_envs % cfg.num_particles:
            raise ConfigError(
                f"env.num_envs={spec.num_envs}: must be a multiple of algo.num_particles={cfg.num_particles}, "
                "because each particle has its own environments"
            )
        particles = []
        for i in range(cfg.num_particles):
            particle = parts.agent(cfg.particle, f"particle{i}")
            particles.append(particle)
        for particle in particles:
            if particle.critic.in_policy_loss:
                raise ConfigError(
                    f"algo.particle.critic_update={particle.critic.registered}: must be split, first or none, because "
                    "only the policies of the particles move together"
                )
            particle.optim = Gradients(particle.optim)
        self.particles: Any = nn.ModuleList(particles)

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        yield from super().requires(own, around)
        if around.loop == "episodes":
            yield (
                f"algo.loop=episodes is not supported by algo={around.algo}: each particle learns from its own "
                "environments, but this loop regroups their episodes; choose algo.loop=onpolicy"
            )

    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        """Acts with particle 0 in the first environments, particle 1 in the next, and so on; split evenly if
        possible."""
        actions = []
        extras: list[Batch] = []
        for particle, envs in self.split(carry["first"]):
            action, extra = particle.act(index(obs, envs), index(carry, envs), explore)
            actions.append(action)
            extras.append(extra)
        merged = {}
        for key in extras[0]:
            merged[key] = torch.cat([extra[key] for extra in extras])
        return torch.cat(actions), merged

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        learned: list[Metrics] = []
        starts = []
        for particle, envs in self.split(rollout["weight"][0]):
            own = index(rollout, (slice(None), envs))
            learned.append(particle.update(own, ctx))
            steps = flat({"obs": own["obs"], "weight": own["weight"]})
            before = particle.trust_region.before(particle.policy, steps)
            starts.append((particle, steps, before))
        metrics = mean_metrics(learned) | self.move()
        pulled: list[Metrics] = []
        for particle, steps, before in starts:
            pulled.append(particle.trust_region.pull(particle.policy, steps, before))
        return metrics | mean_metrics(pulled)

    def split(self, per_env: Tensor) -> Iterator[tuple[Any, slice]]:
        """Yields every particle that has environments, with the slice of its environments.

        per_env [num_envs]: any tensor, of which only the length counts. In a shard, it is a block of all environments.
        """
        count = len(per_env)
        first, total = 0, count
        if self.spec.first_env is not None:
            first, total = self.spec.first_env, self.spec.num_envs
        begin = -first
        for particle, block in zip(self.particles, torch.arange(total).tensor_split(len(self.particles)), strict=True):
            end = begin + len(block)
            own = slice(max(begin, 0), min(end, count))
            if own.stop > own.start:
                yield particle, own
            begin = end

    def move(self) -> Metrics:
        """Takes one SVGD step with all policies."""
        optims = [particle.optim.optim for particle in self.particles]
        x = torch.stack([optim.flat for optim in optims])
        loss_gradients = torch.stack([particle.optim.take() for particle in self.particles])
        distances = squared_distances(x)
        bandwidth: Tensor | float | None = self.cfg.bandwidth
        if bandwidth is None:
            bandwidth = median_bandwidth(distances)
        direction = svgd_direction(x, -loss_gradients, self.cfg.temperature, bandwidth)
        for optim, ascent in zip(optims, direction, strict=True):
            optim.apply(-ascent)
        return {"loss/distance": distances.mean().sqrt()}
