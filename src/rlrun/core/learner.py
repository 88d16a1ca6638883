"""Base class of what learns in a run: the agent, and the add-ons around it."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from gymnasium import Space
from torch import Tensor, nn

from rlrun.settings import Requires
from rlrun.types import Context, Metrics


class Learner(Requires, nn.Module):
    """An agent or an add-on. It says what its batches must hold, and its optimisers own its parameters.

    Snapshots hold its state dict, so all its state must be in the module tree.
    """

    reads: tuple[str, ...] = ()  # reports of the environment (`Spec.reports`) that its batches hold
    stores: Mapping[str, Space] = MappingProxyType({})  # spaces of its extras that replay stores
    # what it reads of the previous step: "action", as it was executed (the extra `carry.action`), and "reward", of the
    # environment (`carry.reward`)
    reads_previous: tuple[str, ...] = ()
    num_next_steps: int = 0  # length of the sequences `next_steps` of its batches (types.py); 0: none
    unexportable: ClassVar[str] = ""  # why a policy with it cannot be exported as a program; empty if it can

    def update(self, batch: Any, ctx: Context) -> Metrics | tuple[Metrics, Tensor]:
        """Learns from a batch and returns metrics such as `loss/actor`.

        An agent may also return the absolute errors [batch], or [time * batch], from which prioritised replay computes
        new priorities; or the values of the rows of a rollout (`Agent.returns_values`).
        """
        raise NotImplementedError

    def acting(self) -> Iterable[nn.Module]:
        """Returns the modules whose parameters and buffers are read for acting.

        A process that only acts needs no other modules.
        """
        return ()
