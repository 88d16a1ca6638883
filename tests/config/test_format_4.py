"""Runs of format 3 are read with the settings of format 4."""

from typing import Any

import torch

from rlrun.config.history import renamed_state, upgraded

NEURAL = {"learning_rate": 0.01, "learning_rate_decay": 0.0}


def algo(section: dict[str, Any]) -> dict[str, Any]:
    values, _ = upgraded({"format": 3, "algo": section})
    return values["algo"]


def test_neural_bandits_of_format_3_have_no_dropout() -> None:
    without = {"dropout": 0.0, "act_with_dropout": False}
    assert algo({"name": "bootstrap_bandit", **NEURAL}) == {"name": "bootstrap_bandit", **NEURAL, **without}
    noise = {"name": "parameter_noise_bandit", **NEURAL, "noise_change": 1.01, "dropout": 0.5}
    assert algo(noise) == noise | {"act_with_dropout": False, "noise_batch_size": 64}


def test_neural_linear_of_format_3_trains_its_network_in_every_update() -> None:
    upgraded = algo({"name": "neural_linear", "refit_every": 20})
    assert upgraded == {"name": "neural_linear", "nn_update_ratio": 1}
    count = torch.ones(3).double()
    state = {"agent.regression.count": count}
    assert renamed_state(dict(state), 3, "linear_posterior") == state
    state["agent.q.output.weight"] = torch.zeros(2)
    num_added = renamed_state(dict(state), 3, "neural_linear")["agent.num_added"]
    assert num_added.shape == () and num_added.dtype == torch.int64 and num_added == 0
