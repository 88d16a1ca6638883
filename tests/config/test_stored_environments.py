"""The section `env` of earlier formats."""

from typing import Any

import pytest
import yaml

from rlrun.config.history import upgraded
from rlrun.config.sources import CONF


def test_stored_atari_runs_go_on_without_fire_and_in_grey() -> None:
    stored = {"format": 4, "env": {"id": "ALE/Pong-v5", "wrappers": {"atari": {"noop_max": 30}, "flatten": {}}}}
    wrappers = upgraded(stored)[0]["env"]["wrappers"]
    assert wrappers == {"atari": {"noop_max": 30, "fire_reset": False, "grayscale": True}, "flatten": {}}


@pytest.mark.parametrize("kind", ["none", "obs", "reward", "both"])
def test_stored_normalisation_has_the_constants_of_before(kind: str) -> None:
    values, _ = upgraded({"format": 4, "env": {"id": "Pendulum-v1", "normalize": kind}})
    base = yaml.safe_load((CONF / "env/_base.yaml").read_text())["normalize"]
    assert values["env"]["normalize"] == base | {"kind": kind}


@pytest.mark.parametrize("found", [7, None, ["obs"], {"kind": "obs"}])
def test_stored_normalisation_of_any_other_value_stays(found: Any) -> None:
    values, _ = upgraded({"format": 4, "env": {"normalize": found}})
    assert values["env"]["normalize"] == found
