"""Model predictive control: acts by planning in the equations of the environment, and learns nothing."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, cast

import torch
from gymnasium.spaces import Box
from torch import Tensor

from rlrun.core.agent import Agent, policy
from rlrun.core.parts import Parts
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.functional.planning import mean_over_copies
from rlrun.models.dynamics import Dynamics, is_vector
from rlrun.models.planners import Planner
from rlrun.models.rewards import RewardModel
from rlrun.settings import Fraction, Part, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "mpc")
class MPC(Agent):
    """Chooses the first action of the sequence whose imagined rewards have the largest sum."""

    actions = Box
    needs_bounds = True
    observations = Box
    unexportable = "it acts by planning"

    @config
    class Config:
        epsilon: Scheduled[Fraction]
        planner: Annotated[dict[str, object], Part("planner")]
        dynamics: Annotated[dict[str, object], Part("dynamics")]
        reward_model: Annotated[dict[str, object], Part("reward_model")]

    cfg: Config
    epsilon: Tensor
    fixed: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        streams = parts.stream("fixed"), parts.stream("plan")
        self.planner = parts.part("planner", cfg.planner, Planner, spec.action, *streams)
        self.dynamics = parts.part("dynamics", cfg.dynamics, Dynamics, spec)
        self.reward_model = parts.part("reward_model", cfg.reward_model, RewardModel, spec)
        self.check_models(self.dynamics.learns, self.reward_model.learns)
        self.register_buffer("epsilon", torch.as_tensor(cfg.epsilon), persistent=False)
        self.imagination = parts.stream("imagination")
        self.act_noise = parts.stream("act")
        self.register_buffer("fixed", self.drawn(parts.stream("fixed_imagination"), 1), persistent=False)

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        noise = self.fixed
        if explore:
            noise = self.drawn(self.imagination, len(obs))
        action, extras = self.planner.plan(partial(self.cost, cast(Tensor, obs), noise), carry, explore)
        if explore:
            action = self.planner.with_random(action, self.epsilon, self.act_noise)
        return action, extras

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return {}

    def check_models(self, dynamics_learn: bool, rewards_learn: bool) -> None:
        """Raises ConfigError if the agent would not train a model that learns."""
        if dynamics_learn or rewards_learn:
            raise ConfigError(f"algo={self.registered}: learns neither dynamics nor rewards; choose algo=mbrl")

    def drawn(self, stream: Stream, rows: int) -> Tensor:
        """Returns the noise of imagined steps, [rows, horizon, members, candidates * particles, D]; empty if none is
        read."""
        planner, copies = self.planner, self.planner.most_candidates * self.dynamics.particles
        if not self.dynamics.samples:
            copies = 0
        return stream.normal(rows, planner.cfg.horizon, self.dynamics.members, copies, *self.spec.obs.shape)

    def cost(self, obs: Tensor, noise: Tensor, sequences: Tensor) -> Tensor:
        """Returns minus the summed reward of imagined trajectories, averaged over members and particles, [B, P].

        obs [B, D], sequences of actions [B, P, H, A]. noise: of `drawn`. Every particle stays with its member.
        """
        num_rows, num_candidates = sequences.shape[:2]
        particles = self.dynamics.particles
        copies = num_candidates * particles
        state = self.dynamics.start(obs, copies)
        actions = sequences.repeat_interleave(particles, 1).flatten(0, 1)
        total = torch.zeros_like(state[..., 0])
        for step, action in enumerate(actions.unbind(1)):
            following = self.dynamics.step(state, action, self.noise_of(noise, step, num_rows, copies))
            total = total + self.reward_model(state, action.expand(*state.shape[:-1], -1), following)
            state = following
        return -mean_over_copies(total, num_rows, num_candidates)

    def noise_of(self, noise: Tensor, step: int, num_rows: int, copies: int) -> Tensor | None:
        """Returns the noise of one imagined step, [members, B * copies, D]; None for dynamics that do not sample."""
        if not self.dynamics.samples:
            return None
        own = noise[:, step, :, :copies].expand(num_rows, -1, -1, -1)
        return own.transpose(0, 1).flatten(1, 2)

    @classmethod
    def lacks(cls, spec: Spec) -> Iterator[tuple[str, object]]:
        yield from super().lacks(spec)
        if isinstance(spec.obs, Box) and not is_vector(spec.obs):
            yield "observations that are one vector of numbers", spec.obs
