"""From episodes to demonstrations, and from demonstrations to further time lines of a rollout."""

from typing import Any

import torch

from rlrun.buffers.demos import Demo, cut
from rlrun.nested import index, mapped
from rlrun.types import Batch


def episode(rows: Batch) -> Demo:
    """The rows of one episode, [steps, ...], as a demonstration."""
    obs = joined([rows["obs"], index(rows["next_obs"], slice(-1, None))])
    ended = bool(rows["terminated"][-1])
    return {"obs": obs, "action": rows["action"], "reward": rows["reward"], "terminated": ended}


def joined(parts: list[Any]) -> Any:
    """Tensors, or equally nested dicts of tensors, one after the other. A copy."""
    if isinstance(parts[0], dict):
        return {key: joined([part[key] for part in parts]) for key in parts[0]}
    return torch.cat(parts)


def beside(rollout: Batch, shown: list[Demo]) -> Batch:
    """The rollout [time, env + n, ...] with the demonstrations one after the other in n further time lines.

    `shown` marks their rows; as if a demonstrator had chosen them for certain, their log_prob is 0.
    """
    time, marked = len(rollout["weight"]), rollout | {"shown": torch.zeros_like(rollout["terminated"])}
    if not shown:
        return marked
    steps = sum(len(demo["reward"]) for demo in shown)
    return _beside(marked, lines(shown, -(-steps // time), time))


def lines(demos: list[Demo], count: int, time: int) -> Batch:
    """Their transitions one after the other in `count` time lines, [time, count, ...]; what is left has weight 0."""
    rows = joined([transitions(demo) for demo in demos])
    padding = index(rows, torch.zeros(count * time - len(rows["reward"]), dtype=torch.long))
    rows = joined([rows, padding | {"weight": torch.zeros_like(padding["weight"])}])
    return _lines(rows, time)


def shortened(demos: list[Demo], steps: int | None) -> list[Demo]:
    """Their first `steps` transitions, the last episode cut; None: all."""
    if steps is None:
        return demos
    kept: list[Demo] = []
    for demo in demos:
        length = min(steps, len(demo["reward"]))
        kept += [cut(demo, length)] if length else []
        steps -= length
    return kept


def transitions(demo: Demo) -> Batch:
    """[steps, ...]; where it ends without the task, what follows is the critic's to say."""
    reward = demo["reward"]
    weight = reward.new_ones(len(reward))
    first, last = torch.zeros_like(weight, dtype=torch.bool), torch.zeros_like(weight, dtype=torch.bool)
    first[0] = last[-1] = True
    ended = torch.full_like(last, demo["terminated"])
    return {
        "obs": index(demo["obs"], slice(None, -1)), "next_obs": index(demo["obs"], slice(1, None)),
        "action": demo["action"], "reward": reward, "terminated": last & ended, "truncated": last & ~ended,
        "weight": weight, "first": first, "log_prob": torch.zeros_like(weight),
        "shown": torch.ones_like(last),
    }  # fmt: skip


def _lines(rows: Any, time: int) -> Any:
    return mapped(lambda x: x.unflatten(0, (-1, time)).transpose(0, 1), rows)


def _beside(some: Any, more: Any) -> Any:
    return mapped(lambda one, other: torch.cat([one, other.to(one.dtype)], 1), some, more)
