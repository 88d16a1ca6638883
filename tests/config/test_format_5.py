"""Runs of format 4 are read with the names of format 5: the estimator of advantages is a part, and V-trace one."""

from typing import Any

import pytest

from rlrun.config.history import renamed_state, upgraded

A2C: dict[str, Any] = {"name": "a2c", "gae_lambda": 0.9, "value_lambda": None, "normalize_advantage": "rollout"}
GAE = {"name": "gae", "gae_lambda": 0.9, "value_lambda": None, "normalize": "rollout"}
VTRACE = {"name": "vtrace", "gae_lambda": 0.9, "rho_clip": 2.0, "c_clip": 1.0, "normalize": "rollout"}


def algo(section: dict[str, Any]) -> dict[str, Any]:
    values, _ = upgraded({"format": 4, "algo": section})
    return values["algo"]


@pytest.mark.parametrize("name", ["a2c", "ppo", "ppo_demos"])
def test_gae_settings_become_the_advantage_part(name: str) -> None:
    assert algo(A2C | {"name": name, "gamma": 0.9}) == {"name": name, "gamma": 0.9, "advantage": GAE}


def test_vtrace_becomes_a2c_with_its_estimator() -> None:
    assert algo(A2C | {"name": "vtrace", "rho_clip": 2.0, "c_clip": 1.0}) == {"name": "a2c", "advantage": VTRACE}


def test_particles_of_svpg_get_their_estimator() -> None:
    particle = A2C | {"name": "vtrace", "rho_clip": 2.0, "c_clip": 1.0}
    assert algo({"name": "svpg", "particle": particle})["particle"] == {"name": "a2c", "advantage": VTRACE}


@pytest.mark.parametrize("section", [{"name": "a2c", "gae_lambda": 1.0}, {"name": ["ppo"]}, A2C | {"name": "mine"}, 7])
def test_sections_without_these_keys_and_algorithms_of_users_stay_as_they_are(section: Any) -> None:
    assert upgraded({"format": 4, "algo": section})[0]["algo"] == section


def test_running_moments_of_advantages_move_into_the_part() -> None:
    for name in ("ppo", "vtrace"):  # a snapshot keeps the name of its algorithm
        assert renamed_state({"agent.moments.mean": 1}, 4, name) == {"agent.advantage.moments.mean": 1}
    inside = {"agent.learner.moments.var": 1}
    assert renamed_state(inside, 4, "ppo_demos") == {"agent.learner.advantage.moments.var": 1}
    inside = {"agent.particles.3.moments.count": 1}
    assert renamed_state(inside, 4, "svpg") == {"agent.particles.3.advantage.moments.count": 1}
