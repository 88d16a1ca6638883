"""The equations of an environment: rewards and next observations as functions of tensors, for planning.

They are those of its simulator in torch, as the agent sees them: its observations, and its actions in [-1, 1].
"""

from collections.abc import Callable

import torch
from gymnasium.envs.registration import load_env_creator
from torch import Tensor

from rlrun.envs.config import EnvConfig
from rlrun.envs.simulators import suite
from rlrun.envs.simulators.torch_env import TorchEnv
from rlrun.envs.stepping.accelerated import Units
from rlrun.envs.stepping.actions import Actions


class SimulatorEquations:
    """Functions of obs [..., D], action [..., A] and next_obs [..., D].

    obs: space of the observations.
    """

    def __init__(self, simulator: TorchEnv, units: Units):
        self.simulator, self.units = simulator, units
        self.obs = simulator.single_observation_space

    def reward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """Returns the rewards [...] of steps."""
        rows = self.simulator.reward(obs.flatten(0, -2), self._native(action), next_obs.flatten(0, -2))
        return rows.float().view(obs.shape[:-1])

    def step(self, obs: Tensor, action: Tensor) -> Tensor:
        """Returns the next observations [..., D]."""
        state = self.simulator.infer(obs.flatten(0, -2))
        following, _, _ = self.simulator.move(state, self._native(action))
        next_obs: Tensor = self.simulator.observe(following)  # type: ignore[assignment]
        return next_obs.view(obs.shape)

    def _native(self, action: Tensor) -> Tensor:
        return self.units.to_native(self.units.clip(action.flatten(0, -2)))


def equations(cfg: EnvConfig, actions: Actions, device: torch.device) -> SimulatorEquations | None:
    """Returns the equations of a config, None if they are not known or wrappers change what the agent sees."""
    changes = [cfg.wrappers, cfg.eval_kwargs, cfg.task_kwargs, cfg.schedule, cfg.normalize.kind in ("obs", "both")]
    if any(changes) or cfg.id not in suite.ENTRY_POINTS:
        return None
    kind: Callable[..., TorchEnv] = load_env_creator(suite.ENTRY_POINTS[cfg.id])  # type: ignore[assignment]
    try:
        simulator = kind(1, None, **cfg.kwargs)
    except TypeError:  # kwargs of single environments that the simulator does not have
        return None
    if not simulator.shows_state:
        return None
    simulator.to(device)
    return SimulatorEquations(simulator, Units(actions, device))
