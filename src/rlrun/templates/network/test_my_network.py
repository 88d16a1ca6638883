"""Tests my_network with the checks for every network."""

from pathlib import Path

import pytest
from gymnasium.spaces import Box

from rlrun import testing

FILE = Path(__file__).with_name("my_network.py")


@pytest.mark.parametrize("layers", [1, 2])
def test_my_network_has_the_shapes_of_a_network_and_of_an_ensemble(layers: int) -> None:
    testing.check_network(f"network={FILE}", f"network.layers={layers}", obs=Box(-1.0, 1.0, (3,)))
