"""The part `algo.action_gradient`: the gradient dQ/da of the action value that continuous actors follow.

Clipping keeps a steep critic from pushing actions to their bounds; the penalty keeps a saturated tanh from losing its
gradient (arXiv 1802.09464).
"""

from typing import Any

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.agents.critics.ensemble import QFunction
from rlrun.errors import ConfigError
from rlrun.settings import NonNegativeFloat, PositiveFloat, config, register
from rlrun.types import Spec


@register("action_gradient", "exact")
class ActionGradient(nn.Module):
    """Leaves the gradient as it is; base class of the others. All are built from a config and the spec."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, spec: Spec):
        super().__init__()

    def follow(self, q: Tensor, action: Tensor) -> Tensor:
        """Returns the values q [batch] of the actor's actions [batch, actions]; only their gradient may change."""
        return q

    def wrap(self, q: QFunction) -> QFunction:
        """Returns the function q(..., action), [batch], with the gradient of `follow`."""

        def with_gradient(*inputs: Any) -> Tensor:
            action = inputs[-1]
            return self.follow(q(*inputs), action)

        return with_gradient


@register("action_gradient", "regularized")
class Regularized(ActionGradient):
    """Clips dQ/da elementwise, and adds the gradient of -action_l2 |a|^2."""

    @config
    class Config:
        dqda_clipping: PositiveFloat | None
        action_l2: NonNegativeFloat

    def __init__(self, cfg: Any, spec: Spec):
        super().__init__(cfg, spec)
        if not isinstance(spec.action, Box):
            line = f"algo.action_gradient=regularized: needs Box actions; this environment has {spec.shown_action}"
            raise ConfigError(f"{line}; choose algo.action_gradient=exact")
        self.cfg = cfg

    def follow(self, q: Tensor, action: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(q.sum(), action)
        if self.cfg.dqda_clipping is not None:
            gradient = gradient.clamp(-self.cfg.dqda_clipping, self.cfg.dqda_clipping)
        fixed = action.detach()
        gradient = gradient - 2 * self.cfg.action_l2 * fixed
        return q.detach() + (gradient * (action - fixed)).sum(-1)  # the difference is 0, and its gradient is 1
