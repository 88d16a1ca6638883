"""Conversion between rollouts and demonstrations: turns an episode into a demonstration, and appends demonstrations to
a rollout as additional environment columns, called time lines here."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rlrun.buffers.demos import Demo, cut
from rlrun.nested import index, mapped
from rlrun.tensors import joined, stack
from rlrun.types import Batch, Obs, carried

# `Addons.see`: observations, carry and whether to explore -> observations of the agent, and extras
Sees = Callable[[Obs, Batch, bool], tuple[Obs, Batch]]


def episode(rows: Batch) -> Demo:
    """Returns a demonstration made of the rows of one episode, [steps, ...]."""
    last_obs = index(rows["next_obs"], slice(-1, None))
    return {
        "obs": joined([rows["obs"], last_obs]),
        "action": rows["action"],
        "reward": rows["reward"],
        "terminated": bool(rows["terminated"][-1]),
    }


def with_lines(rollout: Batch, rows: Batch | None) -> Batch:
    """Returns the rollout [time, env + n, ...] with n additional time lines that hold rows of demonstrations.

    rows [steps, ...]: demonstrations one after the other, as `transitions` returns them; None for no demonstrations.
    The entry `shown` of the result is True in the rows of demonstrations. Their log_prob is 0, because the demonstrator
    counts as deterministic. Entries that `rows` lacks are left out, such as the state of exploration noise.
    """
    collected = rollout | {"shown": torch.zeros_like(rollout["terminated"])}
    if rows is None:
        return collected
    collected = {key: value for key, value in collected.items() if key in rows}
    time = len(rollout["weight"])
    count = math.ceil(len(rows["reward"]) / time)
    return mapped(_appended, collected, folded(rows, count, time))


def shown(demos: list[Demo], see: Sees) -> Batch | None:
    """Returns the rows of demonstrations, one after the other [steps, ...], or None if there are none.

    The extras of add-ons are those of the current networks, as if they saw every demonstration from its start.
    """
    if not demos:
        return None
    rows = joined([transitions(demo) for demo in demos])
    starts = rows["first"].nonzero().flatten()
    demo = rows["first"].cumsum(0) - 1  # the demonstration of each row
    time = torch.arange(len(demo), device=demo.device) - starts[demo]
    lines = 1 << (len(starts) - 1).bit_length()  # few different numbers, because each is a shape to record
    begin = torch.cat([starts, starts.new_zeros(lines - len(starts))])
    carry: Batch = {"first": torch.ones_like(begin, dtype=torch.bool)}
    seen: list[Batch] = []
    for now in range(int(time.max()) + 1):
        at = (begin + now).clamp(max=len(demo) - 1)  # rows after the end of a demonstration are left out below
        _, extras = see(index(rows["obs"], at), carry, False)
        if not extras:
            return rows
        seen.append(extras)
        carry = carried(extras, torch.zeros_like(carry["first"]))
    return rows | index(stack(seen), (time, demo))


def _appended(collected: Tensor, shown: Tensor) -> Tensor:
    return torch.cat([collected, shown.to(collected.dtype)], 1)


def lines(demos: list[Demo], count: int, time: int) -> Batch:
    """Returns the concatenated transitions of the demonstrations, cut into `count` time lines, [time, count, ...]."""
    return folded(joined([transitions(demo) for demo in demos]), count, time)


def folded(rows: Batch, count: int, time: int) -> Batch:
    """Returns rows [steps, ...], cut into `count` time lines, [time, count, ...].

    Masked steps (weight 0) pad the end of the last time lines.
    """
    num_missing = count * time - len(rows["reward"])
    padding = index(rows, torch.zeros(num_missing, dtype=torch.long))
    padding["weight"] = torch.zeros_like(padding["weight"])
    rows = joined([rows, padding])

    def fold(values: Tensor) -> Tensor:
        return values.unflatten(0, (-1, time)).transpose(0, 1)

    return mapped(fold, rows)


def shortened(demos: list[Demo], steps: int | None) -> list[Demo]:
    """Returns the first demonstrations, with at most `steps` transitions in total; the last one may be cut short.

    For None, returns all demonstrations.
    """
    if steps is None:
        return demos
    kept: list[Demo] = []
    for demo in demos:
        length = min(steps, len(demo["reward"]))
        if length:
            kept.append(cut(demo, length))
        steps -= length
    return kept


def transitions(demo: Demo) -> Batch:
    """Returns the transitions of a demonstration, [steps, ...]; the last is truncated if the episode did not
    terminate."""
    reward = demo["reward"]
    weight = reward.new_ones(len(reward))
    first = torch.zeros_like(weight, dtype=torch.bool)
    first[0] = True
    last = torch.zeros_like(weight, dtype=torch.bool)
    last[-1] = True
    terminated = torch.full_like(last, demo["terminated"])
    return {
        "obs": index(demo["obs"], slice(None, -1)),
        "next_obs": index(demo["obs"], slice(1, None)),
        "action": demo["action"],
        "reward": reward,
        "terminated": last & terminated,
        "truncated": last & ~terminated,
        "weight": weight,
        "first": first,
        "log_prob": torch.zeros_like(weight),
        "shown": torch.ones_like(last),
    }
