"""The callback `imagination`, which compares imagined trajectories with the one that the environment took."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from rlrun.core.callback import Callback
from rlrun.errors import ConfigError
from rlrun.media import Image
from rlrun.models.dynamics import Dynamics
from rlrun.models.rewards import RewardModel
from rlrun.settings import PositiveInt, config, register
from rlrun.tensors import stack
from rlrun.types import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

M = TypeVar("M", bound=nn.Module)
ENTRIES = ("obs", "executed", "reward", "next_obs", "terminated", "truncated", "weight")  # of a step
MOST_DIMENSIONS = 8  # of an observation, that the picture shows
REAL, IMAGINED = "#1c2024", "#d1495b"


@register("callback", "imagination")
class Imagination(Callback):
    """Stores the picture `imagination` in RUN/media after evaluations: observations and rewards of the last steps of
    training in one environment, beside those that each network of the dynamics imagines from the first of these
    observations along the same actions.
    """

    @config
    class Config:
        every: PositiveInt = 1  # a picture after each evaluation, or after every n-th
        steps: PositiveInt = 30  # steps of the trajectory; it is shorter if the episode is

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        self.evaluations = 0
        self.steps: list[Step] = []  # since the last trajectory
        self.trajectory: list[Step] = []  # the last one that was complete

    def on_start(self) -> None:
        self.model(Dynamics)

    def model(self, kind: type[M]) -> M:
        """Returns a model of the agent."""
        for module in self.run.loop.agent.children():
            if isinstance(module, kind):
                return module
        raise ConfigError("callbacks: imagination: needs algo=mbrl or algo=mpc")

    def on_step(self, step: Step) -> None:
        ended = bool(step["terminated"][0] | step["truncated"][0])
        self.steps.append({name: step[name][0].clone() for name in ENTRIES})
        if ended or len(self.steps) == self.cfg.steps:
            self.trajectory, self.steps = self.steps, []

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        self.evaluations += 1
        if self.evaluations % self.cfg.every == 0 and self.trajectory:
            steps = stack(self.trajectory)
            batch = self.run.loop.addons.relabel(steps | {"action": steps["executed"]})  # as the agent sees it
            obs = torch.cat([batch["obs"][:1], batch["next_obs"]])
            with torch.no_grad():
                imagined = self.imagined(obs[0], batch["action"])
            self.show("imagination", Image.of_figure(drawn((obs, batch["reward"]), imagined)))

    def imagined(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Returns observations [T + 1, n, D] and rewards [T, n] that n networks imagine from obs [D] along actions
        [T, A], without noise."""
        dynamics, reward_model = self.model(Dynamics), self.model(RewardModel)
        states = [dynamics.start(obs.unsqueeze(0), 1)]
        rewards = []
        for action in actions.unsqueeze(1):
            before = states[-1]
            states.append(dynamics.step(before, action, None))
            rewards.append(reward_model(before, action.expand(*before.shape[:-1], -1), states[-1]))
        return torch.stack(states).squeeze(2), torch.stack(rewards).squeeze(2)

    def get_extra_state(self) -> int:
        return self.evaluations

    def set_extra_state(self, state: int) -> None:
        self.evaluations = int(state)


def drawn(real: tuple[Tensor, Tensor], imagined: tuple[Tensor, Tensor]) -> "Figure":
    """Returns a figure with a panel for each dimension of the observation and one for the reward.

    real: observations [T + 1, D] and rewards [T]. imagined: those of n networks, [T + 1, n, D] and [T, n].
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # imported only where a picture is drawn
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    observations, rewards = real
    dimensions = min(observations.shape[1], MOST_DIMENSIONS)
    panels = [(f"obs {i}", observations[:, i], imagined[0][:, :, i]) for i in range(dimensions)]
    panels.append(("reward", rewards, imagined[1]))
    figure = Figure(figsize=(6, 1.5 * len(panels)), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, one, others) in zip(axes, panels, strict=True):
        offset = len(observations) - len(one)  # a reward belongs to the observation after it
        steps = range(offset, len(observations))
        axis.plot(steps, others.cpu().numpy(), color=IMAGINED, linewidth=0.9)
        axis.plot(steps, one.cpu().numpy(), color=REAL, linewidth=1.4)
        axis.set_ylabel(name)
    axes[0].set_title("real (black) and imagined (red)", fontsize=9, loc="left")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("steps since the first observation")
    return figure
