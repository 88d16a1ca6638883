"""Consecutive steps: where an episode of a rollout goes on, sequences, and transitions with the next action."""

import torch
from torch import Tensor

from rlrun.buffers.rows import START
from rlrun.indexed import dense
from rlrun.nested import index
from rlrun.tensors import flat
from rlrun.types import Batch


def continues(rollout: Batch) -> Tensor:
    """Returns whether the next row of the environment continues the episode, [time, env]; False in the last row.

    Where this is True, `next_obs` is the `obs` of the next row.
    """
    done = rollout["terminated"] | rollout["truncated"]
    is_valid = rollout["weight"] > 0
    goes_on = torch.zeros_like(done)
    goes_on[:-1] = ~done[:-1] & is_valid[1:]
    return goes_on


def next_steps(rollout: Batch, start: Tensor, length: int) -> Batch:
    """Returns sequences of `length` consecutive steps that begin at the given steps, [length, batch, ...].

    start [batch]: flat indices row * num_envs + env of the first steps. `mask` is 1 until the episode or the rollout
    ends; after that it is 0 and the last step is repeated.
    """
    weight = rollout["weight"]
    num_envs = weight.shape[1]
    goes_on = continues(rollout).flatten()
    step_index = [start]
    mask = [(weight.flatten()[start] > 0).to(weight)]
    for _ in range(length - 1):
        has_next = goes_on[step_index[-1]]
        step_index.append(step_index[-1] + num_envs * has_next.long())
        mask.append(mask[-1] * has_next)
    steps: Batch = dense(index(flat(rollout), torch.stack(step_index)))
    steps["mask"] = torch.stack(mask)
    return steps


def first_steps(sequences: Batch, length: int) -> Batch:
    """Returns the first `length` timesteps of replayed sequences [time, batch, ...].

    Entries of whole sequences, the weight and the extras `start.*`, stay as they are.
    """
    whole = [name for name in sequences if name == "weight" or name.startswith(START)]
    cut: Batch = index({name: value for name, value in sequences.items() if name not in whole}, slice(length))
    return cut | {name: sequences[name] for name in whole}


def with_next_action(batch: Batch, n_step: int, gamma: float) -> Batch:
    """Returns transitions [batch, ...] with n-step returns, and with the action that the trajectory takes after them.

    batch: sequences [n_step + 1, batch, ...] from replay, or a rollout [time, env, ...], each of whose steps begins a
    transition. `has_next_action` is 1 where `next_action` is known, and 0 where the episode or the data end before it.
    `reward_weights` stay as they are.
    """
    shared = {name: batch[name] for name in ("reward_weights",) if name in batch}
    batch = {name: value for name, value in batch.items() if name not in shared}
    if "n_steps" not in batch:
        batch = _n_step_sequences(batch, n_step, gamma)
    n_steps = batch["n_steps"][0]
    after = n_steps.long()  # position in each sequence of the step after the n-step return
    sequence = torch.arange(len(n_steps), device=n_steps.device)
    return shared | {
        "obs": index(batch["obs"], 0),
        "action": batch["action"][0],
        "reward": batch["reward"][0],
        "n_steps": n_steps,
        "terminated": batch["terminated"][0],
        "next_obs": index(batch["next_obs"], (after - 1, sequence)),
        "next_action": batch["action"][after, sequence],
        "has_next_action": batch["mask"][after, sequence],
        "weight": batch["weight"],
    }


def _n_step_sequences(rollout: Batch, n_step: int, gamma: float) -> Batch:
    """Returns sequences [n_step + 1, time * env, ...] that begin at every step, with the keys of replayed sequences.

    `reward`, `n_steps` and `terminated`, [1, time * env], are those of the transition that the first n_step steps form.
    """
    weight = rollout["weight"].flatten()
    start = torch.arange(len(weight), device=weight.device)  # the first step of each sequence, and so its column
    steps = next_steps(rollout, start, n_step + 1)
    mask = steps["mask"][:n_step]
    # at least 1, because it is used as an index: the sum is 0 if the first step is masked, which has weight 0 anyway
    n_steps = mask.sum(0).clamp(min=1)
    exponent = torch.arange(n_step, device=weight.device).view(-1, 1)
    discount = gamma**exponent * mask
    rewards = steps["reward"][:n_step]
    if rewards.dim() > discount.dim():
        discount = discount.unsqueeze(-1)  # the columns of a reward vector
    reward = (discount * rewards).sum(0)
    terminated = steps["terminated"][n_steps.long() - 1, start].to(weight)
    summed = {"reward": reward, "n_steps": n_steps, "terminated": terminated}
    return steps | {name: value.unsqueeze(0) for name, value in summed.items()} | {"weight": weight}
