"""The changes from format 4 to 5."""

from typing import Any

import pytest
import torch

from rlrun.config.history import comparable, renamed_metrics, renamed_state, upgraded

A2C: dict[str, Any] = {"name": "a2c", "gae_lambda": 0.9, "value_lambda": None, "normalize_advantage": "rollout"}
GAE = {"name": "gae", "gae_lambda": 0.9, "value_lambda": None, "normalize": "rollout"}
VTRACE = {"name": "vtrace", "gae_lambda": 0.9, "rho_clip": 2.0, "c_clip": 1.0, "normalize": "rollout"}
NEURAL = {"learning_rate": 0.01, "learning_rate_decay": 0.0}
BOOTSTRAP = {"name": "bootstrap", "normalize": False}


def algo(**section: Any) -> dict[str, Any]:
    values, _ = upgraded({"format": 4, "algo": section})
    return values["algo"]


def test_metrics_of_the_last_update_are_no_state_any_more() -> None:
    state = {
        "trainer._extra_state": {"progress": {}, "metrics": {"critic": 4}},
        "_extra_state": {"steps": 9, "episodes": [], "measures": {"regret": (2.0, 4, 8.0), "best_arm": (0.0, 0, 3.0)}},
    }
    assert renamed_state(state, 4, "ucb") == {
        "trainer._extra_state": {"progress": {}},
        "_extra_state": {"steps": 9},
        "metrics._extra_state": {
            "updates": {},
            "logged": {},
            "recent": {"train/regret": (2.0, 4)},
            "totals": {"train/regret": 8.0, "train/best_arm": 3.0},
            "rows": [],
            "episodes": [],
        },
    }


def test_state_of_a_schedule_names_its_parts() -> None:
    state = {"curriculum._extra_state": {"gravity": [1, 0.0, 1.0], "length": [0]}}
    assert renamed_state(state, 4, "ppo")["curriculum._extra_state"] == {
        "gravity": {"stage": 1, "results": [0.0, 1.0]},
        "length": {"stage": 0, "results": []},
    }


def test_epsilon_is_a_metric_of_training() -> None:
    assert renamed_metrics({"loss/epsilon": 0.1}, 4, "dqn") == {"train/epsilon": 0.1}


def test_rows_are_compared_without_metrics_of_another_meaning() -> None:
    row = {"step": 1, "loss/critic": 2.0, "train/return_mean": 3.0, "train/return_std": 4.0}
    assert comparable(row, 4) == {"step": 1, "train/return_mean": 3.0}
    assert comparable(row, 5) == row


def test_neural_bandits_of_format_4_have_no_dropout() -> None:
    without = {"dropout": 0.0, "act_with_dropout": False}
    assert algo(**{"name": "bootstrap_bandit", **NEURAL}) == {"name": "bootstrap_bandit", **NEURAL, **without}
    noise = {"name": "parameter_noise_bandit", **NEURAL, "noise_change": 1.01, "dropout": 0.5}
    assert algo(**noise) == noise | {"act_with_dropout": False, "noise_batch_size": 64}


def test_neural_linear_of_format_4_trains_its_network_in_every_update() -> None:
    upgraded = algo(**{"name": "neural_linear", "refit_every": 20})
    assert upgraded == {"name": "neural_linear", "nn_update_ratio": 1}
    count = torch.ones(3).double()
    state = {"agent.regression.count": count}
    assert renamed_state(dict(state), 4, "linear_posterior") == state
    state["agent.q.output.weight"] = torch.zeros(2)
    num_added = renamed_state(dict(state), 4, "neural_linear")["agent.num_added"]
    assert num_added.shape == () and num_added.dtype == torch.int64 and num_added == 0


def test_noise_of_td3_becomes_a_part_with_the_same_numbers() -> None:
    old = {"noise_std": 0.1, "noise_theta": 0.15, "gamma": 0.9}
    gaussian = {"name": "gaussian", "mean": 0.0, "std": 0.1, "random_action": 0.0}
    rest = {"name": "td3", "gamma": 0.9}
    assert algo(name="td3", noise="gaussian", **old) == rest | {"noise": gaussian}
    ou = {"name": "ou", "mean": 0.0, "std": 0.1, "theta": 0.15, "dt": 1.0, "initial": 0.0, "random_action": 0.0}
    assert algo(name="td3", noise="ou", **old) == rest | {"noise": ou}


@pytest.mark.parametrize("name", ["a2c", "ppo", "vtrace", "ppo_demos"])
def test_noise_of_on_policy_agents_becomes_a_part(name: str) -> None:
    assert algo(name=name, noise_std=0.0)["noise"] == {"name": "none", "random_action": 0.0}
    particle = {"name": name, "noise_std": 0.3}
    gaussian = {"name": "gaussian", "mean": 0.0, "std": 0.3, "random_action": 0.0}
    assert algo(name="svpg", particle=particle)["particle"] == {"name": name, "noise": gaussian}


@pytest.mark.parametrize("name", ["sac", "discrete_sac", "sac_cloning", "crossq"])
def test_agents_that_had_no_noise_get_none(name: str) -> None:
    assert algo(name=name, entropy={"name": "auto"})["noise"] == {"name": "none", "random_action": 0.0}


def test_other_sections_and_incomplete_ones_stay_as_they_are() -> None:
    bandit = {"name": "parameter_noise_bandit", "noise_std": 0.05}
    for section in (bandit, {"name": "td3", "noise": "ou", "noise_std": 0.1}, {"name": ["a2c"], "noise_std": 1.0}):
        assert algo(**section) == section


@pytest.mark.parametrize("name", ["a2c", "ppo", "ppo_demos"])
def test_gae_settings_become_the_advantage_part(name: str) -> None:
    assert algo(**A2C | {"name": name, "gamma": 0.9}) == {"name": name, "gamma": 0.9, "advantage": GAE}


def test_critics_with_an_optimiser_share_the_settings_of_the_policy() -> None:
    first = {"name": "first", "learning_rate": None, "max_grad_norm": 9.0}
    full = first | {"optimizer": None, "lr_schedule": None}
    assert algo(name="mine", critic_update=first)["critic_update"] == full
    assert algo(name="svpg", particle={"critic_update": first})["particle"]["critic_update"] == full
    assert algo(name="a2c", critic_update={"name": "joint"})["critic_update"] == {"name": "joint"}


def test_continuous_actors_followed_the_exact_gradient_of_their_critics() -> None:
    for name in ("td3", "sac", "discrete_sac", "sac_cloning"):
        section = algo(
            name=name, noise={"name": "none"}, target_noise=0.2, entropy={"name": "auto", "initial_alpha": 1.0}
        )
        assert section["action_gradient"] == {"name": "exact"}
        assert section["entropy"]["max_alpha"] is None
        assert section["target_every"] is None, "the targets of TD3 moved with the actor"
        assert section.get("entropy_reward", BOOTSTRAP) == BOOTSTRAP
        assert ("entropy_reward" in section) == (name != "td3")
    assert "action_gradient" not in algo(name="crossq", noise={"name": "none"})


def test_recurrent_networks_had_one_layer() -> None:
    values, _ = upgraded({"format": 4, "network": {"name": "lstm", "sequence_length": 4}})
    assert values["network"] == {"name": "lstm", "sequence_length": 4, "layers": 1}


def test_noisy_networks_had_noise_on_all_layers() -> None:
    assert algo(name="dqn", noisy_std=0.5) == {"name": "dqn", "noisy_std": 0.5, "noisy_layers": None}


def test_on_policy_agents_get_the_head_that_they_had() -> None:
    section = {"critic_update": {"name": "joint"}}
    assert algo(name="a2c", **section)["head"] == {"name": "auto"}
    assert algo(name="svpg", particle=section)["particle"]["head"] == {"name": "auto"}
    assert "head" not in algo(name="sac")


def test_vtrace_becomes_a2c_with_its_estimator() -> None:
    assert algo(**A2C | {"name": "vtrace", "rho_clip": 2.0, "c_clip": 1.0}) == {"name": "a2c", "advantage": VTRACE}


def test_particles_of_svpg_get_their_estimator() -> None:
    particle = A2C | {"name": "vtrace", "rho_clip": 2.0, "c_clip": 1.0}
    assert algo(name="svpg", particle=particle)["particle"] == {"name": "a2c", "advantage": VTRACE}


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
