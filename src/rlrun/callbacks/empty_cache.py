"""The callback `empty_cache`, for a GPU that other processes use too."""

import torch

from rlrun.core.callback import Callback
from rlrun.settings import register
from rlrun.types import Batch, Context


@register("callback", "empty_cache")
class EmptyCache(Callback):
    """Gives memory of the GPU that torch has reserved and does not use back to other processes, before every update.

    It costs time, because torch reserves the memory again. Without a GPU it does nothing.
    """

    def on_update(self, batch: Batch, ctx: Context) -> None:
        torch.cuda.empty_cache()
