"""Runs of format 3 are read with exploration noise as a part."""

from typing import Any

import pytest

from rlrun.config.history import upgraded


def algo(**section: Any) -> dict[str, Any]:
    values, _ = upgraded({"format": 3, "algo": section})
    return values["algo"]


def test_noise_of_td3_becomes_a_part_with_the_same_numbers() -> None:
    old = {"noise_std": 0.1, "noise_theta": 0.15, "gamma": 0.9}
    gaussian = {"name": "gaussian", "mean": 0.0, "std": 0.1}
    assert algo(name="td3", noise="gaussian", **old) == {"name": "td3", "gamma": 0.9, "noise": gaussian}
    ou = {"name": "ou", "mean": 0.0, "std": 0.1, "theta": 0.15, "dt": 1.0, "initial": 0.0}
    assert algo(name="td3", noise="ou", **old) == {"name": "td3", "gamma": 0.9, "noise": ou}


@pytest.mark.parametrize("name", ["a2c", "ppo", "vtrace", "ppo_demos"])
def test_noise_of_on_policy_agents_becomes_a_part(name: str) -> None:
    assert algo(name=name, noise_std=0.0)["noise"] == {"name": "none"}
    particle = {"name": name, "noise_std": 0.3}
    gaussian = {"name": "gaussian", "mean": 0.0, "std": 0.3}
    assert algo(name="svpg", particle=particle)["particle"] == {"name": name, "noise": gaussian}


@pytest.mark.parametrize("name", ["sac", "discrete_sac", "sac_cloning", "crossq"])
def test_agents_that_had_no_noise_get_none(name: str) -> None:
    assert algo(name=name, entropy={"name": "auto"})["noise"] == {"name": "none"}


def test_other_sections_and_incomplete_ones_stay_as_they_are() -> None:
    bandit = {"name": "parameter_noise_bandit", "noise_std": 0.05}
    for section in (bandit, {"name": "td3", "noise": "ou", "noise_std": 0.1}, {"name": ["a2c"], "noise_std": 1.0}):
        assert algo(**section) == section
