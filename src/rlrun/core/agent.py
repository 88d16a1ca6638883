"""What an algorithm must provide: how it acts, and how it learns from a batch."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.core.schedule import Rewindable
from rlrun.errors import ConfigError
from rlrun.types import Batch, Context, Metrics, Spec

if TYPE_CHECKING:
    from rlrun.core.parts import Parts

F = TypeVar("F", bound=Callable[..., Any])


def kernel(method: F) -> F:
    """Mark one unit that can be compiled and captured whole: fixed shapes, no random numbers drawn (`update` passes
    noise in), no `.item()`, no branch on a tensor, detached metrics. `engine/` may replace it on the instance."""
    method.is_kernel = True  # type: ignore[attr-defined]
    return method


def policy(method: F) -> F:
    """Mark `act` as one unit that can be replayed. As a kernel, but it may draw from the agent's streams."""
    method = torch.no_grad()(method)
    method.is_policy = True  # type: ignore[attr-defined]
    return method


class Agent(Rewindable, nn.Module):
    """An update rule with its networks. All its state is in the module tree, so snapshots need no list."""

    Config: ClassVar[type]
    registered: ClassVar[str] = "?"  # the name in configs, set by @register
    actions: ClassVar[type[Space] | tuple[type[Space], ...]] = Space  # action spaces the algorithm is defined for
    observations: ClassVar[type[Space]] = Space  # and the observation space
    acts_with: ClassVar[tuple[str, ...]] = ()  # names of the modules that `act` reads; none: the whole agent
    remembers: ClassVar[bool] = False  # whether it takes recurrent networks
    needs_bounds: ClassVar[bool] = False  # whether its continuous actions always lie in [-1, 1]
    moves_statistics: ClassVar[bool] = False  # whether `update` uses `batch_statistics`, as batch normalisation needs
    reward_vectors: ClassVar[bool] = False  # whether it takes them, with `batch["reward_weights"]` [reward_dim]
    # sections `algo.loop` and `algo.buffer` of an algorithm without a YAML file: {"name": "evolution", "episodes": 1}
    loop: ClassVar[dict[str, Any]]
    buffer: ClassVar[dict[str, Any]]

    def __init__(self, cfg: Any, spec: Spec, parts: "Parts"):
        super().__init__()
        for needed, given in self.lacks(spec):
            why = " ".join(f"this environment has {given}, which is not supported".split())  # arrays take several lines
            raise ConfigError(f"algo={self.registered} needs {needed}; {why}")
        self.cfg, self.spec, self.memory = cfg, spec, parts.memory
        self.sequence_length: int | None = None  # consecutive steps that replay gives; None: transitions
        self.stores = dict[str, Space]()  # extras of `act` that replay keeps

    @classmethod
    def lacks(cls, spec: Spec) -> Iterator[tuple[str, object]]:
        """What the algorithm needs and the environment does not have, with what it has instead."""
        kinds = cls.actions if isinstance(cls.actions, tuple) else (cls.actions,)
        if not isinstance(spec.action, kinds):
            yield " or ".join(kind.__name__ for kind in kinds) + " actions", spec.shown_action
        elif isinstance(spec.action, Box) and cls.needs_bounds and not spec.action.is_bounded():
            yield "Box actions with finite bounds", spec.shown_action
        if not isinstance(spec.obs, cls.observations):
            yield f"{cls.observations.__name__} observations", spec.obs
        if spec.own_rewards > 1 and not (cls.reward_vectors and spec.objective):
            yield "one reward a step (env.wrappers.linear_reward makes one of several)", f"{spec.own_rewards} of them"

    def act(self, obs: Any, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        """Actions [num_envs, ...] for obs [num_envs, ...], and extras to be stored with the step.

        carry: `first` [num_envs] bool marks episode starts, `carry.*` is what this method returned a step ago; params:
        [members, P], the environments are split evenly over the members. explore=False draws and moves nothing."""
        raise NotImplementedError

    def acting(self) -> Iterable[nn.Module]:
        """The modules whose parameters and buffers `act` reads: all that must travel to where the agent only acts."""
        if not self.acts_with:
            return (self,)
        return [self.get_submodule(name) for name in self.acts_with]

    def rewind(self) -> None:
        """Start over what changes in the course of a run beside the weights, such as exploration."""

    def ask(self) -> Tensor:
        """For the evolution loop: the parameter vectors to evaluate next, [members, P]."""
        raise NotImplementedError

    def update(self, batch: Batch, ctx: Context) -> Metrics | tuple[Metrics, Tensor]:
        """Learn from a batch. The optional tensor holds new priorities [batch]."""
        raise NotImplementedError
