"""Experience replay: one packed row per transition, images stored once per frame."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from gymnasium import Space
from torch import Tensor

from rlrun.buffers.packing import Packing, flatten, layout, nest
from rlrun.buffers.ring import Ring
from rlrun.config.schema import PositiveFloat, PositiveInt, config
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.module import Module
from rlrun.nested import unflattened
from rlrun.networks.inputs import is_image, leaves
from rlrun.registry import register
from rlrun.types import Batch, Metrics, Spec, Step


class Targets(NamedTuple):
    """What an agent's targets are made of, so that the buffer can prepare them."""

    gamma: float = 1.0
    n_step: int = 1  # rewards summed before the successor, discounted by gamma
    sequence_length: int | None = None  # steps in a row, [time, batch, ...]; None: transitions [batch, ...]
    burn_in: int = 0  # steps before them, as far as their episode has any
    extras: Mapping[str, Space] = MappingProxyType({})  # of what the agent returned with its action, what is stored
    ahead: int = 0  # steps in a row from each sampled one on that stand beside the batch


@register("buffer", "replay")
class Replay(Module):
    """Uniform replay. Vector observations: observation and successor lie in the same row, so that sampling is one
    gather. Stacks of frames: the newest frame is stored, stacks and successors are formed when sampled. Rewards are
    stored as they came, and clipped, scaled and standardised as they are read.
    """

    @config
    class Config:
        capacity: PositiveInt
        reward_clip: PositiveFloat | None
        reward_scale: PositiveFloat
        standardize_reward: bool

    def __init__(self, cfg: Any, spec: Spec, targets: Targets, seed: int, device: torch.device):
        super().__init__()
        rows = cfg.capacity // spec.num_envs
        if rows < 1:
            raise ConfigError(f"algo.buffer.capacity={cfg.capacity}: holds no step of env.num_envs={spec.num_envs}")
        length = targets.burn_in + max(targets.n_step, targets.sequence_length or 1, targets.ahead)
        if length > rows:
            raise ConfigError(f"algo.buffer.capacity={cfg.capacity}: {rows} rows, and the agent learns from {length}")
        self.cfg, self.spec, self.targets, self.device = cfg, spec, targets, device
        self.stream = Stream(seed, "replay", device)
        self.cleared = 0  # rows before this one are gone, though the ring still holds some
        images = {".".join(path): leaf.shape or () for path, leaf in leaves(spec.obs) if is_image(leaf)}
        setting = f"algo.buffer.capacity={cfg.capacity}"
        self.frames = Frames(spec, images, rows, device, setting) if images else None
        if self.frames and rows <= spec.frame_stack + 1:
            raise ConfigError(f"algo.buffer.capacity={cfg.capacity}: too small for stacks of {spec.frame_stack} frames")
        seen = layout("obs", spec.obs) | layout("next_obs", spec.obs)
        seen = {name: kind for name, kind in seen.items() if name.partition(".")[2] not in images}
        scalar = ((), torch.float32)
        reward = ((spec.reward_dim,), torch.float32) if spec.reward_dim > 1 else scalar
        step = {"reward": reward, "terminated": scalar, "truncated": scalar, "weight": scalar}
        extras = {field: kind for name, space in targets.extras.items() for field, kind in layout(name, space).items()}
        self.packing = Packing(layout("action", spec.action) | step | seen | extras)
        self.ring = Ring(rows, {"rows": ((spec.num_envs, self.packing.width), torch.float32)}, device, setting)
        self.packing.hold(self.ring.memory["rows"])

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        first, last = self.span
        return last - first

    @property
    def span(self) -> tuple[int, int]:
        """The numbers row * num_envs + env that can be sampled, the second not included. A stored frame must wait for
        its successor."""
        first, envs = self.first, self.spec.num_envs
        return first * envs, max(first, self.ring.total - (self.frames is not None)) * envs

    @property
    def first(self) -> int:
        """The oldest row that can be sampled: a stack needs the frames before it."""
        return max(self.cleared, self.ring.first + (self.frames.stack if self.frames and self.ring.first else 0))

    def add(self, obs: Any, action: Tensor, step: Step, extras: Batch) -> None:
        """Store one vector step, and of the agent's extras those that it wants stored; 0 for those not given."""
        values = {
            "action": action, "reward": step.reward, "terminated": step.terminated, "truncated": step.truncated,
            "weight": step.weight,
        }  # fmt: skip
        values |= flatten("obs", obs) | flatten("next_obs", step.final_obs)
        for name, space in self.targets.extras.items():
            values[name] = extras[name] if name in extras else step.reward.new_zeros(len(action), *space.shape)
        if self.frames:
            self.frames.add(values, step, self.ring.total)
        self.packing.pack(values, self.ring.append())

    def sample(self, size: int, progress: float = 0.0) -> Batch:
        """A batch of transitions, drawn uniformly with replacement; progress, 0 to 1, is for schedules."""
        first, last = self.span
        return self.read(self.stream.integers(last, size, low=first))

    def all(self) -> Batch:
        """Every transition that is there, oldest first."""
        return self.read(torch.arange(*self.span, device=self.device))

    def read(self, index: Tensor) -> Batch:
        """What the agent learns from, at absolute numbers row * num_envs + env, [batch]."""
        if self.targets.sequence_length is None:
            batch = self._transitions(index)
        else:
            batch = self._sequences(index, self.targets.sequence_length, self.targets.n_step, self.targets.burn_in)
        if self.targets.ahead:
            batch["ahead"] = self._sequences(index, self.targets.ahead)
        if self.cfg.standardize_reward:
            batch["reward"] = standardized(batch["reward"], batch.get("mask", batch["weight"]))
        if self.cfg.reward_scale != 1:
            batch["reward"] = self.cfg.reward_scale * batch["reward"]
        batch["index"] = index
        batch["age"] = torch.sub(self.ring.total - 1, index if self.spec.num_envs == 1 else index // self.spec.num_envs)
        return batch

    def _sequences(self, index: Tensor, length: int, n_step: int = 1, burn_in: int = 0) -> Batch:
        """Steps in a row [time, batch, ...] from each number on, and `burn_in` before, as far as their episodes go and
        are stored.

        `mask` [time, batch] is 1 there. Beyond, where it is 0, the nearest step is repeated: nothing of another episode
        is ever seen. `weight` is [batch]: that of the step at the number.
        """
        envs = self.spec.num_envs
        ahead = torch.arange(-burn_in, length, device=self.device).view(-1, 1)
        first = -self._before(index, burn_in)
        last = self._alive(index + envs * ahead[burn_in:]).sum(0).long().squeeze(-1) - 1
        mask = ((first <= ahead) & (ahead <= last)).float()
        number = index + envs * torch.minimum(torch.maximum(ahead, first), last)
        batch, _, _ = self._returns(number.flatten(), n_step)
        batch |= self._observations(number.flatten(), number.flatten(), batch, batch)
        batch = unflattened(batch, *number.shape)
        batch["weight"] = batch["weight"][burn_in]
        batch["mask"] = mask * (batch["weight"] > 0)
        return batch

    def _transitions(self, index: Tensor) -> Batch:
        """[batch, ...], each n_step long where its episode is."""
        batch, last, end = self._returns(index, self.targets.n_step)
        batch.update(self._observations(index, last, batch, end))
        return batch

    def _returns(self, index: Tensor, n_step: int) -> tuple[Batch, Tensor, Batch]:
        """Rows with up to n_step rewards summed from them on, where each sum ends, and the rows there.

        `n_steps` says how many rewards were summed, `terminated` whether the episode terminated at the last of them.
        """
        batch = self._unpack(index)
        if n_step == 1:
            batch["n_steps"] = torch.ones_like(batch["weight"])
            return batch, index, batch
        batch["reward"], last, batch["n_steps"] = self._sums(index)
        end = self._unpack(last)
        batch["terminated"] = end["terminated"]
        return batch, last, end

    def _unpack(self, index: Tensor) -> Batch:
        batch = self.packing.take(self._place(index))
        batch["reward"] = self._clipped(batch["reward"])
        return batch

    def _place(self, index: Tensor) -> Tensor:
        """Where absolute numbers lie in the memory."""
        return index if self.ring.first == 0 else index % (self.ring.capacity * self.spec.num_envs)

    def _clipped(self, reward: Tensor) -> Tensor:
        bound = self.cfg.reward_clip
        return reward if bound is None else reward.clamp(-bound, bound)

    def _sums(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Discounted sums of up to n_step rewards from each number on, the last number of each, how many it sums."""
        envs = self.spec.num_envs
        number = index + envs * torch.arange(self.targets.n_step, device=self.device).view(-1, 1)  # [n_step, batch]
        alive, rewards = self._alive(number), self.packing.rows[:, self.packing.slices["reward"]]
        gamma = self.targets.gamma ** torch.arange(self.targets.n_step, device=self.device).view(-1, 1, 1)
        reward = (gamma * alive * self._clipped(rewards[self._stored(number)])).sum(0)
        length = alive.sum(0).squeeze(-1)
        last = index + envs * (length.long() - 1)
        return reward if self.spec.reward_dim > 1 else reward.squeeze(-1), last, length

    def _alive(self, number: Tensor) -> Tensor:
        """[time, batch, 1]: 1 at numbers [time, batch] that lie in the episode of the first of their column."""
        ended, weight = self._ends(self._stored(number))
        stored = self.ring.total - (self.frames is not None)
        there = (number[1:] < stored * self.spec.num_envs).unsqueeze(-1)
        goes_on = (ended[:-1] == 0) & there & (weight[1:] > 0)  # else it was lost
        return torch.cat([torch.ones_like(ended[:1]), goes_on.to(ended.dtype).cumprod(0)])

    def _before(self, index: Tensor, burn_in: int) -> Tensor:
        """How many steps of the burn-in each episode had before these numbers: [batch]."""
        envs, oldest = self.spec.num_envs, self.first * self.spec.num_envs
        number = index - envs * torch.arange(1, burn_in + 1, device=self.device).view(-1, 1)
        ended, weight = self._ends(self._place(number.clamp(min=oldest)))
        there = (number >= oldest).unsqueeze(-1)
        return ((ended == 0) & there & (weight > 0)).long().cumprod(0).sum(0).squeeze(-1)

    def _ends(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Whether episodes end at rows of the memory, and the rows' weights: [..., 1]."""
        seen = {name: self.packing.rows[:, self.packing.slices[name]] for name in ("terminated", "truncated", "weight")}
        return seen["terminated"][place] + seen["truncated"][place], seen["weight"][place]

    def _stored(self, number: Tensor) -> Tensor:
        """Where numbers lie in the memory; those to come are taken for the newest."""
        stored = self.ring.total - (self.frames is not None)
        return self._place(number.clamp(max=stored * self.spec.num_envs - 1))

    def _observations(self, index: Tensor, last: Tensor, batch: Batch, end: Batch) -> Batch:
        """Where the transitions start, and where they lead."""
        if self.frames:
            envs = self.spec.num_envs
            batch = batch | self.frames.stacks(index // envs, index % envs)
            end = end | self.frames.successors(last // envs, last % envs, self.ring.total)
        return {"obs": nest(batch, "obs", self.spec.obs), "next_obs": nest(end, "next_obs", self.spec.obs)}

    def clear(self) -> None:
        """Forget every transition. The next row starts new episodes."""
        self.cleared = self.ring.total
        if self.frames:
            self.frames.clear()

    def get_extra_state(self) -> int:
        return self.cleared

    def set_extra_state(self, state: int) -> None:
        self.cleared = state

    def feedback(self, batch: Batch, out: Metrics | tuple[Metrics, Tensor]) -> None:
        """Priorities an agent returned; uniform replay has no use for them."""


def standardized(x: Tensor, weight: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the rows that have weight; x [batch, ...] and weight [batch], or [time, batch]."""
    x, shape = x.flatten(0, weight.dim() - 1), x.shape
    share = (weight > 0).to(x.dtype).view(-1, *[1] * (x.dim() - 1))
    count = share.sum().clamp(min=1)
    mean = (share * x).sum(0) / count
    deviation = ((share * (x - mean) ** 2).sum(0) / count).sqrt()
    return ((x - mean) / (deviation + 1e-8)).view(shape)


class Frames(Module):
    """The newest frame of every image, with how many steps its episode is old, so that stacks can be rebuilt.

    `images`: shapes by dotted key; "" where the observation is one image and nothing else.
    """

    def __init__(self, spec: Spec, images: dict[str, tuple[int, ...]], rows: int, device: torch.device, setting: str):
        super().__init__()
        self.stack, self.images = spec.frame_stack, images
        kept = {name: shape[1:] if self.stack > 1 else shape for name, shape in images.items()}
        fields = {f"frame.{name}".strip("."): ((spec.num_envs, *shape), torch.uint8) for name, shape in kept.items()}
        self.ring = Ring(rows, fields | {"step": ((spec.num_envs,), torch.int32)}, device, setting)
        self.steps = torch.zeros(spec.num_envs, dtype=torch.int32, device=device)
        # row * num_envs + env -> last frames of a cut episode: the ring has none
        self.finals: dict[int, dict[str, Tensor]] = {}

    def add(self, values: Batch, step: Step, row: int) -> None:
        """values: observations and successors by dotted names."""
        place, done = self.ring.append(), step.terminated | step.truncated
        for name in self.images:
            self._memory(name)[place] = self._newest(values[f"obs.{name}".strip(".")])
        self.ring.memory["step"][place] = self.steps
        self.steps = torch.where(done, 0, self.steps + 1)
        for env in step.truncated.nonzero().flatten().tolist():
            self.finals[row * len(done) + env] = {
                name: self._newest(values[f"next_obs.{name}".strip(".")])[env].clone() for name in self.images
            }
        while self.finals and next(iter(self.finals)) < self.ring.first * len(done):
            del self.finals[next(iter(self.finals))]

    def clear(self) -> None:
        self.steps = torch.zeros_like(self.steps)
        self.finals = {}

    def stacks(self, row: Tensor, env: Tensor) -> Batch:
        """What was seen at absolute rows, [batch, stack, ...]; an episode's first frame is repeated before it."""
        rows = row[:, None] - torch.minimum(self._back(), self._age(row, env))
        return {f"obs.{name}".strip("."): self._gather(name, rows, env) for name in self.images}

    def successors(self, row: Tensor, env: Tensor, total: int) -> Batch:
        """What was seen a step later; after a termination this only fills the shape."""
        # the successor's frame is the next row's; after a cut that row starts another episode, and `finals` has it
        back = torch.minimum(self._back(), self._age(row, env) + 1)
        rows = (row[:, None] + 1 - back).clamp(max=total - 1)
        stacks = {name: self._gather(name, rows, env) for name in self.images}
        for i, number in enumerate((row * len(self.steps) + env).tolist() if self.finals else ()):
            for name, frame in self.finals.get(number, {}).items():
                self._newest(stacks[name])[i] = frame
        return {f"next_obs.{name}".strip("."): stack for name, stack in stacks.items()}

    def _back(self) -> Tensor:
        """How many rows each frame of a stack lies behind the newest, oldest frame first."""
        return torch.arange(self.stack - 1, -1, -1, device=self.steps.device)

    def _age(self, row: Tensor, env: Tensor) -> Tensor:
        return self.ring.memory["step"][row % self.ring.capacity, env][:, None]

    def _memory(self, name: str) -> Tensor:
        return self.ring.memory[f"frame.{name}".strip(".")]

    def _newest(self, obs: Tensor) -> Tensor:
        return obs[:, -1] if self.stack > 1 else obs

    def _gather(self, name: str, rows: Tensor, env: Tensor) -> Tensor:
        place = (rows % self.ring.capacity * len(self.steps) + env[:, None]).flatten()
        return self._memory(name).flatten(0, 1).index_select(0, place).view(-1, *self.images[name])

    def get_extra_state(self) -> dict[str, Any]:
        return {"steps": self.steps, "finals": self.finals}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        device = self.steps.device
        self.steps = state["steps"].to(device)
        self.finals = {
            number: {name: frame.to(device) for name, frame in frames.items()}
            for number, frames in state["finals"].items()
        }
