"""What a recurrent encoder reads besides the observation: its state, and action or reward of the previous step."""

import torch
from gymnasium import Space
from torch import Tensor

from rlrun.addons.memory import with_entries
from rlrun.addons.previous import PreviousStep
from rlrun.errors import ConfigError
from rlrun.nested import index
from rlrun.networks.recurrent import Recurrent
from rlrun.settings import registry
from rlrun.spaces import unbounded
from rlrun.types import Batch, Obs, Spec

KEY = "algo.representation.network"
BEFORE = "start.representation"  # extra: state before the observation, 0 where an episode starts
AFTER = "carry.representation"  # extra: state after the observation


class Recurrence:
    """The inputs of a recurrent encoder, when acting and in stored timesteps.

    Replay stores the state before every observation, and returns it for the first timestep of a sequence alone: the
    encoder computes the later states anew, so that gradients flow through `length` timesteps.
    """

    def __init__(self, network: dict[str, object], spec: Spec):
        previous, length = network["previous"], network["sequence_length"]
        assert isinstance(previous, list) and isinstance(length, int)
        if network["burn_in"] or network["start"] != "stored":
            raise ConfigError(f"{KEY}: sequences begin with stored states; set {KEY}.burn_in=0 and {KEY}.start=stored")
        self.length = length
        self.previous = PreviousStep(previous, spec, KEY)
        inputs = self.previous.spec_after(spec).obs
        self.torso: Recurrent = registry.build("network", network, [inputs], None, path=KEY)
        state = unbounded(self.torso.size)
        self.stores: dict[str, Space] = {BEFORE: state, AFTER: state, **self.previous.stores}

    def see(self, obs: Obs, carry: Batch) -> tuple[Batch, Batch]:
        """Returns the inputs of the encoder for an observation to act on, and extras to be stored with the step."""
        inputs, extras = self.previous.see(obs, carry, explore=False)
        first = carry["first"].unsqueeze(-1)
        zeros = torch.zeros(len(first), self.torso.size, device=first.device)
        before = carry.get(AFTER, zeros) * ~first
        return with_entries(inputs, hidden_state=before), extras | {BEFORE: before}

    def relabel(self, batch: Batch) -> Batch:
        """Returns stored timesteps with the inputs of the encoder as `obs` and `next_obs`, with the stored states."""
        before, after = batch[BEFORE], batch[AFTER]
        if before.dim() < after.dim():  # replayed sequences, which have the state before the first timestep alone
            before = torch.cat([before.unsqueeze(0), after[:-1]])
        batch = self.previous.relabel(batch)
        return batch | {
            "obs": with_entries(batch["obs"], hidden_state=before),
            "next_obs": with_entries(batch["next_obs"], hidden_state=after),
        }

    def sequence(self, rows: Batch) -> Batch:
        """Returns the inputs of the encoder for the first `length` timesteps of sequences [time, batch, ...]."""
        before = rows[BEFORE]
        if before.dim() == 3:  # sequences of a rollout, which have the states of all timesteps
            before = before[0]
        entries = {name: rows[name] for name in self.previous.entries}
        obs = index(with_entries(rows["obs"], **entries), slice(self.length))
        first = torch.zeros(self.length, len(before), dtype=torch.bool, device=before.device)
        return obs | {"hidden_state": before.unsqueeze(0), "first": first}

    def states(self, inputs: Batch) -> Tensor:
        """Returns the states after all timesteps of `sequence`, or after the observations of `see`, [..., size]."""
        return self.torso.next_state(inputs)
