"""An add-on with a buffer and an optimiser of its own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from toys import equal, put, toy, train

from rlrun.buffers.ring import RingBuffer
from rlrun.core import ownership
from rlrun.core.addon import Addon
from rlrun.core.agent import kernel
from rlrun.core.loop import Loop
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.functional.losses import batch_mean
from rlrun.settings import config, register
from rlrun.testing import check_resuming
from rlrun.types import Batch, Context, Metrics, Spec, Step

Build = Callable[..., Loop]


@register("representation", "test_remembers")
class Remembers(Addon):
    """Predicts the next reward from the observation, from the latest 4 timesteps, and changes nothing for the agent."""

    @config
    class Config:
        pass

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        envs = spec.num_envs
        fields = {"obs": ((envs, *spec.obs.shape), torch.float32), "reward": ((envs,), torch.float32)}
        self.ring = RingBuffer(4, fields, parts.device)
        self.head = nn.Linear(*spec.obs.shape, 1)
        self.optim = Optim(self.head.parameters(), 0.01)
        self.draws = parts.stream("draws")

    def on_step(self, step: Step) -> None:
        place = self.ring.append()
        self.ring.memory["obs"][place] = step["obs"]
        self.ring.memory["reward"][place] = step["reward"]

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        rows = min(self.ring.total, self.ring.capacity)
        chosen = self.draws.integers(rows, 8)
        return self.fit(self.ring.memory["obs"][chosen], self.ring.memory["reward"][chosen])

    @kernel
    def fit(self, obs: torch.Tensor, reward: torch.Tensor) -> Metrics:
        loss = batch_mean((self.head(obs).squeeze(-1) - reward) ** 2)
        self.optim.step(loss)
        return {"loss/remembered": loss.detach()}


def remembering(algo: str) -> Any:
    return put(toy(algo), {"algo.representation": {"name": "test_remembers"}})


def test_an_add_on_trains_from_a_buffer_of_its_own(build: Build) -> None:
    for algo in ("sac", "ppo"):
        loop: Any = train(build(remembering(algo)), 2)
        addon = next(addon for addon in loop.addons if isinstance(addon, Remembers))
        assert addon.ring.total == loop.steps // loop.spec.num_envs > 4
        own = [weight for weight in ownership.weights(loop.agent, loop.addons) if str(weight).startswith("addons.")]
        assert [len(weight.owners) for weight in own] == [1, 1]
        before = [weight.clone() for weight in addon.head.parameters()]
        train(loop, 2 + loop.updates)
        assert not equal(before, [*addon.head.parameters()])


def test_its_rows_are_in_snapshots(build: Build) -> None:
    check_resuming(train(build(remembering("sac")), 2), build(remembering("sac"), begin=False))
