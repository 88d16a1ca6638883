"""Recurrent state: an add-on advances it with every observation, and puts it beside the observation in batches."""

from typing import Any

import torch
from torch import Tensor

from rlrun.core.addon import Addon
from rlrun.core.agent import policy
from rlrun.nested import flat, index, mapped
from rlrun.networks.recurrent import Memory, Recurrent
from rlrun.types import MASK, Batch


class RecurrentState(Addon):
    """The state goes on from step to step as `carry.memory`, and is 0 where an episode starts.

    Agents know nothing of it: their networks read it from the observation. In a rollout, rows have the state before
    their observation, and next observations the one after it.
    """

    def __init__(self, memory: Memory):
        super().__init__()
        self.memory = memory
        self.size, self.length, self.burn_in = memory.size, memory.sequence_length, memory.burn_in
        self.stores = memory.stores

    def see(self, obs: Any, carry: Batch, explore: bool) -> tuple[Any, Batch]:
        first = carry["first"]
        state = carry.get("carry.memory", torch.zeros(len(first), self.size, device=first.device))
        obs = beside(obs, memory=state * ~first.unsqueeze(-1))
        after = self.advance(obs)
        return obs | {"memory_after": after}, {"memory": obs["memory"], "carry.memory": after}

    def acting(self) -> list[Recurrent]:
        return self.memory.torsos

    @policy
    def advance(self, obs: Batch) -> Tensor:
        """The state after an observation, [num_envs, size]."""
        return self.memory.after(obs)

    def relabel(self, batch: Batch) -> Batch:
        if "n_steps" in batch:  # out of replay
            return self.rows(batch)
        obs = beside(batch["obs"], memory=batch["memory"], first=batch["first"])
        return batch | {"obs": obs, "next_obs": beside(batch["next_obs"], memory=batch["carry.memory"])}

    def rows(self, batch: Batch) -> Batch:
        """Sequences [time, batch, ...] as rows [length * batch, ...] that know what their episode showed before.

        They start from the state stored with their first step, else from 0 (R2D2; Kapturowski et al. 2019). The steps
        of the burn-in refresh it; they are no rows and take no gradients. Successors go on from their rows.
        """
        burn_in, mask = self.burn_in, batch["mask"]
        memory = batch["memory"][0] if "memory" in batch else mask.new_zeros(mask.shape[1], self.size)
        past = {
            "memory": memory, "start": mask[: burn_in + 1].cumsum(0) == 1,  # the first steps that are there
            "before": index(batch["obs"], slice(burn_in)),
            "seen": followed(index(batch["obs"], burn_in), index(batch["next_obs"], slice(burn_in, None))),
        }  # fmt: skip
        learned = slice(burn_in, burn_in + self.length)
        own = {key: flat(batch[key][learned]) for key in ("action", "reward", "terminated", "n_steps", "mask")}
        rows = torch.arange(len(own["mask"]), device=mask.device)
        whole = {key: batch[key] for key in ("index", "age", "reward_weights") if key in batch}
        return whole | {
            "obs": shown(past, rows), "next_obs": shown(past, rows + mask.shape[1] * own["n_steps"].long()),
            "action": own["action"], "reward": own["reward"],
            "terminated": own["terminated"], "n_steps": own["n_steps"],
            "weight": own["mask"] * batch["weight"].repeat(self.length),
        }  # fmt: skip


def followed(first: Any, later: Any) -> Any:
    """What is seen first [batch, ...] and in later steps [time, batch, ...], as one: [1 + time, batch, ...]."""
    return mapped(lambda one, more: torch.cat([one.unsqueeze(0), more]), first, later)


def shown(past: Batch, rows: Tensor) -> Batch:
    """Observations of these rows; the actions that are allowed there lie open."""
    seen = past["seen"]
    masks = {MASK: flat(seen[MASK])[rows]} if isinstance(seen, dict) and MASK in seen else {}
    return past | {"rows": rows} | masks


def beside(obs: Any, **more: Tensor) -> Batch:
    """An observation as a dict, with more in it."""
    return (obs if isinstance(obs, dict) else {"obs": obs}) | more
