"""The section `env` of earlier formats."""

from rlrun.config.history import upgraded


def test_stored_atari_runs_go_on_without_fire_and_in_grey() -> None:
    stored = {"format": 3, "env": {"id": "ALE/Pong-v5", "wrappers": {"atari": {"noop_max": 30}, "flatten": {}}}}
    wrappers = upgraded(stored)[0]["env"]["wrappers"]
    assert wrappers == {"atari": {"noop_max": 30, "fire_reset": False, "grayscale": True}, "flatten": {}}
