"""Base class of algorithms: `act` chooses actions, `update` learns from a batch."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlrun.core.learner import Learner
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Distribution
from rlrun.spaces import MixedSpace
from rlrun.types import Batch, Metrics, Obs, Spec

if TYPE_CHECKING:
    from rlrun.core.parts import Parts

F = TypeVar("F", bound=Callable[..., object])


def kernel(method: F) -> F:
    """Marks a method that the engine may record or compile as a whole, and then replaces on the instance.

    The method must have fixed shapes, draw no random numbers (`update` passes noise in), call no `.item()`, branch on
    no tensor, change no Python state and return detached metrics. The same holds for the methods that it calls. Numbers
    that change between calls should be tensors, as the buffers of a module are.
    """
    method.is_kernel = True  # type: ignore[attr-defined]
    return method


def policy(method: F) -> F:
    """Marks `act` as a method that the engine may record, and runs it without gradients.

    The rules of `kernel` hold, except that `act` may draw from the agent's random streams.
    """
    method = torch.no_grad()(method)
    method.is_policy = True  # type: ignore[attr-defined]
    return method


class Agent(Learner):
    """An update rule with its networks."""

    Config: ClassVar[type]
    registered: ClassVar[str] = "?"  # the name in configs, set by @register
    actions: ClassVar[type[Space] | tuple[type[Space], ...]] = Space  # supported action spaces
    observations: ClassVar[type[Space]] = Space  # supported observation space
    acts_with: ClassVar[tuple[str, ...]] = ()  # names of the modules that `act` reads; empty: the whole agent
    explores_with: ClassVar[tuple[str, ...]] = ()  # names of modules and tensors that `init_exploration=fresh` resets
    remembers: ClassVar[bool] = False  # whether it supports recurrent networks
    needs_bounds: ClassVar[bool] = False  # whether continuous actions must have finite bounds
    moves_statistics: ClassVar[bool] = False  # whether `update` uses `batch_statistics`, as batch normalisation needs
    learns_from_rollouts: ClassVar[bool] = False  # whether an agent with replay also supports loops without replay
    returns_values: ClassVar[bool] = False  # whether `update` returns the values of a rollout's rows, [time, env]
    reward_vectors: ClassVar[bool] = False  # whether it learns from reward vectors and `batch["reward_weights"]`
    reward_discounts: ClassVar[bool] = False  # whether each component of a reward vector may have its own discount
    num_kept: int = 0  # number of rollouts that it keeps, to learn from them again
    # sections `algo.loop` and `algo.buffer` of an algorithm without a YAML file: {"name": "evolution", "episodes": 1}
    loop: ClassVar[dict[str, Any]]
    buffer: ClassVar[dict[str, Any]]

    def __init__(self, cfg: Any, spec: Spec, parts: "Parts"):
        super().__init__()
        self.check(spec)
        self.cfg, self.spec, self.memory = cfg, spec, parts.memory
        self.sequence_length: int | None = None  # length of replayed sequences; None: single transitions

    @classmethod
    def check(cls, spec: Spec, advice: str = "") -> None:
        """Raises ConfigError, which ends with the advice, if the algorithm does not support the environment."""
        for needed, given in cls.lacks(spec):
            # split and join, because the text of a space may have line breaks
            why = " ".join(f"this environment has {given}, which is not supported".split())
            raise ConfigError(f"algo={cls.registered} needs {needed}; {why}{advice}")
        if spec.discounts and not cls.reward_discounts:
            raise ConfigError(
                f"algo.reward_weights.gamma={[*spec.discounts]}: must be null, because algo={cls.registered} has one "
                "discount for all components, algo.gamma"
            )

    @classmethod
    def lacks(cls, spec: Spec) -> Iterator[tuple[str, object]]:
        """Yields what the algorithm needs but the environment lacks, each with what the environment has instead."""
        kinds = cls.actions if isinstance(cls.actions, tuple) else (cls.actions,)
        if not isinstance(spec.action, kinds):
            yield " or ".join(kind.__name__ for kind in kinds) + " actions", spec.shown_action
        elif isinstance(spec.action, Box | MixedSpace) and cls.needs_bounds and not spec.action.is_bounded():
            yield "Box actions with finite bounds", spec.shown_action
        if not isinstance(spec.obs, cls.observations):
            yield f"{cls.observations.__name__} observations", spec.obs
        if spec.own_rewards > 1 and not (cls.reward_vectors and spec.objective):
            yield "one reward a step (env.wrappers.linear_reward makes one of several)", f"{spec.own_rewards} of them"

    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        """Returns actions [num_envs, ...] for obs [num_envs, ...], and extras to be stored with the step.

        carry: `first` [num_envs] bool marks episode starts, `carry.*` are the extras of these names from the last call.
        params: parameter vectors [members, P] to act with; the environments are split evenly over the members.
        With explore=False, no random numbers are drawn and no state changes.
        """
        raise NotImplementedError

    def state_values(self, obs: Obs) -> Tensor | None:
        """Returns V(s), [batch], or [batch, columns] for reward vectors; None without an estimate.

        This method and the next two are for `Policy`. obs [batch, ...]: as in `act`, with normalisation and hidden
        states. They draw no random numbers and change no state.
        """
        return None

    def action_values(self, obs: Obs, action: Tensor) -> Tensor | None:
        """Returns Q(s, a) for actions in the agent's units, [batch], or [batch, columns] for reward vectors.

        For a Discrete action space, `action` is ignored, and all actions have a value: [batch, actions]. Members of an
        ensemble are averaged. None without an estimate.
        """
        return None

    def action_distribution(self, obs: Obs, carry: Batch) -> Distribution | None:
        """Returns pi(a|s) in the agent's units, whose mode is the action that `act` chooses; None without one.

        carry: as in `act`.
        """
        return None

    def warm_up(self, action: Tensor, carry: Batch) -> tuple[Tensor, Batch]:
        """Returns the actions [num_envs, ...] of a step in which the loop fills replay, and the extras of `act`.

        action: what the loop drew at random, or zeros. carry: as in `act`.
        """
        return action, {}

    def acting(self) -> Iterable[nn.Module]:
        """Returns the modules whose parameters and buffers `act` reads, besides those of the agent itself.

        Shards (`algo.loop.shards`) receive these tensors, and no Python values, which `act` must not see change.
        """
        if not self.acts_with:
            return (self,)
        return [self.get_submodule(name) for name in self.acts_with]

    def report(self) -> Metrics:
        """Returns metrics of the agent's present state, such as epsilon. Called for every log row."""
        return {}

    def ask(self) -> Tensor:
        """Returns the parameter vectors to evaluate next, [members, P]. Called by the evolution loop only."""
        raise NotImplementedError
