"""The callback `latents`, which shows what the latent states of a model hold."""

from collections.abc import Mapping

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray
from torch import Tensor

from rlrun.core.callback import Callback
from rlrun.errors import ConfigError
from rlrun.media import Image
from rlrun.models.model import LearnedModel
from rlrun.networks.inputs import FlattenInputs, channels_last, is_image
from rlrun.settings import PositiveInt, config, register
from rlrun.types import Obs

REACH = 2.0  # a traversal moves a number from -REACH to REACH around its value


@register("callback", "latents")
class LatentPictures(Callback):
    """Stores two pictures in RUN/media after evaluations, of image observations of the training.

    `reconstructions`: observations above what the model decodes from their latent states. `traversals`: what it decodes
    from the latent state of the first one when one of its numbers is moved, a row for each number; for categorical
    variables, when one of them takes each of its categories.
    """

    @config
    class Config:
        every: PositiveInt = 1  # pictures after each evaluation, or after every n-th
        rows: PositiveInt = 8  # the most observations, and the most numbers of the latent state
        steps: PositiveInt = 7  # values that each number takes

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        self.evaluations = 0

    def on_start(self) -> None:
        if not is_image(self.observed()[1]):
            raise ConfigError("callbacks: latents: needs observations that are images")

    def observed(self) -> tuple[LearnedModel, Space, Obs]:
        """Returns the model, the space of the observations that it gets, and the present ones."""
        loop = self.run.loop
        obs, spec = loop.obs, loop.env.spec
        for addon in loop.addons:
            for model in addon.children():
                if isinstance(model, LearnedModel):
                    return model, spec.obs, obs
            obs, _ = addon.see(obs, loop.carry, explore=False)
            spec = addon.spec_after(spec)
        raise ConfigError("callbacks: latents: needs algo.representation=encoding")

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        self.evaluations += 1
        if self.evaluations % self.cfg.every == 0:
            model, space, obs = self.observed()
            assert isinstance(obs, Tensor)
            obs = obs[: self.cfg.rows]
            with torch.no_grad():
                latent = model.encode(obs)
                pairs = torch.stack([FlattenInputs(space)(obs), model.decode(latent)])
                moved = traversals(latent[0], self.cfg.rows, self.cfg.steps)
                decoded = model.decode(moved.flatten(0, 1)).unflatten(0, moved.shape[:2])
            self.show("reconstructions", Image(tiled(pairs, space)))
            self.show("traversals", Image(tiled(decoded, space)))

    def get_extra_state(self) -> int:
        return self.evaluations

    def set_extra_state(self, state: int) -> None:
        self.evaluations = int(state)


def traversals(latent: Tensor, rows: int, steps: int) -> Tensor:
    """Returns latent states [rows, steps, *latent]: in row i, number i of `latent` [*latent] is moved.

    If `latent` has the shape [variables, categories], variable i takes each of its categories.
    """
    if latent.dim() == 2:
        variables, categories = latent.shape
        moved = latent.repeat(min(rows, variables), categories, 1, 1)
        for i, row in enumerate(moved):
            row[:, i] = torch.eye(categories)
        return moved
    moved = latent.repeat(min(rows, len(latent)), steps, 1)
    for i, row in enumerate(moved):
        row[:, i] += torch.linspace(-REACH, REACH, steps)
    return moved


def tiled(pixels: Tensor, space: Space) -> NDArray[np.uint8]:
    """Returns one picture [height, width, 3] of images [rows, columns, size], as `FlattenInputs` flattens them.

    Of stacked frames, and of other channels than grey or colours, it shows the last.
    """
    assert space.shape is not None
    images = (pixels.clamp(0, 1) * 255).to(torch.uint8).unflatten(-1, space.shape)
    if not channels_last(space):
        images = images.movedim(-3, -1)
    elif len(space.shape) == 4:
        images = images[:, :, -1]
    if images.shape[-1] != 3:
        images = images[..., -1:].expand(*images.shape[:-1], 3)
    return images.permute(0, 2, 1, 3, 4).flatten(0, 1).flatten(1, 2).cpu().numpy()
