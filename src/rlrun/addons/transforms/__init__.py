"""The list `env.transforms`: what changes steps and batches before all other add-ons. Replay keeps raw steps."""

from collections.abc import Sequence

from rlrun.core.addon import Transform
from rlrun.errors import ConfigError
from rlrun.settings import registry
from rlrun.types import Spec

KEY = "env.transforms"


def transforms_of(
    sections: Sequence[dict[str, object]], spec: Spec, replays: bool, relabels: bool = True
) -> list[Transform]:
    """Returns the transforms that `env.transforms` lists, each built for the spec that the ones before it return.

    relabels: whether the loop learns from relabelled batches (`Loop.relabels`).
    Raises ConfigError if one stands where it must not, or would have no effect.
    """
    transforms: list[Transform] = []
    for index, values in enumerate(sections):
        transform: Transform = registry.build("transform", values, spec, replays, path=f"{KEY}.{index}")
        if transform.changes_rewards and not relabels:
            raise ConfigError(
                f"{KEY}: {transform.registered} has no effect, because algo.loop learns from the returns of whole "
                "episodes; choose a wrapper of rewards"
            )
        spec = transform.spec_after(spec)
        transforms.append(transform)
    check_order(transforms)
    return transforms


def check_order(transforms: Sequence[Transform]) -> None:
    """Raises ConfigError, with the right order, unless those that must be first are, and none fetches after a change.

    Fetched steps would lack the change that the steps of the batch have.
    """
    names = [transform.registered for transform in transforms]
    right = f"[{', '.join(transform.registered for transform in sorted(transforms, key=_place))}]"
    first = [transform.registered for transform in transforms if transform.is_first]
    if len(first) > 1:
        raise ConfigError(f"{KEY}: lists {first[0]} and {first[1]}, of which each must be first")
    if first and first != names[:1]:
        raise ConfigError(f"{KEY}: {first[0]} must stand before {names[0]}; the right order is {right}")
    for index, transform in enumerate(transforms):
        changed = [other.registered for other in transforms[:index] if other.changes]
        if transform.fetches and changed:
            raise ConfigError(
                f"{KEY}: {transform.registered} reads other steps from replay, so it must stand before {changed[0]}, "
                f"which changes them; the right order is {right}"
            )


def _place(transform: Transform) -> tuple[bool, bool]:
    """Returns a key by which transforms are sorted into the right order."""
    return not transform.is_first, not transform.fetches
