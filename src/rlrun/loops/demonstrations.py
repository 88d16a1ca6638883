"""On-policy loop with demonstrations: after an episode ends, demonstrations may be replayed (PPO+D, arXiv 2007.03328).

In the paper, the environment waits while a demonstration is replayed. Here the environments keep stepping, and the
demonstrations are appended to the rollout as additional time lines. The counter of environment steps excludes them.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlrun.buffers.demo_lines import episode, transitions, with_lines
from rlrun.buffers.demos import Demo
from rlrun.core.collector import check_ends
from rlrun.datasets.demonstrations import check_replaceable, holds_demonstrations, read, write
from rlrun.datasets.folders import digests
from rlrun.errors import ConfigError
from rlrun.indexed import dense
from rlrun.loops.onpolicy import OnPolicy
from rlrun.nested import index, joined, stack
from rlrun.settings import Around, register
from rlrun.types import GOAL, Batch, Context, Metrics, carried


@register("loop", "demonstrations")
class Demonstrations(OnPolicy):
    """Learns from rollouts to which replayed demonstrations are appended: [time, env + n, ...]."""

    has_reports = False  # demonstrations hold none

    def __init__(self, *args: Any):
        super().__init__(*args)
        if f"carry.{GOAL}" in self.addons.stores or self.addons.reward_modules:
            raise ConfigError("algo.loop=demonstrations: demonstrations have no goals and no stored intrinsic rewards")
        self.open: list[list[Batch]] = [[] for _ in range(self.env.spec.num_envs)]  # collected rows of running episodes
        self.read: list[str] = []  # names of the supplementary data sets that were read
        cfg = self.buffer.cfg
        if cfg.save_to:
            check_replaceable(f"algo.buffer.save_to={cfg.save_to}", Path(cfg.save_to))
        if cfg.supplementary and not Path(cfg.supplementary).is_dir():
            line = "algo.buffer.supplementary=%s: there is no such folder yet; it is searched once it exists"
            logging.getLogger(__name__).warning(line, cfg.supplementary)

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        yield from super().requires(own, around)
        if around.buffer != "demos":
            yield f"algo.loop={around.loop} is not supported by algo={around.algo}, which has no algo.buffer=demos"

    def begin(self) -> None:
        super().begin()
        self.open = [[] for _ in self.open]
        self.read = []
        cfg = self.buffer.cfg
        self.buffer.begin(self.load("algo.buffer.given", cfg.given), self.load("algo.buffer.own", cfg.own))

    def load(self, key: str, data: str | None) -> list[Demo]:
        """Returns the episodes of the data set `data`, or [] for None. key: the setting that names the data set."""
        if data is None:
            return []
        self.digests |= digests(key, data)
        return read(key, data, self.env, self.buffer.cfg.data_env)

    def learn(self, rollout: Batch, ctx: Context) -> Metrics:
        demos = self.draw(rollout)
        self.batch = batch = self.addons.relabel(with_lines(rollout, self.replay(demos)))
        self.clock.lap("sample")
        learned: Any = self.agent.update(batch, ctx)
        metrics, value = learned  # value: what the critic predicted for every row, [time, env + n]
        metrics |= self.addons.update(batch, ctx)
        num_envs = rollout["weight"].shape[1]
        self.refresh(demos, value[:, num_envs:].T.flatten())
        self.track(rollout, value[:, :num_envs])
        if (self.updates + 1) % self.buffer.cfg.save_every == 0:
            self.exchange()
        steps = sum(len(demo["reward"]) for demo in demos)
        num_demos = len(self.buffer.reward_demos)
        counts = {"loss/demo_steps": steps, "loss/reward_demos": num_demos, "loss/rho": self.buffer.rho}
        return metrics | {name: value.new_tensor(count) for name, count in counts.items()}

    def draw(self, rollout: Batch) -> list[Demo]:
        """Returns the demonstrations to replay after the episodes that ended in the rollout.

        For each of these episodes, demonstrations are drawn until a draw returns none.
        """
        ended = (rollout["terminated"] | rollout["truncated"]) & (rollout["weight"] > 0)
        demos = []
        self.buffer.follow_schedules()
        for _ in range(int(ended.sum())):
            while demo := self.buffer.draw():
                demos.append(demo)
        return demos

    def replay(self, demos: list[Demo]) -> Batch | None:
        """Returns the rows of demonstrations, one after the other [steps, ...], or None if there are none.

        The extras of add-ons are those of the current networks, as if they saw every demonstration from its start.
        """
        if not demos:
            return None
        rows = joined([transitions(self.buffer.restored(demo)) for demo in demos])
        starts = rows["first"].nonzero().flatten()
        demo = rows["first"].cumsum(0) - 1  # the demonstration of each row
        time = torch.arange(len(demo), device=demo.device) - starts[demo]
        lines = 1 << (len(starts) - 1).bit_length()  # few different numbers, because each is a shape to record
        begin = torch.cat([starts, starts.new_zeros(lines - len(starts))])
        carry: Batch = {"first": torch.ones_like(begin, dtype=torch.bool)}
        seen: list[Batch] = []
        for now in range(int(time.max()) + 1):
            at = (begin + now).clamp(max=len(demo) - 1)  # rows after the end of a demonstration are left out below
            _, extras = self.addons.see(index(rows["obs"], at), carry, explore=False)
            if not extras:
                return rows
            seen.append(extras)
            carry = carried(extras, torch.zeros_like(carry["first"]))
        return rows | index(stack(seen), (time, demo))

    def refresh(self, demos: list[Demo], value: Tensor) -> None:
        """Updates the highest predicted values of replayed demonstrations.

        value: predictions for the rows of all these demonstrations, one demonstration after the other.
        """
        lengths = [len(demo["reward"]) for demo in demos]
        for demo, along in zip(demos, value[: sum(lengths)].split(lengths), strict=True):
            self.buffer.refresh(demo, float(along.max()))

    def track(self, rollout: Batch, value: Tensor) -> None:
        """Adds the episodes that ended to the buffer, and keeps the rows of running episodes; value: [time, env]."""
        ended = rollout["terminated"] | rollout["truncated"]
        kept = {key: dense(rollout[key]) for key in ("obs", "action", "reward", "next_obs", "terminated", "weight")}
        kept["value"] = value
        for env, pieces in enumerate(self.open):
            begin = 0
            for end in (ended[:, env].nonzero().flatten() + 1).tolist():
                pieces.append(index(kept, (slice(begin, end), env)))
                rows = joined(pieces)
                if (rows["weight"] > 0).all():  # a masked step interrupts the episode, so it is not a trajectory
                    self.buffer.add(episode(rows), float(rows["value"].max()))
                pieces.clear()
                begin = end
            if begin < len(ended):
                pieces.append(index(kept, (slice(begin, None), env)))
            # the first piece of a running episode may be part of a rollout; the others are whole rollouts
            check_ends((len(pieces) - 1) * len(ended), self.env.spec)

    def exchange(self) -> None:
        """Saves the best episodes of the agent, and reads the supplementary data sets that were not read before."""
        cfg = self.buffer.cfg
        best = self.buffer.best()
        if cfg.save_to and best:
            write(Path(cfg.save_to), best, self.env)
        if not cfg.supplementary or not Path(cfg.supplementary).is_dir():
            return
        for folder in sorted(Path(cfg.supplementary).iterdir()):
            if folder.name in self.read or not holds_demonstrations(folder):
                continue
            self.read.append(folder.name)
            try:
                for found in self.load("algo.buffer.supplementary", str(folder)):
                    self.buffer.add_success(found | {"kind": "own"})
            except ConfigError as error:  # a bad data set of another run must not end this run
                logging.getLogger(__name__).warning("data set left out: %s", error)
            self.buffer.evict()

    def get_extra_state(self) -> dict[str, Any]:
        return super().get_extra_state() | {"open": self.open, "read": self.read, "digests": self.digests}
