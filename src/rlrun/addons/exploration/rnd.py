"""Random network distillation (Burda et al. 2018, arXiv 1810.12894): what a predictor of a random network gets wrong.

As in the paper, images are seen without their older frames, and boxes standardised and clipped. The statistics begin
with the first rollout, where the paper has a random agent play first.
"""

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlrun import registry
from rlrun.addons.exploration.intrinsic import Intrinsic
from rlrun.config.schema import PositiveFloat, Units, config
from rlrun.core.agent import kernel
from rlrun.core.state import Optim, RunningMoments
from rlrun.functional.losses import average
from rlrun.networks.heads import Head
from rlrun.networks.inputs import is_image
from rlrun.registry import register
from rlrun.types import MASK, Batch, Metrics


@register("intrinsic", "rnd")
class RND(Intrinsic):
    @config
    class Config(Intrinsic.Config):
        embedding: Units
        obs_clip: PositiveFloat

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.view = View(spec.obs, spec.frame_stack, cfg.obs_clip)
        self.target = self.embedding().requires_grad_(False)
        self.predictor = self.embedding()
        self.optim = Optim(self.predictor.parameters(), cfg.learning_rate)

    def embedding(self) -> nn.Module:
        return Head(registry.build("network", self.network, [self.view.space], None), self.cfg.embedding)

    def watch(self, rows: Batch) -> None:
        self.view.add(rows["next_obs"], rows["weight"])

    def seen(self, rows: Batch) -> Batch:
        return {"next_obs": self.view(rows["next_obs"]), "weight": rows["weight"]}

    def surprise(self, rows: Batch) -> Tensor:
        return (self.predictor(rows["next_obs"]) - self.target(rows["next_obs"])).square().mean(-1)

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        loss = average(self.surprise(rows), rows["weight"])
        self.optim.step(loss)
        return {"rnd": loss.detach()}


class View(nn.Module):
    """Observations as a network sees them that was never trained: boxes standardised, of stacked frames the newest."""

    def __init__(self, space: Any, frame_stack: int, clip: float):
        super().__init__()
        self.space, self.clip = space, clip
        self.newest: slice | None = None  # of the frames; None: all there is
        self.parts: Any = nn.ModuleDict()  # of a Dict
        self.standardises = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Dict):
            views = {key: View(part, frame_stack, clip) for key, part in space.items() if key != MASK}
            self.parts.update(views)
            self.space = spaces.Dict({key: view.space for key, view in views.items()})
        if isinstance(space, spaces.Box):
            if frame_stack > 1 and is_image(space):
                self.newest = slice(-(space.shape[0] // frame_stack), None)
                self.space = spaces.Box(space.low[self.newest], space.high[self.newest], dtype=space.dtype.type)
            self.unit = 255 / clip if is_image(self.space) else 1.0  # networks divide the pixels of images by 255
            self.moments = RunningMoments(self.space.shape)

    def add(self, obs: Any, weight: Tensor) -> None:
        """[..., env, ...]; rows of weight 0 do not count."""
        for key, part in self.parts.items():
            part.add(obs[key], weight)
        if self.standardises:
            self.moments.add(self.without_older(obs)[weight > 0])

    def forward(self, obs: Any) -> Any:
        if self.parts:
            return {key: part(obs[key]) for key, part in self.parts.items()}
        if not self.standardises:
            return obs
        scale = (self.moments.var + 1e-8).rsqrt()
        centred = (self.without_older(obs) - self.moments.mean) * scale
        return (centred.clamp(-self.clip, self.clip) * self.unit).to(torch.float32)

    def without_older(self, obs: Tensor) -> Tensor:
        return obs if self.newest is None else obs[..., self.newest, :, :]
