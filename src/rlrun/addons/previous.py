"""Add-on that puts the previous action and reward into observations (`network.previous`, of a representation too)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.addons.memory import with_entries
from rlrun.buffers.packing import layout
from rlrun.core.addon import Addon
from rlrun.core.previous import remembered, reward_shape
from rlrun.errors import ConfigError
from rlrun.types import Batch, Obs, Spec


class PreviousStep(Addon):
    """Adds `previous_action`, as the environment executed it, and `previous_reward`, of the environment, to
    observations. Both are 0 at the first step of an episode, as in RL^2 (Duan et al. 2016, arXiv 1611.02779).

    names: what it adds, action and reward. section: of the config, whose key `previous` lists them.
    """

    def __init__(self, names: Sequence[str], spec: Spec, section: str):
        super().__init__()
        reward = spaces.Box(-np.inf, np.inf, reward_shape(spec), np.float32)
        known: dict[str, Space] = {"previous_action": spec.action, "previous_reward": reward}
        self.entries = {entry: space for entry, space in known.items() if entry.removeprefix("previous_") in names}
        if isinstance(spec.obs, spaces.Dict):
            for entry in self.entries.keys() & spec.obs.spaces.keys():
                raise ConfigError(f"{section}.previous: the observation already has an entry {entry!r}")
        self.reads_previous = tuple(names)
        self.stores = self.entries | {f"carry.{name}": self.entries[f"previous_{name}"] for name in names}

    def spec_after(self, spec: Spec) -> Spec:
        entries = {"obs": spec.obs}
        if isinstance(spec.obs, spaces.Dict):
            entries = spec.obs.spaces
        return replace(spec, obs=spaces.Dict({**entries, **self.entries}))

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        first = carry["first"]
        previous: dict[str, Tensor] = {}
        for name in self.reads_previous:
            entry = f"previous_{name}"
            ((shape, dtype),) = layout(entry, self.entries[entry]).values()
            zeros = torch.zeros(first.shape[0], *shape, dtype=dtype, device=first.device)
            previous[entry] = remembered(carry, name, zeros)
        return with_entries(obs, **previous), previous

    def relabel(self, batch: Batch) -> Batch:
        before = {entry: batch[entry] for entry in self.entries}
        after = {f"previous_{name}": batch[f"carry.{name}"] for name in self.reads_previous}
        return batch | {
            "obs": with_entries(batch["obs"], **before),
            "next_obs": with_entries(batch["next_obs"], **after),
        }
