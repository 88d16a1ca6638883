"""For option names of other libraries, the error message names the key with the same meaning."""

from functools import cache

import pytest

from rlrun import dotted
from rlrun.config import check, foreign_words, sources
from rlrun.config.compose import Composer
from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError

# library and algorithm; algorithm and environment here; the option as their source spells it -> the key here.
# Read from stable_baselines3/*/*.py and common/{env_util,policies,callbacks}.py at e05d2dbe6e, rl-baselines3-zoo's
# hyperparams/*.yml and train.py at 22e3ff2450, cleanrl/*.py at fe8d8a03c4, and RLlib's algorithm_config.py, ppo.py,
# dqn.py, sac.py and impala.py (2.x; rollout workers are those of 2.3, env runners of 2.40). Those of Pyrado, PyTorchRL,
# GenRL and MetaRL are from the signatures of their algorithms, storages and trainers, and from PyTorchRL's conf.yaml.
OPTIONS = {
    ("SB3 PPO", "ppo"): {
        "n_steps": "algo.loop.rollout_steps",
        "batch_size": "algo.minibatch_size",
        "gamma": "algo.gamma",
        "n_epochs": "algo.epochs",
        "gae_lambda": "algo.advantage.gae_lambda",
        "normalize_advantage": "algo.advantage.normalize",
        "clip_range_vf": "algo.critic_update.clip_value",
        "vf_coef": "algo.critic_update.value_coef",
        "policy_kwargs": "network.hidden",
        "net_arch": "network.hidden",
        "activation_fn": "network.activation",
        "ortho_init": "network.init",
        "log_std_init": "algo.init_std",
        "share_features_extractor": "algo.critic_update",
        "total_timesteps": "trainer.total_steps",
        "tensorboard_log": "logger",
        "n_envs": "env.num_envs",
        "env_kwargs": "env.kwargs",
        "eval_freq": "trainer.eval_every",
        "n_eval_episodes": "trainer.eval_episodes",
        "save_freq": "trainer.snapshot_every",
        "norm_obs": "env.normalize",
    },
    ("SB3 A2C", "a2c"): {
        "n_steps": "algo.loop.rollout_steps",
        "rms_prop_eps": "algo.optimizer_eps",
        "use_rms_prop": "algo.optimizer",
    },
    ("SB3 DQN", "dqn"): {
        "buffer_size": "algo.buffer.capacity",
        "learning_starts": "algo.loop.warmup_steps",
        "batch_size": "algo.loop.batch_size",
        "tau": "algo.tau",
        "train_freq": "algo.loop.updates_per_step",
        "gradient_steps": "algo.loop.updates_per_step",
        "n_steps": "algo.n_step",
        "target_update_interval": "algo.target_every",
        "exploration_fraction": "algo.epsilon.fraction",
        "exploration_initial_eps": "algo.epsilon.start",
        "exploration_final_eps": "algo.epsilon.end",
        "replay_buffer_class": "algo.buffer",
        "goal_selection_strategy": "algo.buffer",
        "n_sampled_goal": "algo.buffer",
    },
    ("SB3 SAC", "sac"): {
        "learning_rate": "algo.actor_learning_rate",
        "ent_coef": "algo.entropy",
        "n_steps": "algo.n_step",
        "batch_size": "algo.loop.batch_size",
        "buffer_size": "algo.buffer.capacity",
        "learning_starts": "algo.loop.warmup_steps",
        "gradient_steps": "algo.loop.updates_per_step",
        "target_update_interval": "algo.target_every",
        "n_critics": "algo.critic.members",
    },
    ("SB3 TD3", "td3"): {
        "learning_rate": "algo.actor_learning_rate",
        "action_noise": "algo.noise",
        "target_policy_noise": "algo.target_noise",
        "train_freq": "algo.loop.updates_per_step",
    },
    ("RL Zoo ppo", "ppo"): {
        "n_timesteps": "trainer.total_steps",
        "normalize": "env.normalize",
        "env_wrapper": "env.wrappers",
        "num_threads": "trainer.threads",
        "vec_env": "env.backend",
        "log_folder": "run_dir",
        "trained_agent": "init_from",
        "eval_env_kwargs": "env.eval_kwargs",
    },
    ("RL Zoo td3", "td3"): {"noise_type": "algo.noise", "n_timesteps": "trainer.total_steps"},
    ("RL Zoo qrdqn", "qr_dqn"): {"n_quantiles": "algo.critic.num_quantiles", "buffer_size": "algo.buffer.capacity"},
    ("CleanRL ppo", "ppo"): {
        "env_id": "env",
        "cuda": "device",
        "exp_name": "name",
        "num_steps": "algo.loop.rollout_steps",
        "anneal_lr": "algo.schedule",
        "num_minibatches": "algo.num_minibatches",
        "update_epochs": "algo.epochs",
        "norm_adv": "algo.advantage.normalize",
        "clip_coef": "algo.clip_range",
        "clip_vloss": "algo.critic_update.clip_value",
    },
    ("CleanRL ppo_rnd", "ppo_rnd"): {
        "int_coef": "algo.intrinsic.coef",
        "ext_coef": "algo.intrinsic.reward_coef",
        "int_gamma": "algo.intrinsic.gamma",
    },
    ("CleanRL dqn", "dqn"): {
        "target_network_frequency": "algo.target_every",
        "train_frequency": "algo.loop.updates_per_step",
        "start_e": "algo.epsilon.start",
        "end_e": "algo.epsilon.end",
    },
    ("CleanRL c51", "c51"): {"n_atoms": "algo.critic.num_atoms"},
    ("CleanRL rainbow", "rainbow"): {
        "prioritized_replay_alpha": "algo.buffer.alpha",
        "prioritized_replay_beta": "algo.buffer.beta.start",
        "prioritized_replay_eps": "algo.buffer.epsilon",
    },
    ("CleanRL sac", "sac"): {
        "policy_lr": "algo.actor_learning_rate",
        "q_lr": "algo.critic_learning_rate",
        "policy_frequency": "algo.policy_delay",
        "alpha": "algo.entropy.initial_alpha",
        "autotune": "algo.entropy",
    },
    ("CleanRL td3", "td3"): {
        "policy_noise": "algo.target_noise",
        "exploration_noise": "algo.noise.std",
        "noise_clip": "algo.target_noise_clip",
    },
    ("RLlib PPO", "ppo"): {
        "lr": "algo.learning_rate",
        "train_batch_size": "algo.loop.rollout_steps",
        "rollout_fragment_length": "algo.loop.rollout_steps",
        "sgd_minibatch_size": "algo.minibatch_size",
        "num_epochs": "algo.epochs",
        "num_sgd_iter": "algo.epochs",
        "vtrace": "algo.advantage",
        "lambda_": "algo.advantage.gae_lambda",
        "clip_param": "algo.clip_range",
        "vf_clip_param": "algo.critic_update.clip_value",
        "vf_loss_coeff": "algo.critic_update.value_coef",
        "entropy_coeff": "algo.entropy.ent_coef",
        "grad_clip": "algo.max_grad_norm",
        "shuffle_batch_per_epoch": "algo.shuffle",
        "num_rollout_workers": "env.num_envs",
        "num_env_runners": "env.num_envs",
        "num_envs_per_env_runner": "env.num_envs",
        "fcnet_hiddens": "network.hidden",
        "evaluation_interval": "trainer.eval_every",
    },
    ("RLlib DQN", "dqn"): {
        "lr": "algo.learning_rate",
        "train_batch_size": "algo.loop.batch_size",
        "target_network_update_freq": "algo.target_every",
        "num_steps_sampled_before_learning_starts": "algo.loop.warmup_steps",
        "adam_epsilon": "algo.optimizer_eps",
        "double_q": "algo.double",
        "noisy": "algo.noisy_std",
        "hiddens": "network.hidden",
        "epsilon_timesteps": "algo.epsilon.fraction",
        "replay_buffer_config": "algo.buffer",
    },
    ("RLlib SAC", "sac"): {
        "actor_lr": "algo.actor_learning_rate",
        "critic_lr": "algo.critic_learning_rate",
        "alpha_lr": "algo.entropy.learning_rate",
        "initial_alpha": "algo.entropy.initial_alpha",
        "twin_q": "algo.critic.members",
    },
    ("RLlib IMPALA", "vtrace"): {
        "vtrace_clip_rho_threshold": "algo.advantage.rho_clip",
        "opt_type": "algo.optimizer",
        "env_config": "env.kwargs",
    },
    ("Pyrado A2C", "a2c"): {
        "std_init": "algo.init_std",
        "vfcn_coeff": "algo.critic_update.value_coef",
        "min_steps": "algo.loop",
    },
    ("Pyrado PPO", "ppo_critic_first"): {
        "max_iter": "trainer.total_updates",
        "eps_clip": "algo.clip_range",
        "num_epoch": "algo.epochs",
        "lamda": "algo.advantage.gae_lambda",
        "standardize_adv": "algo.advantage.normalize",
        "lr_scheduler": "algo.schedule",
    },
    ("Pyrado DQL", "dqn"): {
        "eps_init": "algo.epsilon.start",
        "eps_schedule_gamma": "algo.epsilon",
        "num_init_memory_steps": "algo.loop.warmup_steps",
        "num_updates_per_step": "algo.loop.updates_per_step",
        "target_update_intvl": "algo.target_every",
        "use_trained_policy_for_refill": "algo.loop.refill_policy",
        "eval_intvl": "trainer.eval_every",
    },
    ("Pyrado SAC", "sac"): {
        "ent_coeff_init": "algo.entropy.initial_alpha",
        "learn_ent_coeff": "algo.entropy",
        "standardize_rew": "algo.buffer.standardize_reward",
        "rew_scale": "algo.buffer.reward_scale",
        "tau": "algo.tau",
        "min_rollouts": "algo.loop",
    },
    ("PyTorchRL PPO", "ppo"): {
        "num_env_steps": "trainer.total_steps",
        "num_env_processes": "env.num_envs",
        "max_time": "trainer.stop_when.hours",
        "eps": "algo.optimizer_eps",
        "num_mini_batch": "algo.num_minibatches",
        "ppo_epoch": "algo.epochs",
        "value_loss_coef": "algo.critic_update.value_coef",
        "use_clipped_value_loss": "algo.critic_update.clip_value",
        "entropy_coef": "algo.entropy.ent_coef",
        "test_every": "trainer.eval_every",
        "num_test_episodes": "trainer.eval_episodes",
        "save_interval": "trainer.snapshot_every",
        "log_dir": "run_dir",
        "nn": "network",
    },
    ("PyTorchRL SAC", "sac"): {
        "lr_q": "algo.critic_learning_rate",
        "lr_pi": "algo.actor_learning_rate",
        "lr_alpha": "algo.entropy.learning_rate",
        "mini_batch_size": "algo.loop.batch_size",
        "num_updates": "algo.loop.updates_per_step",
        "start_steps": "algo.loop.warmup_steps",
    },
    ("GenRL DQN", "dqn"): {
        "replay_size": "algo.buffer.capacity",
        "buffer_type": "algo.buffer",
        "max_epsilon": "algo.epsilon.start",
        "min_epsilon": "algo.epsilon.end",
        "epsilon_decay": "algo.epsilon",
        "value_layers": "network.critic",
        "update_interval": "algo.loop.update_every",
        "max_timesteps": "trainer.total_steps",
        "max_ep_len": "env.max_episode_steps",
        "evaluate_episodes": "trainer.eval_episodes",
        "log_mode": "logger",
        "log_key": "logger.tensorboard.x",
        "load_model": "init_from",
        "load_weights": "init_from",
        "load_hyperparams": "preset",
        "parallel": "env.backend",
        "framestack": "env.wrappers",
    },
    ("GenRL PPO1", "ppo1"): {
        "lr_policy": "algo.learning_rate",
        "lr_value": "algo.critic_update.learning_rate",
        "policy_layers": "network.actor",
        "rollout_size": "algo.loop.rollout_steps",
        "value_coeff": "algo.critic_update.value_coef",
        "shared_layers": "algo.critic_update",
    },
    ("GenRL SAC", "sac"): {"entropy_tuning": "algo.entropy", "lr_policy": "algo.actor_learning_rate"},
    ("GenRL classical", "dyna_q"): {"plan_n_steps": "algo.planning_steps", "evaluate_frequency": "trainer.eval_every"},
    ("MetaRL CEM", "cem"): {
        "n_samples": "algo.population",
        "best_frac": "algo.elite_fraction",
        "discount": "algo.loop.gamma",
        "max_path_length": "env.max_episode_steps",
    },
    ("MetaRL off-policy", "td3"): {
        "discount": "algo.gamma",
        "steps_per_epoch": "trainer.eval_every",
        "rollout_batch_size": "algo.loop",
        "min_buffer_size": "algo.loop.start_update",
        "buffer_batch_size": "algo.loop.batch_size",
        "n_train_steps": "algo.loop.updates_per_step",
        "max_eval_path_length": "trainer.eval_max_steps",
        "qf_lr": "algo.critic_learning_rate",
        "use_target": "algo.target_every",
    },
    ("W&B in CleanRL and RL Zoo", "ppo"): {"track": "logger", "wandb": "logger", "wandb_project_name": "logger"},
}
# together they have every key of the table; other algorithms are tried only if a key is missing
MOST_KEYS = ("ppo_composite", "ppo_critic_first", "redq", "ddpg", "rainbow", "qr_dqn", "ppo_lstm", "vtrace", "vpg",
             "svpg", "sarsa", "cma_es", "tqc")  # fmt: skip


@cache
def tree(algo, env="CartPole"):
    return composer().compose([f"algo={algo}", f"env={env}"]).tree


@cache
def composer():
    return Composer(sources.folders())


def keys_of(algo, env):
    return {path for path in dotted.paths(tree(algo, env))}


@pytest.mark.parametrize("form", ["{}", "algo.{}", "trainer.{}"])
def test_options_of_other_libraries_lead_to_the_key_with_their_meaning(form):
    found = [
        (origin, check.nearest_key(form.format(option), tree(algo)), key)
        for (origin, algo), options in OPTIONS.items()
        for option, key in options.items()
        if dotted.lookup(form.format(option), tree(algo)) is dotted.ABSENT  # otherwise the word is valid here
    ]
    wrong = [row for row in found if not (row[1] + " ").replace("?", " ").startswith(f"; did you mean {row[2]} ")]
    assert len(found) >= 100
    assert not wrong


def test_every_suggested_key_exists_for_some_algorithm():
    names = foreign_words.KEYS | foreign_words.EARLIER
    suggested = {candidate.partition(" ")[0] for found in names.values() for candidate in found}
    missing = suggested - keys_of("dqn", "Pong")
    for part in ("buffer=hindsight", "epsilon=exponential", "epsilon=random_start", "loop=offpolicy_episodes"):
        values = jobs(["algo=dqn", "env=BitFlip", f"algo.{part}"])[0].values
        missing -= {path for path, _ in dotted.leaves(values)}
    for algo in dict.fromkeys([*MOST_KEYS, *sources.options("algo", sources.folders())]):
        if missing:
            missing -= keys_of(algo, "CartPole")
    assert not missing


@pytest.mark.parametrize(
    ("algo", "word", "line"),
    [
        ("sac", "clip_coef", "; it corresponds to algo.clip_range, which this algorithm does not have"),
        ("ppo", "use_sde", "; rlrun has no state-dependent exploration"),
        ("ppo", "policies", "; rlrun has no multi-agent training"),
        (
            "ppo",
            "vf_coef",
            "; did you mean algo.critic_update.value_coef (of half the squared error, as in CleanRL; "
            "twice that of Stable-Baselines3 and RLlib)?",
        ),
        ("sac", "polyak", "; did you mean algo.tau (1 - polyak)?"),
        ("sac", "training_intensity", "; did you mean algo.loop.updates_per_step (training_intensity / batch size)?"),
        (
            "dqn",
            "target_network_frequency",
            "; did you mean algo.target_every (in updates) or "
            "algo.target_unit (steps: target_every is in environment steps)?",
        ),
        ("ppo", "eval_freq", "; did you mean trainer.eval_every (in steps of all environments together)?"),
        (
            "ppo",
            "num_env_runners",
            "; did you mean env.num_envs (all environments: workers times environments of each)?",
        ),
        ("thompson", "alpha", "; did you mean algo.alpha?"),
        ("td3", "algo.noise_std", "; did you mean algo.noise.std or algo.noise (gaussian and ou have it)?"),
        ("ddpg", "algo.noise_theta", "; did you mean algo.noise.theta or algo.noise (ou has it)?"),
        ("ppo", "algo.noise_std", "; did you mean algo.noise (gaussian and ou have it)?"),
        ("svpg", "algo.particle.noise_std", "; did you mean algo.particle.noise (gaussian and ou have it)?"),
        ("sac", "tau", "; did you mean algo.tau (weight of the new weights; 1 minus the tau of Pyrado)?"),
        ("ppo", "vfcn_coeff", "; did you mean algo.critic_update.value_coef (of half the squared error too)?"),
        (
            "ppo",
            "value_coeff",
            "; did you mean algo.critic_update.value_coef (of half the squared error; twice that of GenRL)?",
        ),
        (
            "ppo",
            "algo.value_coef",
            "; did you mean algo.critic_update.value_coef or algo.critic_update (all but none have it)?",
        ),
        ("vpg", "algo.clip_value", "; did you mean algo.critic_update (all but none have it)?"),
        ("svpg", "algo.particle.clip_value", "; did you mean algo.particle.critic_update.clip_value?"),
        ("ppo", "max_time", "; did you mean trainer.stop_when.hours (in hours, not seconds)?"),
        ("ppo", "reward_scale", "; it corresponds to algo.buffer.reward_scale, which this algorithm does not have"),
        ("ppo", "track", "; did you mean logger (a list: logger=[console,wandb])?"),
        (
            "ppo",
            "capture_video",
            "; rlrun has no videos of training; `rlrun eval RUN video=true` films how a run acts",
        ),
        ("sac", "render", "; rlrun has no window during training; `rlrun watch RUN` shows how a run acts now"),
        ("dqn", "train-freq", check.nearest_key("train_freq", tree("dqn"))),
    ],
)
def test_options_without_a_key_are_explained(algo, word, line):
    assert check.nearest_key(word, tree(algo)) == line


def test_foreign_words_suggest_no_key_by_chance():
    assert check.nearest_key("algo.zwidth", tree("sac")) == ""


@pytest.mark.parametrize(
    ("name", "own"),
    [("dql", "dqn"), ("ddqn", "double_dqn"), ("categorical_dqn", "c51"), ("cmaes", "cma_es"), ("reinforce", "vpg")],
)
def test_names_of_algorithms_elsewhere_lead_to_those_here(name, own):
    with pytest.raises(ConfigError) as error:
        jobs([f"algo={name}", "env=CartPole"])
    assert f"algo={name}: unknown name; did you mean {own}?" in str(error.value)


def test_algorithms_suggested_for_other_names_exist():
    known = set(sources.options("algo", sources.folders()))
    assert {own.split()[0] for own in foreign_words.PARTS["algo"].values()} <= known
    assert not known & set(foreign_words.PARTS["algo"])
