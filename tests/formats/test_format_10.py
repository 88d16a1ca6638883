"""Configs and state of format 9, in which the end of a run and its periods were in steps alone."""

from typing import Any

import pytest
import torch

from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError
from rlrun.formats.history import renamed_metrics, renamed_state, upgraded


def test_runs_of_format_9_end_and_log_by_steps() -> None:
    values, filled = upgraded({"format": 9, "trainer": {"total_steps": 9, "eval_every": 3}})
    added = {"total_updates": None, "period_unit": "steps", "measure_after": 0}
    added |= {"eval_envs": None, "eval_sampled": 0.0, "eval_beside": False}
    added |= {"num_evals": None, "num_rows": None, "min_episodes": 1}
    added |= {"num_snapshots": None, "snapshot_at_crash": "never"}
    assert values == {"trainer": {"total_steps": 9, "eval_every": 3, **added}}
    assert filled == [f"trainer.{key}={value}" for key, value in added.items()]


def test_agents_of_format_9_have_no_losses_after_an_epoch_and_no_trust_region() -> None:
    values, _ = upgraded({"format": 9, "algo": {"target_kl": None, "particle": {"target_kl": None}}})
    section = {"target_kl": None, "loss_after": False, "trust_region": {"name": "none"}}
    assert values == {"algo": section | {"particle": section}}


def test_buffers_and_rollouts_of_format_9_store_floats_with_32_bits() -> None:
    loop, buffer = {"name": "episodes", "lag": 0}, {"reward_clip": None}
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"loop": loop, "buffer": buffer}})[0]
    assert values["algo"]["loop"]["dtypes"] == values["algo"]["buffer"]["dtypes"] == {"obs": "float32"}


def test_importance_weights_of_format_9_are_divided_by_the_largest() -> None:
    buffer = {"name": "prioritized", "beta": 0.4}
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"buffer": dict(buffer)}})[0]
    assert values["algo"]["buffer"] == buffer | {"divide_weights": True}


@pytest.mark.parametrize("loop", ["offpolicy", "hybrid"])
def test_shards_of_format_9_exchange_steps_one_by_one(loop: str) -> None:
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"loop": {"name": loop, "shards": 2}}})[0]
    assert values["algo"]["loop"] == {"name": loop, "shards": 2, "shard_steps": None}


@pytest.mark.parametrize(("loop", "beside"), [("evolution", "episodes"), ("episodes", "lag"), ("meta", "new_tasks")])
def test_loops_of_whole_episodes_of_format_9_have_no_shards(loop: str, beside: str) -> None:
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"loop": {"name": loop, beside: 1}}})[0]
    assert values["algo"]["loop"].pop("shards", "missing") is None


def test_environments_of_format_9_do_not_know_their_index_nor_ray() -> None:
    ray = {"address": "auto", "workers": None, "cpus": 1}
    values, _ = upgraded({"format": 9, "env": {"id": "A-v0", "task_kwargs": {}}})
    assert values == {"env": {"id": "A-v0", "task_kwargs": {}, "index_kwarg": None, "ray": ray}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"name": "offpolicy_episodes", "updates_per_iteration": None}, "episodes"),
        ({"name": "offpolicy_episodes", "min_rollouts": 1, "updates_per_iteration": 7}, 7),
        ({"name": "other", "updates_per_iteration": None}, None),
    ],
)
def test_iterations_of_format_9_keep_their_updates(before: dict[str, Any], after: object) -> None:
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"loop": before}})[0]
    added = {"complete": False} if "min_rollouts" in before else {}
    assert values["algo"]["loop"] == before | added | {"updates_per_iteration": after}
    for algo in (None, [], {"loop": 3}):
        assert upgraded({"format": 9, "algo": algo})[0] == {"algo": algo}


def test_state_of_format_9_gets_the_updates_and_episodes_of_its_last_row() -> None:
    state: dict[str, Any] = {
        "_extra_state": {"steps": 9, "updates": 4},
        "metrics._extra_state": {"episodes": [(1.0, 2)]},
        "trainer._extra_state": {"progress": {"settled": 9, "episodes": 2}},
    }
    new = renamed_state(dict(state), 9, "sac")
    assert new["_extra_state"] == {"steps": 9, "updates": 4, "update_horizon": 0}
    settled = {"steps": 9, "updates": 4, "episodes": 3}
    assert new["trainer._extra_state"] == {"progress": {"settled": settled, "episodes": 2}}
    assert renamed_state(dict(new), 9, "sac") == new, "the change is applied once"
    weights: dict[str, object] = {"agent.weight": 1.0}
    assert renamed_state(dict(weights), 9, "sac") == weights


@pytest.mark.parametrize("prefix", ["buffer.", "buffer.collected."])
def test_priorities_of_format_9_have_an_unknown_exponent(prefix: str) -> None:
    of_loop = {"_extra_state": {"updates": 4}, "metrics._extra_state": {"episodes": []}}
    state = of_loop | {"trainer._extra_state": {"progress": {"settled": 9, "episodes": 2}}}
    new: dict[str, Any] = renamed_state(state | {f"{prefix}highest": torch.ones(())}, 9, "prioritized_dqn")
    assert new[f"{prefix}alpha"] == -1 and new[f"{prefix}highest"] == 1
    assert "buffer.alpha" not in renamed_state(dict(state), 9, "dqn")


@pytest.mark.parametrize("algo", ["continuous_sarsa", "dqn", "iql", "soft_q"])
def test_agents_of_format_9_without_reward_weights_get_the_default(algo: str) -> None:
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"name": algo, "gamma": 0.9}})[0]
    assert values["algo"] == {
        "name": algo,
        "gamma": 0.9,
        "reward_weights": {"name": "fixed", "weights": None, "gamma": None},
    }


def test_recurrent_networks_of_format_9_read_nothing_of_the_previous_step() -> None:
    own = {"name": "gru", "burn_in": 2}
    values, _ = upgraded({"format": 9, "network": own | {"actor": own, "critic": {}}})
    assert values == {"network": own | {"actor": own | {"previous": []}, "critic": {}, "previous": []}}


def test_environments_of_format_9_execute_the_actions_of_the_agent() -> None:
    values, _ = upgraded({"format": 9, "env": {"log_info": []}})
    assert values == {"env": {"log_info": [], "executed_action": None}}


def test_epsilon_of_format_9_falls_over_a_fraction_of_the_run() -> None:
    linear = {"name": "linear", "start": 1.0, "end": 0.1, "fraction": 0.1}
    values, _ = upgraded({"format": 9, "algo": {"epsilon": linear}})
    assert values == {"algo": {"epsilon": linear | {"end_step": None}}}


CRITIC = {"value_coef": 0.3, "clip_value": 0.2}
TO_0 = {"linear": {"end": 0.0}}


@pytest.mark.parametrize("name", ["split", "none"])
def test_settings_of_the_critic_of_format_9_move_to_its_section(name: str) -> None:
    """Without a critic, they had no effect."""
    has_critic = name != "none"
    section, of_critic = (
        {"name": name, "huber_delta": None, "normalize_target": False} | CRITIC,
        {"critic_update.value_coef": TO_0},
    )
    if not has_critic:
        section, of_critic = {"name": name}, {}
    agent: dict[str, Any] = {"critic_update": {"name": name}, "gamma": 0.9} | CRITIC
    algo = {"name": "a2c", "schedule": {"gamma": TO_0, "value_coef": TO_0}} | agent
    values: dict[str, Any] = upgraded({"format": 9, "algo": algo})[0]
    moved = {"gamma": 0.9, "critic_update": section}
    assert values["algo"] == {"name": "a2c", "schedule": {"gamma": TO_0} | of_critic} | moved

    algo = {"name": "svpg", "schedule": {"particle": {"value_coef": TO_0}}, "particle": agent}
    values = upgraded({"format": 9, "algo": algo})[0]
    assert values["algo"] == {"name": "svpg", "schedule": {"particle": of_critic}, "particle": moved}


@pytest.mark.parametrize("algo", [{"particle": 3, "critic_update": None}, {"value_coef": 0.2}])
def test_other_settings_of_format_9_stay_where_they_are(algo: dict[str, Any]) -> None:
    """The coefficient of MuZero is the agent's."""
    assert upgraded({"format": 9, "algo": algo})[0] == {"algo": algo}


@pytest.mark.parametrize("particle", ["", "particle."])
def test_scheduled_coefficient_of_the_critic_of_format_9_moves(particle: str) -> None:
    new = f"{particle}critic_update.value_coef"
    row: dict[str, object] = {f"train/{particle}value_coef": 0.1, "train/clip_range": 0.2}
    assert renamed_metrics(row, 9, "a2c") == {f"train/{new}": 0.1, "train/clip_range": 0.2}
    state = {f"schedules.{particle}value_coef".replace("particle.", "particle/"): 0.1}
    assert renamed_state(dict(state), 9, "a2c") == {"schedules." + new.replace(".", "/"): 0.1}


def test_losses_of_format_9_are_as_they_were() -> None:
    old: dict[str, Any] = {"clip_range": 0.2, "advantage": {"normalize": "none"}, "critic_update": None}
    new: dict[str, Any] = {"log_prob_clip": None, "advantage": {"normalize": "none", "clip": None}}
    assert upgraded({"format": 9, "algo": {"clip_range": 0.2}})[0] == {"algo": {"clip_range": 0.2}}, "that of MAML"
    algo = old | {"particle": old, "critic": {"num_quantiles": 9}}
    values: dict[str, Any] = upgraded({"format": 9, "algo": algo})[0]
    critic = {"num_quantiles": 9, "sum_over_quantiles": True}
    assert values["algo"] == old | new | {"particle": old | new, "critic": critic}


def test_decoders_of_format_9_hold_no_loss_beside_their_network() -> None:
    state = {"addons.0.decoders.obs.torso.stack.layers.0.weight": 1, "addons.1.decoders.reward.output.bias": 2}
    assert renamed_state(dict(state), 9, "ppo") == {
        "addons.0.decoders.obs.network.torso.stack.layers.0.weight": 1,
        "addons.1.decoders.reward.network.output.bias": 2,
    }


FORMER = {
    "name": "autoencoder", "latent": 4, "trained_by": "both", "hidden": [8], "learning_rate": 0.01, "epochs": 2,
    "minibatch_size": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("trained_by", "model"), [("own", "autoencoder"), ("both", "autoencoder"), ("agent", "network")]
)
def test_autoencoders_of_format_9_are_models_of_encodings(trained_by: str, model: str) -> None:
    section = "algo.representation"
    words = [f"{section}=encoding", f"{section}.model={model}", f"{section}.trained_by={trained_by}"]
    words += [f"{section}.learning_rate=0.01", f"{section}.epochs=2", f"{section}.minibatch_size=16"]
    words += [f"{section}.model.latent=4", f"{section}.model.network.hidden=[8]"]
    if model == "autoencoder":
        words.append(f"{section}.model.decoder.hidden=[8]")
    typed: dict[str, Any] = jobs(["algo=sac", "env=Pendulum", *words])[0].values
    algo = {"representation": FORMER | {"trained_by": trained_by}, "intrinsic": None}
    values: dict[str, Any] = upgraded({"format": 9, "algo": algo})[0]
    assert values["algo"]["representation"] == typed["algo"]["representation"]


def test_autoencoders_of_format_9_whose_intrinsic_rewards_read_observations_are_refused() -> None:
    algo = {"representation": FORMER | {"trained_by": "own"}, "intrinsic": {"name": "rnd"}}
    with pytest.raises(ConfigError, match="commit d642a930 is the last that has it"):
        upgraded({"format": 9, "algo": algo})
    algo["representation"] = FORMER
    assert upgraded({"format": 9, "algo": algo})[0]
    truncated = {"representation": {"name": "autoencoder", "latent": 4}}
    assert upgraded({"format": 9, "algo": truncated})[0] == {"algo": truncated}


OF_ADDON = {
    "addons.0.encoder.torso.stack.layers.0.weight": "addons.0.model.encoder.torso.stack.layers.0.weight",
    "addons.0.encoder.output.weight": "addons.0.model.encoder.output.weight",
    "addons.0.decoder.torso.stack.layers.0.bias": "addons.0.model.decoder.network.torso.stack.layers.0.bias",
    "addons.0.decoder.output.weight": "addons.0.model.decoder.network.output.weight",
}
OF_AGENT = "agent.critic.torso.encoder.output.weight", "agent.critic.torso.torso.stack.layers.0.weight"


def test_weights_of_autoencoders_of_format_9_move_and_their_moments_change_places() -> None:
    sizes = zip(OF_ADDON, (3, 5, 2, 4), strict=True)
    weights = {key: torch.full((size,), float(size)) for key, size in sizes}
    streams = {"addons.0.shuffle._extra_state": {"state": 1}}
    encoder, decoder = [*weights][:2], [*weights][2:]
    moments = {f"addons.0.optim.{name}": torch.cat([weights[key] for key in [*decoder, *encoder]])
               for name in ("exp_avg", "exp_avg_sq")}  # fmt: skip
    old = weights | moments | streams | {OF_AGENT[1]: torch.ones(1)}
    new: dict[str, Any] = renamed_state(dict(old), 9, "sac")
    moved = OF_AGENT[1].replace("torso.torso", "torso")
    assert new.keys() == {*OF_ADDON.values(), *moments, *streams, "addons.0.draws._extra_state", moved}
    for moment in moments:
        assert torch.equal(new[moment], torch.cat([weights[key] for key in [*encoder, *decoder]]))


@pytest.mark.parametrize("names", [("addons.0.encoder_optim.exp_avg", "addons.0.optim.exp_avg"), ()])
def test_encoders_of_format_9_that_an_agent_trains_move(names: tuple[str, ...]) -> None:
    moved = OF_ADDON if names else dict([*OF_ADDON.items()][:2])
    old = dict.fromkeys([*moved, *OF_AGENT, *names], 1)
    new = dict.fromkeys([*moved.values(), OF_AGENT[0].replace("encoder.", "encoder.network."), OF_AGENT[1], *names], 1)
    assert renamed_state(dict(old), 9, "sac") == new
    predictive = {"addons.0.encoder.output.weight": 1, "addons.0.decoders.obs.network.output.weight": 1}
    assert renamed_state(dict(predictive), 9, "sac") == predictive


def test_statistics_of_format_9_are_of_all_rows() -> None:
    old: dict[str, Any] = {"kind": "obs", "reward_by": "returns"}
    values: dict[str, Any] = upgraded({"format": 9, "env": {"normalize": old}})[0]
    new = {"statistics": {"name": "all"}, "fields": [], "zero_mean": True, "update_on": "rollout", "max_updates": None}
    assert values["env"]["normalize"] == old | new


@pytest.mark.parametrize(
    ("name", "scale", "obs"), [("icm", "all", "none"), ("rnd", "all", "all"), ("diayn", "none", "none")]
)
def test_intrinsic_rewards_of_format_9_have_the_statistics_that_they_had(name: str, scale: str, obs: str) -> None:
    old = {"name": name, "reward_coef": 1.0}
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"intrinsic": old}})[0]
    new = {"statistics": {"name": scale}, "obs_statistics": {"name": obs}, "obs_clip": 5.0}
    assert values["algo"]["intrinsic"] == old | new


def test_images_goals_and_rewards_of_format_9_are_as_they_were() -> None:
    old: dict[str, Any] = {"env": {"normalize": {}}, "algo": {"buffer": {"her_ratio": 0.8}}, "network": {"hidden": [3]}}
    values: dict[str, Any] = upgraded({"format": 9, **old})[0]
    assert values["env"] == {"normalize": {}, "transforms": []}
    assert values["algo"]["buffer"] == {"her_ratio": 0.8, "reward": "environment", "distance": 0.05}
    assert values["network"] == {"hidden": [3]}
    values = upgraded({"format": 9, "network": {"name": "cnn", "hidden": [3]}})[0]
    assert values["network"] == {"name": "cnn", "hidden": [3], "pixel_range": [0.0, 1.0]}


@pytest.mark.parametrize("name", ["min", "mean", "rescaled", "quantile"])
def test_targets_of_critics_of_format_9_are_not_normalised(name: str) -> None:
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"critic": {"name": name, "members": 2}}})[0]
    assert values["algo"]["critic"].get("normalize_target", "missing") == ("missing" if name == "quantile" else False)


def test_representations_of_format_9_predict_with_the_networks_of_hidden() -> None:
    section: dict[str, Any] = {"name": "predictive", "unroll_steps": 5}
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"representation": section, "unroll_steps": 3}})[0]
    added = {"network": None, "dynamics_network": None, "learning_rates": {}}
    assert values["algo"] == {"representation": section | added, "unroll_steps": 3}


def test_components_of_reward_vectors_of_format_9_have_the_discount_of_the_algorithm() -> None:
    values: dict[str, Any] = upgraded({"format": 9, "algo": {"reward_weights": {"name": "fixed", "weights": None}}})[0]
    assert values["algo"]["reward_weights"] == {"name": "fixed", "weights": None, "gamma": None}
