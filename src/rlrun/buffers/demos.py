"""Buffer of demonstrations that are replayed after episodes of the agent (PPO+D: Libardi et al. 2020, arXiv
2007.03328).

Reward demonstrations are recorded episodes from data sets and successful episodes of the agent. Value demonstrations
are unsuccessful episodes of the agent, ranked by the highest value that the critic predicted along each episode.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from rlrun.buffers.demo_storage import Demo, DemoStorage
from rlrun.buffers.dtypes import FloatType
from rlrun.buffers.replay import Reading
from rlrun.core.random import Stream
from rlrun.errors import ConfigError, RunError
from rlrun.nested import mapped
from rlrun.settings import Fraction, NonNegativeFloat, PositiveInt, Scheduled, config, register
from rlrun.tensors import on
from rlrun.types import Spec


@register("buffer", "demos")
class Demos(nn.Module):
    """Two pools of demonstrations that share one capacity.

    rho is the probability of replaying a reward demonstration, phi that of a value demonstration. Every success of the
    agent increases rho and decreases phi; their sum stays the same.
    """

    @config
    class Config:
        capacity: PositiveInt
        rho: Scheduled[Fraction]
        phi: Scheduled[Fraction]
        alpha: Scheduled[NonNegativeFloat]
        dtypes: dict[Literal["obs", "action", "reward"], FloatType]
        reward_threshold: float | None
        given: str | None
        own: str | None
        supplementary: str | None
        data_env: Literal["same", "any"]
        save_to: str | None
        save_every: PositiveInt
        num_saved: PositiveInt

    STATE = ("reward_demos", "value_demos", "rho", "phi", "base_rho", "base_phi", "first_values", "value_capacity")

    def __init__(
        self,
        cfg: Any,
        spec: Spec,
        reading: Reading,
        seed: int,
        device: torch.device,
    ):
        super().__init__()
        if cfg.rho + cfg.phi >= 1:
            raise ConfigError(f"algo.buffer.rho + algo.buffer.phi = {cfg.rho + cfg.phi:g}: must be less than 1")
        self.cfg = cfg
        self.device = device
        self.storage = DemoStorage(cfg.dtypes, spec.frame_stack)
        self.stream = Stream(seed, "demos")
        self.reward_demos: list[Demo] = []
        self.value_demos: list[Demo] = []
        self.rho = self.base_rho = float(cfg.rho)
        self.phi = self.base_phi = float(cfg.phi)
        self.value_capacity = cfg.capacity  # maximum number of value demonstrations; every success reduces it by 1
        self.first_values = cfg.capacity  # value_capacity at the start of training

    def begin(self, given: list[Demo], own: list[Demo]) -> None:
        """Starts anew with these demonstrations. `evict` and `add_success` never drop a given one."""
        self.reward_demos = []
        self.value_demos = []
        self.rho = self.base_rho = float(self.cfg.rho)
        self.phi = self.base_phi = float(self.cfg.phi)
        for demo in given:
            self.reward_demos.append(self.storage.packed(demo | {"kind": "given"}))
        for demo in own:
            self.reward_demos.append(self.storage.packed(demo | {"kind": "own"}))
        num_demos = len(self.reward_demos)
        if num_demos > self.cfg.capacity:
            raise ConfigError(f"algo.buffer.capacity={self.cfg.capacity}: is too small for {num_demos} demonstrations")
        self.value_capacity = self.cfg.capacity - num_demos
        self.first_values = self.value_capacity

    def __len__(self) -> int:
        return len(self.reward_demos) + len(self.value_demos)

    @property
    def threshold(self) -> float:
        """The minimum return with which an episode becomes a reward demonstration."""
        if self.reward_demos:
            return min(demo["worth"] for demo in self.reward_demos)
        if self.cfg.reward_threshold is None:
            return -float("inf")
        return self.cfg.reward_threshold

    def follow_schedules(self) -> None:
        """Adds to rho and phi what their schedules have changed since the last call.

        Raises RunError if they sum to 1 or more, by the schedules or in an untrusted snapshot: every draw would then be
        a demonstration, and the loop draws until there is none.
        """
        rho, phi = float(self.cfg.rho), float(self.cfg.phi)
        self.rho += rho - self.base_rho
        self.phi += phi - self.base_phi
        self.base_rho, self.base_phi = rho, phi
        highest = max(rho + phi, self.rho, self.rho + self.phi)
        if highest >= 1:
            raise RunError(f"algo.buffer.rho + algo.buffer.phi = {highest:g}: must be less than 1")

    def draw(self) -> Demo | None:
        """Returns a random demonstration to replay, packed, or None to replay nothing.

        The result is a reward demonstration with probability rho and a value demonstration with probability phi; None
        if the chosen pool is empty.
        """
        source, uniform = self.stream.uniform(2).tolist()
        if source < self.rho:
            return pick(self.reward_demos, torch.ones(len(self.reward_demos)), uniform)
        if source < self.rho + self.phi:
            values = [demo["worth"] for demo in self.value_demos]
            return pick(self.value_demos, priorities(values, float(self.cfg.alpha)), uniform)
        return None

    def add(self, episode: Demo, highest_value: float) -> None:
        """Adds an episode of the agent, as a reward or a value demonstration.

        It is a success if it has a positive reward and its return up to the last one reaches the threshold. A success
        is cut after its last positive reward.
        """
        positive = (episode["reward"] > 0).nonzero()
        length = 0
        if len(positive):
            length = int(positive[-1]) + 1
        success_return = float(episode["reward"][:length].sum())
        if length and success_return >= self.threshold:
            self.add_success(cut(episode, length) | {"kind": "own", "worth": success_return})
        else:
            self.value_demos.append(self.storage.packed(episode | {"kind": "value", "worth": highest_value}))
        self.evict()

    def add_success(self, demo: Demo) -> None:
        """Adds a reward demonstration. If its return is the best so far, the earlier ones of kind "own" are dropped."""
        worths = [other["worth"] for other in self.reward_demos]
        best = max(worths, default=-float("inf"))
        if demo["worth"] > best:
            self.reward_demos = [other for other in self.reward_demos if other["kind"] == "given"]
        self.reward_demos.append(self.storage.packed(demo))
        rho_and_phi = self.base_rho + self.base_phi
        step = self.base_phi / max(self.first_values, 1)  # after `first_values` successes, phi is 0
        self.rho = min(self.rho + step, rho_and_phi)
        self.phi = rho_and_phi - self.rho
        self.value_capacity = max(self.value_capacity - 1, 0)

    def refresh(self, demo: Demo, highest_value: float) -> None:
        """Updates the highest predicted value of a value demonstration after a replay; ignores reward
        demonstrations."""
        if demo["kind"] == "value":
            demo["worth"] = highest_value

    def evict(self) -> None:
        """Drops demonstrations until the rest fits into the capacity.

        Drops the value demonstrations with the lowest values first, then the longest reward demonstrations of kind
        "own".
        """
        self.value_demos.sort(key=lambda demo: demo["worth"])
        num_free = max(self.cfg.capacity - len(self.reward_demos), 0)
        num_kept = min(self.value_capacity, num_free)
        num_dropped = max(len(self.value_demos) - num_kept, 0)
        self.value_demos = self.value_demos[num_dropped:]
        while len(self) > self.cfg.capacity:
            longest = max(self._own(), key=lambda demo: len(demo["reward"]))
            self.reward_demos = [demo for demo in self.reward_demos if demo is not longest]

    def best(self) -> list[Demo]:
        """Returns the `num_saved` demonstrations of kind "own" with the highest returns, best first."""
        ranked = sorted(self._own(), key=lambda demo: -demo["worth"])
        return [self.restored(demo) for demo in ranked[: self.cfg.num_saved]]

    def restored(self, demo: Demo) -> Demo:
        """Returns a packed demonstration with whole frame stacks and floats of type float32."""
        return self.storage.restored(demo)

    def _own(self) -> list[Demo]:
        return [demo for demo in self.reward_demos if demo["kind"] == "own"]

    def get_extra_state(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.STATE}

    def set_extra_state(self, state: dict[str, object]) -> None:
        for name in self.STATE:
            setattr(self, name, on(self.device, state.get(name, getattr(self, name))))


def pick(demos: list[Demo], weight: Tensor, uniform: float) -> Demo | None:
    """Returns a demonstration, chosen with probability proportional to `weight`; None if there are none."""
    if not demos:
        return None
    cumulative = weight.cumsum(0)
    threshold = uniform * float(weight.sum())
    chosen = int(torch.searchsorted(cumulative, threshold, right=True))
    return demos[min(chosen, len(demos) - 1)]  # rounding may put the threshold at the total


def priorities(values: list[float], alpha: float) -> Tensor:
    """Returns values^alpha, after all values are shifted so that none is negative, and scaled to at most 1.

    If all shifted values are 0, all priorities are 1.
    """
    v = torch.tensor(values, dtype=torch.float64)
    if not values:
        return v
    v = v - v.min().clamp(max=0)
    if v.max() <= 0:
        return torch.ones_like(v)
    return (v / v.max()) ** alpha


def cut(demo: Demo, steps: int) -> Demo:
    """Returns a copy of the first `steps` transitions of a demonstration."""
    whole = steps == len(demo["reward"])
    return demo | {
        "obs": _head(demo["obs"], steps + 1),
        "action": _head(demo["action"], steps),
        "reward": _head(demo["reward"], steps),
        "terminated": demo["terminated"] and whole,
    }


def _head(tree: object, rows: int) -> Any:
    return mapped(lambda values: values[:rows].clone(), tree)
