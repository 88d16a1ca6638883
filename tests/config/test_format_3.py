"""Runs of format 2 are read with the names of format 3: critics, entropy coefficients and critic updates are parts."""

from typing import Any

import pytest

from rlrun.config.history import renamed_metrics, renamed_state, upgraded

SAC: dict[str, Any] = {
    "name": "sac", "gamma": 0.9, "members": 2, "target_members": None, "actor_value": "min", "temperature": 0.5,
    "learn_temperature": True, "temperature_learning_rate": 1e-3, "target_entropy": -2.0, "entropy_target": None,
}  # fmt: skip
A2C: dict[str, Any] = {
    "name": "a2c", "gamma": 0.9, "critic": "first", "value_learning_rate": 0.1, "value_epochs": 3,
    "value_minibatch_size": 8, "advantage_after_fit": True, "ent_coef": 0.01, "entropy_target": None,
    "initial_std": 0.5,
}  # fmt: skip
OWN_OPTIMIZER = {"optimizer": None, "lr_schedule": None, "max_grad_norm": None}  # keys of format 5
FIRST = {"name": "first", "learning_rate": 0.1, "epochs": 3, "minibatch_size": 8, "advantage_after_fit": True,
         **OWN_OPTIMIZER}  # fmt: skip


def algo(section: dict[str, Any]) -> dict[str, Any]:
    values, _ = upgraded({"format": 2, "algo": section})
    return values["algo"]


def test_sac_settings_become_critic_and_entropy_parts() -> None:
    assert algo(SAC) == {
        "name": "sac",
        "gamma": 0.9,
        "critic": {"name": "min", "members": 2, "target_members": None},  # for every critic since format 5
        "entropy": {
            "name": "auto",
            "initial_alpha": 0.5,
            "max_alpha": None,
            "learning_rate": 1e-3,
            "target_entropy": -2.0,
        },
        "noise": {"name": "none", "random_action": 0.0},  # a part since format 5, as are the next ones
        "action_gradient": {"name": "exact"},
        "entropy_reward": {"name": "bootstrap", "normalize": False},
    }


@pytest.mark.parametrize(("target_members", "expected"), [(1, 1), (None, 2)])
def test_redq_settings_become_a_random_subset(target_members: int | None, expected: int) -> None:
    critic = algo(SAC | {"actor_value": "mean", "target_members": target_members})["critic"]
    assert critic == {"name": "min", "members": 2, "target_members": expected}


def test_fixed_temperature_becomes_a_learning_rate_of_0() -> None:
    assert algo(SAC | {"learn_temperature": False})["entropy"]["learning_rate"] == 0.0


def test_entropy_target_becomes_the_entropy_part() -> None:
    staged = {"name": "staged", "target_entropy": 1.0}
    assert algo(SAC | {"entropy_target": staged})["entropy"] == staged
    assert algo(A2C | {"entropy_target": staged})["entropy"] == staged


def test_on_policy_critic_becomes_the_critic_update_part() -> None:
    expected = {"name": "a2c", "gamma": 0.9, "init_std": 0.5, "critic_update": FIRST, "head": {"name": "auto"}}
    assert algo(A2C) == expected | {"entropy": {"name": "fixed", "ent_coef": 0.01}}
    split = algo(A2C | {"critic": "split"})["critic_update"]
    assert split == {"name": "split", "learning_rate": 0.1, **OWN_OPTIMIZER}
    assert algo(A2C | {"critic": "joint"})["critic_update"] == {"name": "joint"}


def test_particles_of_svpg_are_upgraded_too() -> None:
    particle = algo({"name": "svpg", "particle": A2C})["particle"]
    assert particle["critic_update"] == FIRST
    assert particle["init_std"] == 0.5


def test_td3_and_dqn_settings_become_critic_parts() -> None:
    pair = {"name": "min", "members": 2, "target_members": None}
    assert algo({"name": "td3", "members": 2}) == {"name": "td3", "critic": pair}
    dqn = algo({"name": "dqn", "returns": {"name": "mean", "huber_delta": 1.0}, "target_tau": 0.5})
    single = {"name": "mean", "huber_delta": 1.0, "members": 1, "target_members": None}
    assert dqn == {"name": "dqn", "critic": single, "tau": 0.5}


@pytest.mark.parametrize("section", [{"name": "sac"}, {"name": ["sac"]}, {"name": "a2c", "critic": 5}, 7, None])
def test_incomplete_sections_stay_as_they_are(section: Any) -> None:
    """They are refused later, because keys are missing."""
    assert upgraded({"format": 2, "algo": section})[0]["algo"] == section


def test_state_of_agents_inside_agents_is_renamed() -> None:
    state = {
        "agent.particles.0.value.torso.w": 1,
        "agent.particles.11.value.optim.steps": 2,
        "agent.particles.0.policy.w": 3,
    }
    assert renamed_state(state, 2, "svpg") == {
        "agent.particles.0.critic.network.torso.w": 1,
        "agent.particles.11.critic.optim.steps": 2,
        "agent.particles.0.policy.w": 3,
    }


def test_metrics_are_renamed_by_algorithm() -> None:
    assert renamed_metrics({"loss/q_loss": 1.0}, 2, "dqn") == {"loss/critic": 1.0}
    assert renamed_metrics({"loss/value": 1.0}, 2, "iql") == {"loss/value": 1.0}, "iql has a value function of its own"
