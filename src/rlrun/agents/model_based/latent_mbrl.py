"""Model-based reinforcement learning in latent states (ALF's `LatentMbrlAlgorithm`).

Acts by planning in the predictions of the representation before the agent (`algo.representation=predictive`), which
learns by its own losses. The agent itself has no weights.
"""

from functools import partial
from typing import Annotated, cast

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.core.agent import Agent, policy
from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.models.planners import Planner
from rlrun.settings import Fraction, Part, Scheduled, config, register
from rlrun.types import Batch, Context, Metrics, Obs, Spec


@register("algo", "latent_mbrl")
class LatentMBRL(Agent):
    """Chooses the first action of the sequence whose rewards, predicted from the latent state, have the largest sum."""

    actions = Box
    needs_bounds = True
    observations = Box
    unexportable = "it acts by planning"

    @config
    class Config:
        epsilon: Scheduled[Fraction]
        planner: Annotated[dict[str, object], Part("planner")]

    cfg: Config
    epsilon: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        model = parts.predictor
        if model is None:
            raise ConfigError(f"algo={self.registered}: plans in predictions; set algo.representation=predictive")
        if fault := model.unpredictable("reward"):
            raise ConfigError(f"{fault}, but algo={self.registered} plans with predicted rewards")
        self.model = (model,)  # in a tuple, because its weights belong to the add-on
        streams = parts.stream("fixed"), parts.stream("plan")
        self.planner = parts.part("planner", cfg.planner, Planner, spec.action, *streams)
        self.register_buffer("epsilon", torch.as_tensor(cfg.epsilon), persistent=False)
        self.act_noise = parts.stream("act")

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        action, extras = self.planner.plan(partial(self.cost, cast(Tensor, obs)), carry, explore)
        if explore:
            action = self.planner.with_random(action, self.epsilon, self.act_noise)
        return action, extras

    def cost(self, latent: Tensor, sequences: Tensor) -> Tensor:
        """Returns minus the sum of the predicted rewards, [B, P]; latent [B, L], sequences of actions [B, P, H, A]."""
        num_rows, num_candidates = sequences.shape[:2]
        rows = latent.repeat_interleave(num_candidates, 0)
        (model,) = self.model
        reward = model.predict_multi_step(rows, sequences.flatten(0, 1), ["reward"])["reward"]
        following = reward[:, 1:]  # the first latent state follows no action
        return -following.sum((1, 2)).view(num_rows, num_candidates)

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        return {}

    def acting(self) -> tuple[nn.Module, ...]:
        return (self, *self.model)
