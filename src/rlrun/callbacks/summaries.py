"""The callback `summaries`, which shows how weights, gradients, actions and activations are distributed."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from rlrun.callbacks.first_updates import FirstUpdates
from rlrun.callbacks.gradients import HeldSteps
from rlrun.core.agent import Agent
from rlrun.errors import ConfigError
from rlrun.functional.distributions import to_tensors
from rlrun.media import Histogram
from rlrun.nested import dotted
from rlrun.settings import PositiveInt, config, register
from rlrun.tensors import flat
from rlrun.types import Batch, Context

Named = Iterator[tuple[str, Tensor]]


@register("callback", "summaries")
class Summaries(FirstUpdates):
    """Stores histograms in RUN/media, which loggers such as TensorBoard show.

    The first update after every row, or after every n-th, is computed beforehand on a copy of the agent that takes no
    steps. `weights` are those of the agent before the update, and `gradients` those of its losses. `actions` are the
    parameters of the action distribution at the observations of the update; for agents that act on what came before,
    at the present observations of the environments. `outputs` are what the networks return in the update.
    """

    @config
    class Config:
        what: list[Literal["weights", "gradients", "actions", "outputs"]] = ["weights", "gradients"]  # noqa: RUF012
        networks: list[str] = []  # noqa: RUF012  # whose outputs: [actor.torso, critic]; []: those that an update calls
        every: PositiveInt = 10  # after every n-th row
        rms: bool = False  # true: the root mean square of each histogram is a metric too

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        self.every = cfg.every

    def on_start(self) -> None:
        self.copy = self.run.agent_copy()
        self.held: HeldSteps | None = None
        self.returned: dict[str, list[Tensor]] = {}
        self.depth = 0
        if "gradients" in self.cfg.what or "outputs" in self.cfg.what:
            self.held = HeldSteps(self.copy.agent, "summaries")
        if "outputs" in self.cfg.what:
            self.watch(self.copy.agent)

    def watch(self, agent: Agent) -> None:
        """Keeps the outputs of networks from now on. Raises ConfigError for an unknown name."""
        known = {name: module for name, module in agent.named_modules() if name and any(trained(module))}
        for name in self.cfg.networks:
            if name not in known:
                some = ", ".join(name for name in known if "." not in name)
                raise ConfigError(f"callbacks: summaries: networks: no network of the agent is {name!r}; it has {some}")
        for name in self.cfg.networks or known:
            known[name].register_forward_pre_hook(self.enter)
            known[name].register_forward_hook(partial(self.leave, name))

    def enter(self, network: nn.Module, inputs: object) -> None:
        """Counts the networks that are being computed, one within the other."""
        self.depth += 1

    def leave(self, name: str, network: nn.Module, inputs: object, output: object) -> None:
        """Keeps the output of a network, unless it is a part of another one and was not named."""
        self.depth -= 1
        if self.depth == 0 or self.cfg.networks:
            for path, tensor in tensors_of(name, output):
                self.returned.setdefault(path, []).append(tensor.detach().flatten())

    def measure(self, batch: Batch, ctx: Context) -> None:
        self.copy.follow(f"summaries of update {ctx.updates}")
        for kind in self.cfg.what:
            if kind == "weights":
                self.summarise(kind, trained(self.copy.agent))
            elif kind == "actions":
                self.summarise(kind, self.actions(batch))
        if self.held is not None:
            self.returned.clear()
            gradients = self.held.of(batch, ctx)
            if "gradients" in self.cfg.what:
                self.summarise("gradients", by_weight(self.held, gradients))
            self.summarise("outputs", ((name, torch.cat(parts)) for name, parts in self.returned.items()))

    @torch.no_grad()
    def actions(self, batch: Batch) -> Named:
        """Yields the parameters of the action distribution."""
        agent, loop = self.copy.agent, self.run.loop
        if "obs" not in batch or agent.memory.size or agent.sequence_length is not None or agent.stores:
            carry = loop.carry
            obs, _ = loop.see(loop.obs, carry, False)
        else:
            obs, carry = batch["obs"], batch
            if not loop.replays:
                obs = flat(obs)
        dist = agent.action_distribution(obs, carry)
        if dist is not None:
            yield from to_tensors(dist, "").items()

    def summarise(self, kind: str, tensors: Named) -> None:
        """Stores a histogram of each tensor."""
        for name, tensor in tensors:
            values = tensor.detach().float().cpu()
            self.show(f"{kind}/{name}", Histogram(values.numpy()))
            if self.cfg.rms:
                self.log(f"rms/{kind}/{name}", float(values.square().mean().sqrt()))


def trained(module: nn.Module) -> Named:
    """Yields the weights of a module that are trained."""
    for name, weight in module.named_parameters():
        if weight.requires_grad:
            yield name, weight


def by_weight(held: HeldSteps, gradients: dict[str, Tensor]) -> Named:
    """Yields the part of the gradients that belongs to each weight."""
    names = {id(weight): name for name, weight in held.agent.named_parameters()}
    for path, gradient in gradients.items():
        weights = held.optims[path].params
        for weight, part in zip(weights, gradient.split([weight.numel() for weight in weights]), strict=True):
            yield names[id(weight)], part


def tensors_of(name: str, output: object) -> Named:
    """Yields the tensors of what a network returns: a tensor, a distribution, or dicts of them."""
    if is_dataclass(output):
        output = to_tensors(output, "")
    for path, leaf in dotted(name, output).items():
        if isinstance(leaf, Tensor):
            yield path, leaf
