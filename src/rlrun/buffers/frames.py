"""Storage of stacked images for replay: every frame is stored once, and sampling rebuilds stacks and successors."""

from typing import Any

import torch
from torch import Tensor

from rlrun.buffers.packing import Layout
from rlrun.buffers.ring import RingBuffer
from rlrun.module import Module
from rlrun.tensors import on
from rlrun.types import Batch, Spec


class Frames(Module):
    """Stores, for every row, the newest frame of every image and the timestep of the row within its episode.

    images: shape of every image, by dotted key. The key is "" if the whole observation is one image. setting: the
    config key to name if the rows do not fit into memory. compress: whether frames are stored as LZ4 blocks on the CPU.

    The observation at row t consists of the frames of rows t - stack + 1 to t; near the start of an episode its first
    frame is repeated. The newest frame of the successor is the frame of row t + 1. After a truncation, row t + 1
    belongs to the next episode, so `finals` keeps the last frame of every truncated episode.
    """

    def __init__(
        self,
        spec: Spec,
        images: dict[str, tuple[int, ...]],
        rows: int,
        device: torch.device,
        setting: str,
        compress: bool = False,
    ):
        super().__init__()
        self.stack = spec.frame_stack
        self.images = images
        self.num_envs = spec.num_envs
        fields: Layout = {}
        for name, shape in images.items():
            frame_shape = shape
            if self.stack > 1:
                frame_shape = shape[1:]
            fields[_dotted("frame", name)] = ((self.num_envs, *frame_shape), torch.uint8)
        fields["step"] = ((self.num_envs,), torch.int32)
        compressed = [name for name in fields if name != "step"] if compress else []
        self.ring = RingBuffer(rows, fields, device, setting, compressed)
        self.steps = torch.zeros(self.num_envs, dtype=torch.int32, device=device)  # timesteps of running episodes
        self.finals: dict[int, dict[str, Tensor]] = {}  # flat index of a truncated step -> last frame by image

    def add(self, values: Batch, row: int) -> None:
        """Stores the frames of one vector step, which holds observations and successors by dotted name too."""
        place = self.ring.append()
        for name in self.images:
            obs = values[_dotted("obs", name)]
            self.ring.memory[_dotted("frame", name)][place] = self._newest(obs)
        self.ring.memory["step"][place] = self.steps
        done = values["terminated"] | values["truncated"]
        self.steps = torch.where(done, 0, self.steps + 1)
        truncated_envs = values["truncated"].nonzero().flatten()
        for env in truncated_envs.tolist():
            self._keep_final(values, row, env)
        self._drop_overwritten_finals()

    def _keep_final(self, values: Batch, row: int, env: int) -> None:
        final = {}
        for name in self.images:
            successor = values[_dotted("next_obs", name)]
            final[name] = self._newest(successor)[env].clone()
        self.finals[row * self.num_envs + env] = final

    def _drop_overwritten_finals(self) -> None:
        first_index = self.ring.first * self.num_envs
        while self.finals:
            oldest_index = next(iter(self.finals))
            if oldest_index >= first_index:
                return
            del self.finals[oldest_index]

    def clear(self) -> None:
        """Removes all final frames. The next row starts new episodes."""
        self.steps = torch.zeros_like(self.steps)
        self.finals = {}

    def stacks(self, row: Tensor, env: Tensor) -> Batch:
        """Returns the observations at absolute rows [batch], by dotted name; [batch, stack, ...]."""
        timestep = self._timestep(row, env)
        frames_back = torch.minimum(self._frames_back(), timestep)
        frame_rows = row[:, None] - frames_back
        stacks = {}
        for name in self.images:
            stacks[_dotted("obs", name)] = self._gather(name, frame_rows, env)
        return stacks

    def successors(self, row: Tensor, env: Tensor, total: int) -> Batch:
        """Returns the successors of the observations at absolute rows [batch], by dotted name; [batch, stack, ...].

        total: number of rows added so far. The successor of a terminated step is arbitrary, as no target uses it.
        """
        timestep = self._timestep(row, env) + 1
        frames_back = torch.minimum(self._frames_back(), timestep)
        frame_rows = row[:, None] + 1 - frames_back
        frame_rows = frame_rows.clamp(max=total - 1)
        successors = {}
        for name in self.images:
            successors[_dotted("next_obs", name)] = self._gather(name, frame_rows, env)
        if self.finals:
            self._put_finals(successors, row * self.num_envs + env)
        return successors

    def _put_finals(self, successors: Batch, flat_index: Tensor) -> None:
        """Overwrites the newest frame of the successors of truncated steps with the stored final frame."""
        for i, step_index in enumerate(flat_index.tolist()):
            final = self.finals.get(step_index, {})
            for name, frame in final.items():
                successor = successors[_dotted("next_obs", name)]
                self._newest(successor)[i] = frame

    def _frames_back(self) -> Tensor:
        """Returns how many rows before the newest frame each frame of a stack lies, oldest first; [stack]."""
        return torch.arange(self.stack - 1, -1, -1, device=self.steps.device)

    def _timestep(self, row: Tensor, env: Tensor) -> Tensor:
        """Returns the timestep within its episode of every row, [batch, 1]."""
        place = row % self.ring.capacity
        return self.ring.memory["step"][place, env][:, None]

    def _newest(self, obs: Tensor) -> Tensor:
        """Returns a view of the newest frame of every stack."""
        if self.stack == 1:
            return obs
        return obs[:, -1]

    def _gather(self, name: str, frame_rows: Tensor, env: Tensor) -> Tensor:
        """Returns the image stacks whose frames are stored at the absolute rows [batch, stack]."""
        place = frame_rows % self.ring.capacity
        frame_index = place * self.num_envs + env[:, None]
        frames = self.ring.select(_dotted("frame", name), frame_index.flatten())
        return frames.view(-1, *self.images[name])

    def get_extra_state(self) -> dict[str, object]:
        return {"steps": self.steps, "finals": self.finals}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        device = self.steps.device
        self.steps = state["steps"].to(device)
        self.finals = on(device, state["finals"])


def _dotted(field: str, image: str) -> str:
    """Returns "field.image", or "field" if the image is the whole observation and has no name."""
    if not image:
        return field
    return f"{field}.{image}"
