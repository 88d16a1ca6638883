"""Add-on for the hidden states of recurrent networks: updates them at every step, and puts them into observations.

networks/recurrent.py describes the entries of such an observation, and shows a sequence with burn-in.
"""

from typing import Any

import torch
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.core.agent import policy
from rlrun.nested import index, mapped
from rlrun.networks.recurrent import Recurrent, StateLayout
from rlrun.tensors import flat
from rlrun.types import MASK, Batch, Obs


class RecurrentState(Addon):
    """Carries the hidden state from step to step as `carry.memory`; it is 0 where an episode starts.

    Networks read the state from the observation, so agents need no code for recurrence. Every step is stored with two
    extras: `memory`, the state before its observation, and `carry.memory`, the state after its observation.
    """

    def __init__(self, memory: StateLayout):
        super().__init__()
        self.memory = memory
        self.size = memory.size
        self.length = memory.sequence_length
        self.burn_in = memory.burn_in
        self.stores = memory.stores

    def see(self, obs: Any, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        first = carry["first"]
        zeros = torch.zeros(first.shape[0], self.size, device=first.device)
        previous = carry.get("carry.memory", zeros)
        hidden_state = previous * ~first.unsqueeze(-1)
        obs = with_entries(obs, hidden_state=hidden_state)
        next_state = self.advance(obs)
        extras = {"memory": hidden_state, "carry.memory": next_state}
        return obs | {"next_hidden_state": next_state}, extras

    def acting(self) -> list[Recurrent]:
        return self.memory.torsos

    @policy
    def advance(self, obs: Batch) -> Tensor:
        """Returns the hidden state after an observation, [num_envs, size]."""
        return self.memory.next_state(obs)

    def relabel(self, batch: Batch) -> Batch:
        is_replay = "index" in batch
        if is_replay:
            return self.flat_rows(batch)
        return batch | {
            "obs": with_entries(batch["obs"], hidden_state=batch["memory"], first=batch["first"]),
            "next_obs": with_entries(batch["next_obs"], hidden_state=batch["carry.memory"]),
        }

    def flat_rows(self, batch: Batch) -> Batch:
        """Returns sequences [time, batch, ...] as rows [length * batch, ...]; `obs` and `next_obs` hold the sequences.

        Only the `length` timesteps after the burn-in become rows. The next observation of a row is n_steps timesteps
        later.
        """
        batch_size = batch["mask"].shape[1]
        learned = slice(self.burn_in, self.burn_in + self.length)
        rows: Batch = {}
        for key in ("action", "reward", "terminated", "n_steps"):
            rows[key] = flat(batch[key][learned])
        mask = flat(batch["mask"][learned])
        rows["weight"] = mask * batch["weight"].repeat(self.length)
        for key in ("index", "age", "reward_weights"):
            if key in batch:
                rows[key] = batch[key]
        history = self.history(batch)
        row_index = torch.arange(len(mask), device=mask.device)
        next_row_index = row_index + batch_size * rows["n_steps"].long()
        rows["obs"] = observation_rows(history, row_index)
        rows["next_obs"] = observation_rows(history, next_row_index)
        return rows

    def history(self, batch: Batch) -> Batch:
        """Returns the entries of the observation from which recurrent networks unroll the sequences.

        The initial hidden state is the state stored with the first timestep, or 0 (R2D2; Kapturowski et al. 2019).
        """
        burn_in = self.burn_in
        mask = batch["mask"]
        if "memory" in batch:
            hidden_state = batch["memory"][0]
        else:
            hidden_state = mask.new_zeros(mask.shape[1], self.size)
        num_valid = mask[: burn_in + 1].cumsum(0)
        first_obs = index(batch["obs"], burn_in)
        next_obs = index(batch["next_obs"], slice(burn_in, None))
        return {
            "hidden_state": hidden_state,
            "reset": num_valid == 1,
            "burn_in_obs": index(batch["obs"], slice(burn_in)),
            "sequence": mapped(prepended, first_obs, next_obs),
        }


def prepended(first: Tensor, following: Tensor) -> Tensor:
    """Returns `first` [batch, ...], then `following` [time, batch, ...], as [1 + time, batch, ...]."""
    return torch.cat([first.unsqueeze(0), following])


def observation_rows(history: Batch, row_index: Tensor) -> Any:
    """Returns the observation for the rows at `row_index`, with their action masks if the environment has masks."""
    obs = history | {"row_index": row_index}
    sequence = history["sequence"]
    if isinstance(sequence, dict) and MASK in sequence:
        masks = flat(sequence[MASK])
        obs[MASK] = masks[row_index]
    return obs


def with_entries(obs: Obs, **entries: Tensor) -> Any:
    """Returns an observation as a dict with additional entries; a plain observation becomes the entry `obs`."""
    if not isinstance(obs, dict):
        obs = {"obs": obs}
    return obs | entries
