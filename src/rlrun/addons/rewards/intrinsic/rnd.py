"""Random network distillation (Burda et al. 2018, arXiv 1810.12894): the error in predicting a random network.

As in the paper, the input is the newest frame of stacked images, and boxes are standardised and clipped. Unlike in the
paper, no random agent collects observations for the initial statistics: they start with the first rollout.
"""

from types import EllipsisType
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.agent import kernel
from rlrun.core.state import Optim, Statistics
from rlrun.functional.losses import masked_mean
from rlrun.networks.heads import Head
from rlrun.networks.inputs import is_image, largest_byte
from rlrun.settings import PositiveFloat, Units, config, register, registry
from rlrun.types import MASK, Batch, Metrics, Obs


@register("intrinsic", "rnd")
class RND(Intrinsic):
    """Rewards the error of a network that is trained to predict the outputs of a fixed random network."""

    @config
    class Config(Intrinsic.Config):
        embedding: Units
        obs_clip: PositiveFloat

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.view = RndInputs(spec.obs, spec.frame_stack, cfg.obs_clip)
        self.target = self.embedding().requires_grad_(False)
        self.predictor = self.embedding()
        self.optim = Optim(self.predictor.parameters(), cfg.learning_rate)

    def embedding(self) -> nn.Module:
        """Returns a new network that maps preprocessed observations to embeddings."""
        torso = registry.build("network", self.network, [self.view.space], None)
        return Head(torso, self.cfg.embedding)

    def observe(self, rows: Batch) -> None:
        self.view.add(rows["next_obs"], rows["weight"])

    def publish(self) -> None:
        super().publish()
        self.view.publish()

    def preprocess(self, rows: Batch) -> Batch:
        return {"next_obs": self.view(rows["next_obs"]), "weight": rows["weight"]}

    def raw_reward(self, rows: Batch) -> Tensor:
        """Returns the mean squared prediction error, [batch]."""
        next_obs = rows["next_obs"]
        error = self.predictor(next_obs) - self.target(next_obs)
        return error.square().mean(-1)

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        error = self.raw_reward(rows)
        loss = masked_mean(error, rows["weight"])
        self.optim.step(loss)
        return {"loss/rnd": loss.detach()}


class RndInputs(nn.Module):
    """Preprocesses observations: standardises and clips boxes, and keeps only the newest frame of stacked images.

    `space` is the space of a preprocessed observation.
    """

    def __init__(self, space: Any, frame_stack: int, clip: float):
        super().__init__()
        self.space = space
        self.clip = clip
        self.newest: slice | None = None  # the newest frame, in the first dimension of the space; None: all of it
        self.parts: Any = nn.ModuleDict()  # one view for each entry of a Dict
        self.standardises = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Dict):
            self._add_parts(frame_stack)
        if isinstance(space, spaces.Box):
            self._add_moments(frame_stack)

    def _add_parts(self, frame_stack: int) -> None:
        part_spaces = {}
        for key, part_space in self.space.items():
            if key != MASK:
                view = RndInputs(part_space, frame_stack, self.clip)
                self.parts[key] = view
                part_spaces[key] = view.space
        self.space = spaces.Dict(part_spaces)

    def _add_moments(self, frame_stack: int) -> None:
        space = self.space
        if frame_stack > 1 and is_image(space):
            frame_length = space.shape[0] // frame_stack
            self.newest = slice(-frame_length, None)
            self.space = spaces.Box(space.low[self.newest], space.high[self.newest], dtype=space.dtype.type)
        self.output_scale = 1.0  # factor of standardised observations
        if is_image(self.space):
            # networks divide images by `largest_byte`, so their input is then from -1 to 1
            self.output_scale = largest_byte(self.space) / self.clip
        self.statistics = Statistics(self.space.shape)

    def add(self, obs: Any, weight: Tensor) -> None:
        """Adds observations [..., env, ...] to the pending statistics, without masked rows."""
        for key, part in self.parts.items():
            part.add(obs[key], weight)
        if self.standardises:
            newest = self.newest_frame(obs)
            self.statistics.add(newest[weight > 0])

    def publish(self) -> None:
        """Makes all pending statistics live."""
        for part in self.parts.values():
            part.publish()
        if self.standardises:
            self.statistics.publish()

    def forward(self, obs: Any) -> Obs:
        if self.parts:
            return {key: part(obs[key]) for key, part in self.parts.items()}
        if not self.standardises:
            return obs
        mean, var = self.statistics.available()
        scale = (var + 1e-8).rsqrt()
        standardised = (self.newest_frame(obs) - mean) * scale
        clipped = standardised.clamp(-self.clip, self.clip)
        return (clipped * self.output_scale).to(torch.float32)

    def newest_frame(self, obs: Tensor) -> Tensor:
        """Returns stacked images [..., *space] without their older frames, which come first in the space."""
        if self.newest is None:
            return obs
        other_dims = [slice(None)] * (len(self.space.shape) - 1)
        where: tuple[EllipsisType | slice, ...] = (..., self.newest, *other_dims)
        return obs[where]
