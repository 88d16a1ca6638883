"""Base class of representations whose latent state replaces the observation."""

from dataclasses import replace
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.tensors import flat
from rlrun.types import MASK, Batch, Obs, Spec


class LatentState(Addon):
    """Agents get latent states, without gradients, in place of observations. Action masks stay beside them."""

    @property
    def latent(self) -> Space:
        """The space of the latent states."""
        raise NotImplementedError

    def encode(self, obs: Obs) -> Tensor:
        """Returns latent states, [batch, *latent]."""
        raise NotImplementedError

    def spec_after(self, spec: Spec) -> Spec:
        latent = self.latent
        if isinstance(spec.obs, spaces.Dict) and MASK in spec.obs.spaces:
            latent = spaces.Dict({"obs": latent, MASK: spec.obs[MASK]})
        return replace(spec, obs=latent, frame_stack=1)

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        latent = self.encode(obs)
        return with_action_mask(latent, obs), {}

    def encoded(self, batch: Batch) -> Batch:
        """Returns the batch with latent states as `obs` and `next_obs`."""
        leading = batch["terminated"].shape
        obs = self.encode_rows(batch["obs"], leading)
        next_obs = self.encode_rows(batch["next_obs"], leading)
        return batch | {"obs": obs, "next_obs": next_obs}

    def with_rows(self, batch: Batch, rows: Any) -> Batch:
        """Returns the batch with latent states, and with the rows that the representation learns from."""
        return self.encoded(batch) | {"training_batch": rows}

    def rows_of(self, batch: Any) -> Batch:
        """Returns the rows that `with_rows` added to a batch."""
        rows: Batch = batch["training_batch"]
        return rows

    def encode_rows(self, obs: Obs, leading: torch.Size) -> Any:
        """Returns latent states of observations [*leading, ...], with action masks if the environment has them."""
        if len(leading) == 1:
            latent = self.encode(obs)
        else:
            latent = self.encode(flat(obs)).unflatten(0, leading)
        return with_action_mask(latent, obs)


def with_action_mask(latent: Tensor, obs: Obs) -> Obs:
    """Returns the latent state, together with the action mask if the observation has one."""
    if isinstance(obs, dict) and MASK in obs:
        return {"obs": latent, MASK: obs[MASK]}
    return latent
