"""Checks that the distributions of a policy can be stored and compared, for parts that measure how far it moves."""

from collections.abc import Callable

from torch import Tensor, nn

from rlrun.core.parts import Parts
from rlrun.errors import ConfigError
from rlrun.functional.distributions import from_tensors, to_tensors


def check_comparable(
    policy: nn.Module, parts: Parts, compare: Callable[[object, object], Tensor], setting: str, alternative: str
) -> None:
    """Raises ConfigError unless `compare` takes distributions of the policy, of which one has been stored.

    setting: that needs them, for the message. alternative: a setting that does not.
    """
    dist = parts.example(policy)
    try:
        stored = from_tensors(dist, to_tensors(dist))
        compare(stored, parts.example(policy))
    except (TypeError, ValueError) as fault:
        raise ConfigError(f"{setting}: {fault}; {alternative} takes any policy") from None
