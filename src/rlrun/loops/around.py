"""What the section `algo` of a config says about the parts of a run, before any of them is built."""

from typing import Any

from rlrun.buffers.replay import Replay
from rlrun.settings import registry
from rlrun.settings.requirements import Around

ADDONS = ("representation", "goals", "intrinsic")  # sections of `algo` that are add-ons, in the order of application


def around_algorithm(algo: dict[str, Any]) -> Around:
    """Returns the parts of a run by its section `algo`. Fields that other sections determine have their defaults."""
    buffer = buffer_settings(algo)
    return Around(
        algo["name"],
        algo["loop"]["name"],
        buffer=algo["buffer"]["name"] if algo.get("buffer") else None,
        addons=tuple(section for section in ADDONS if algo.get(section)),
        shards=algo["loop"].get("shards"),
        keeps_replay=buffer is not None and issubclass(registry.lookup("buffer", buffer["name"]), Replay),
        reads_data="data" in algo["loop"],
        gamma=algo.get("gamma"),
        discounts=(algo.get("reward_weights") or {}).get("gamma"),
    )


def buffer_settings(algo: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the section `algo.buffer`, or None if the run has no buffer.

    An agent that can learn from both replay and rollouts has no buffer if its loop does not replay. If an agent learns
    from replay alone, the buffer is returned, so that the loop that does not fit is reported.
    """
    buffer: dict[str, Any] | None = algo.get("buffer")
    if buffer is None or registry.lookup("loop", algo["loop"]["name"]).replays:
        return buffer
    if registry.lookup("algo", algo["name"]).learns_from_rollouts:
        return None
    return buffer
