"""Option names of Stable-Baselines3, RL Zoo, CleanRL, RLlib and Hydra, and the keys of rlrun with the same meaning.

`KEYS` lists the candidate keys for each name, most likely first, and `EARLIER` those for names that rlrun had before.
Only keys in the composed config are suggested, so the suggestion depends on the algorithm. A note in brackets says how
the value differs. `NOTHING` lists names without a corresponding key, each with a short reason. `HYDRA` lists settings
of Hydra, which only composes here. `PARTS` lists other names of parts.
"""

from collections.abc import Callable

ROLLOUT = ("algo.loop.rollout_steps", "algo.loop.min_steps")
UPDATES = (
    "algo.loop.updates_per_step (gradient steps divided by environment steps)",
    "algo.loop.update_every (in steps of all environments together)",
)
MINIBATCH = ("algo.loop.batch_size", "algo.minibatch_size")
TARGET_EVERY = ("algo.target_every (in updates)", "algo.target_unit (steps: target_every is in environment steps)")
TARGET_TAU = ("algo.tau",)
LEARNING_RATE = ("algo.learning_rate", "algo.actor_learning_rate", "algo.critic_learning_rate")
ENTROPY = ("algo.entropy.ent_coef", "algo.entropy (fixed or auto)", "algo.entropy.initial_alpha")
MEMBERS = ("algo.critic.members",)
HIDDEN = ("network.hidden",)
NETWORK = ("network.hidden", "network.activation")
WARMUP = ("algo.loop.warmup_steps",)
GRAD_NORM = ("algo.max_grad_norm",)
VALUE_COEF = ("algo.value_coef (of half the squared error, as in CleanRL; twice that of Stable-Baselines3 and RLlib)",)
CLIP_VALUE = ("algo.clip_value",)
ENVS = ("env.num_envs",)
WORKERS = ("env.num_envs (all environments: workers times environments of each)",)
TOTAL = ("trainer.total_steps",)
EVAL_EVERY = ("trainer.eval_every (in steps of all environments together)",)
EVAL_EPISODES = ("trainer.eval_episodes",)
SNAPSHOT_EVERY = ("trainer.snapshot_every (in steps of all environments together)",)
SCHEDULE = ("algo.schedule ({learning_rate: {linear: {end: 0}}}; of SAC: actor_ and critic_learning_rate)",)
NOISE = ("algo.noise (none, gaussian or ou)",)
NOISE_STD = ("algo.noise.std", "algo.noise (gaussian and ou have it)", "algo.particle.noise (gaussian and ou have it)")
TRACE_LAMBDA = ("algo.advantage.gae_lambda", "algo.trace_lambda")
NORMALIZE_ADVANTAGE = ("algo.advantage.normalize (none, minibatch, rollout or running)",)
RHO_CLIP = ("algo.advantage.rho_clip", "algo.advantage (vtrace has it)")

CRITIC = ("algo.critic_update (shared: one torso)",)
NORMALIZE = ("env.normalize (none, obs, reward or both)",)
DEVICE = ("device (cpu or cuda)",)
NO_PENALTY = "no penalty on the divergence; algo.target_kl stops the epochs of an update"

KEYS: dict[str, tuple[str, ...]] = {
    # training, environments, logging
    "total_timesteps": TOTAL,
    "n_timesteps": TOTAL,
    "num_timesteps": TOTAL,
    "timesteps": TOTAL,
    "timesteps_total": TOTAL,
    "env_id": ("env",),
    "gym_id": ("env",),
    "env_name": ("env",),
    "algorithm": ("algo",),
    "n_envs": ENVS,
    "num_workers": WORKERS,
    "num_rollout_workers": WORKERS,
    "num_env_runners": WORKERS,
    "num_envs_per_worker": WORKERS,
    "num_envs_per_env_runner": WORKERS,
    "vec_env": ("env.backend (sync or async)",),
    "vec_env_cls": ("env.backend (sync or async)",),
    "env_kwargs": ("env.kwargs",),
    "env_config": ("env.kwargs",),
    "env_wrapper": ("env.wrappers",),
    "wrapper_class": ("env.wrappers",),
    "frame_stack": ("env.wrappers.frame_stack.stack", "env.wrappers"),
    "normalize": NORMALIZE,
    "norm_obs": NORMALIZE,
    "norm_reward": NORMALIZE,
    "observation_filter": NORMALIZE,
    "horizon": ("env.max_episode_steps",),
    "cuda": DEVICE,
    "num_gpus": DEVICE,
    "num_threads": ("trainer.threads",),
    "exp_name": ("name",),
    "log_folder": ("run_dir",),
    "trained_agent": ("init_from",),
    "tensorboard_log": ("logger (a list: logger=[console,tensorboard])",),
    "verbose": ("logger (a list: logger=[console,tensorboard])",),
    "log_interval": ("trainer.log_every (in steps)",),
    "eval_freq": EVAL_EVERY,
    "evaluation_interval": EVAL_EVERY,
    "n_eval_episodes": EVAL_EPISODES,
    "evaluation_duration": EVAL_EPISODES,
    "eval_env_kwargs": ("env.eval_kwargs",),
    "save_freq": SNAPSHOT_EVERY,
    "checkpoint_freq": SNAPSHOT_EVERY,
    "checkpoint_frequency": SNAPSHOT_EVERY,
    # networks
    "policy_kwargs": NETWORK,
    "model": NETWORK,
    "net_arch": HIDDEN,
    "hiddens": HIDDEN,
    "fcnet_hiddens": HIDDEN,
    "hidden_sizes": HIDDEN,
    "activation_fn": ("network.activation",),
    "fcnet_activation": ("network.activation",),
    "ortho_init": ("network.init (uniform or orthogonal)",),
    "lstm_hidden_size": ("network.features",),
    "n_lstm_layers": ("network.layers",),
    "num_recurrent_layers": ("network.layers",),
    "lstm_cell_size": ("network.features",),
    "max_seq_len": ("network.sequence_length",),
    "burn_in_len": ("network.burn_in",),
    "features_extractor_class": ("network (rlrun list network)",),
    "share_features_extractor": CRITIC,
    "vf_share_layers": CRITIC,
    # learning rates and optimisers
    "lr": LEARNING_RATE,
    "learning_rate": LEARNING_RATE,
    "policy_lr": ("algo.actor_learning_rate", "algo.learning_rate"),
    "actor_lr": ("algo.actor_learning_rate", "algo.learning_rate"),
    "q_lr": ("algo.critic_learning_rate", "algo.learning_rate"),
    "critic_lr": ("algo.critic_learning_rate", "algo.critic_update.learning_rate"),
    "vf_lr": ("algo.critic_update.learning_rate", "algo.critic_learning_rate"),
    "alpha_lr": ("algo.entropy.learning_rate",),
    "anneal_lr": SCHEDULE,
    "lr_schedule": SCHEDULE,
    "adam_epsilon": ("algo.optimizer_eps",),
    "rms_prop_eps": ("algo.optimizer_eps",),
    "use_rms_prop": ("algo.optimizer (adam or rmsprop)",),
    "opt_type": ("algo.optimizer (adam or rmsprop)",),
    "optimizer_class": ("algo.optimizer (adam or rmsprop)",),
    "grad_clip": GRAD_NORM,
    "max_gradient_norm": GRAD_NORM,
    "gamma": ("algo.gamma", "algo.loop.gamma"),
    # on-policy
    "n_steps": (*ROLLOUT, "algo.n_step"),
    "num_steps": ROLLOUT,
    "rollout_fragment_length": ROLLOUT,
    "train_batch_size": ("algo.loop.batch_size", "algo.loop.rollout_steps (of each environment)"),
    "train_batch_size_per_learner": ("algo.loop.batch_size", "algo.loop.rollout_steps (of each environment)"),
    "batch_size": MINIBATCH,
    "minibatch_size": MINIBATCH,
    "sgd_minibatch_size": MINIBATCH,
    "num_minibatches": ("algo.num_minibatches (with algo.minibatch_size=null)",),
    "n_epochs": ("algo.epochs",),
    "num_epochs": ("algo.epochs",),
    "update_epochs": ("algo.epochs",),
    "num_sgd_iter": ("algo.epochs",),
    "lambda": TRACE_LAMBDA,
    "lambda_": TRACE_LAMBDA,
    "lam": TRACE_LAMBDA,
    "gae_lambda": TRACE_LAMBDA,
    "clip_coef": ("algo.clip_range",),
    "clip_param": ("algo.clip_range",),
    "clip_vloss": ("algo.clip_value (how far a value may move)",),
    "clip_range_vf": CLIP_VALUE,
    "vf_clip_param": ("algo.clip_value (how far a value may move; RLlib limits the squared error)",),
    "vf_coef": VALUE_COEF,
    "vf_loss_coeff": VALUE_COEF,
    "ent_coef": ENTROPY,
    "entropy_coeff": ENTROPY,
    "norm_adv": NORMALIZE_ADVANTAGE,
    "normalize_advantage": NORMALIZE_ADVANTAGE,
    "log_std_init": ("algo.init_std (the standard deviation, not its logarithm)",),
    "shuffle_batch_per_epoch": ("algo.shuffle",),
    "int_coef": ("algo.intrinsic.coef",),
    "ext_coef": ("algo.intrinsic.reward_coef",),
    "int_gamma": ("algo.intrinsic.gamma",),
    "vtrace": ("algo.advantage (gae or vtrace)",),
    "vtrace_clip_rho_threshold": RHO_CLIP,
    "vtrace_clip_pg_rho_threshold": RHO_CLIP,
    # replay
    "buffer_size": ("algo.buffer.capacity",),
    "memory_size": ("algo.buffer.capacity",),
    "replay_buffer_config": ("algo.buffer",),
    "replay_buffer_kwargs": ("algo.buffer",),
    "replay_buffer_class": ("algo.buffer (replay, prioritized, hindsight or prioritized_hindsight)",),
    "goal_selection_strategy": ("algo.buffer.strategy", "algo.buffer (hindsight has it)"),
    "n_sampled_goal": ("algo.buffer.her_ratio (n / (n + 1))", "algo.buffer (hindsight has it)"),
    "her_proportion": ("algo.buffer.her_ratio", "algo.buffer (hindsight has it)"),
    "prioritized_replay": ("algo.buffer (replay or prioritized)",),
    "prioritized_replay_alpha": ("algo.buffer.alpha", "algo.buffer (replay or prioritized)"),
    "prioritized_replay_beta": ("algo.buffer.beta.start", "algo.buffer (replay or prioritized)"),
    "prioritized_replay_eps": ("algo.buffer.epsilon", "algo.buffer (replay or prioritized)"),
    "learning_starts": WARMUP,
    "num_steps_sampled_before_learning_starts": WARMUP,
    "train_freq": UPDATES,
    "train_frequency": UPDATES,
    "training_intensity": ("algo.loop.updates_per_step (training_intensity / batch size)",),
    "gradient_steps": UPDATES,
    "utd_ratio": UPDATES,
    "target_update_interval": TARGET_EVERY,
    "target_network_frequency": TARGET_EVERY,
    "target_network_update_freq": TARGET_EVERY,
    "tau": TARGET_TAU,
    "polyak": ("algo.tau (1 - polyak)",),
    "policy_frequency": ("algo.policy_delay",),
    "alpha": ("algo.entropy.initial_alpha", "algo.buffer.alpha"),
    "initial_alpha": ("algo.entropy.initial_alpha",),
    "autotune": ("algo.entropy (auto or fixed)",),
    "target_entropy": ("algo.entropy.target_entropy",),
    "n_critics": MEMBERS,
    "twin_q": ("algo.critic.members (how many critics)",),
    "clip_rewards": ("algo.buffer.reward_clip",),
    "action_noise": NOISE,
    "noise_type": NOISE,
    "exploration_noise": NOISE_STD,
    "noise_std": NOISE_STD,
    "policy_noise": ("algo.target_noise",),
    "target_policy_noise": ("algo.target_noise",),
    "noise_clip": ("algo.target_noise_clip",),
    # value functions
    "exploration_fraction": ("algo.epsilon.fraction",),
    "epsilon_timesteps": ("algo.epsilon.fraction (of the run)",),
    "exploration_initial_eps": ("algo.epsilon.start",),
    "initial_epsilon": ("algo.epsilon.start",),
    "start_e": ("algo.epsilon.start",),
    "exploration_final_eps": ("algo.epsilon.end",),
    "final_epsilon": ("algo.epsilon.end",),
    "end_e": ("algo.epsilon.end",),
    "double_q": ("algo.double",),
    "n_atoms": ("algo.critic.num_atoms",),
    "n_quantiles": ("algo.critic.num_quantiles",),
    "top_quantiles_to_drop_per_net": ("algo.critic.dropped_quantiles",),
    "noisy": ("algo.noisy_std (a number switches noise on)",),
    "sigma0": ("algo.sigma0", "algo.noisy_std"),
}

EARLIER: dict[str, tuple[str, ...]] = {
    "temperature": ("algo.entropy.initial_alpha", "algo.entropy.ent_coef"),
    "learn_temperature": ("algo.entropy (auto or fixed)",),
    "temperature_learning_rate": ("algo.entropy.learning_rate",),
    "entropy_target": ("algo.entropy (auto, fixed, sgd or staged)",),
    "members": MEMBERS,
    "target_members": ("algo.critic.target_members",),
    "actor_value": ("algo.critic.target_members (with a number, actors use the mean)",),
    "returns": ("algo.critic (categorical, hl_gauss, mean, quantile, rescaled or truncated)",),
    "target_tau": TARGET_TAU,
    "initial_std": ("algo.init_std",),
    "noise_theta": ("algo.noise.theta", "algo.noise (ou has it)"),
    "value_learning_rate": ("algo.critic_update.learning_rate", "algo.critic_update (first and split have it)"),
    "value_epochs": ("algo.critic_update.epochs", "algo.critic_update (first has it)"),
    "value_minibatch_size": ("algo.critic_update.minibatch_size", "algo.critic_update (first has it)"),
    "value_lambda": ("algo.advantage.value_lambda", "algo.advantage (gae has it)"),
    "rho_clip": RHO_CLIP,
    "c_clip": ("algo.advantage.c_clip", "algo.advantage (vtrace has it)"),
    "temperature_start": ("algo.search.temperature.start",),
    "temperature_end": ("algo.search.temperature.end",),
    "beta_final": ("algo.buffer.beta.end",),
    "epsilon_decay": ("algo.epsilon.factor",),
    "coef_end": ("algo.schedule (intrinsic: {coef: {linear: {end: 0}}})",),
    "learning_rate_decay": ("algo.schedule (learning_rate: {inverse: {decay: 0.5}})",),
    "reset_learning_rate_every": ("algo.schedule (learning_rate: {inverse: {decay: 0.5, restart_every: 100}})",),
    "advantage_after_fit": ("algo.critic_update.advantage_after_fit", "algo.critic_update (first has it)"),
}

NOTHING = {
    "policy": "no policy classes; network=... chooses the networks, and the default suits the observations",
    "dropout": "no dropout in networks; network.norm=layer normalises them",
    "use_sde": "no state-dependent exploration",
    "sde_sample_freq": "no state-dependent exploration",
    "use_kl_loss": NO_PENALTY,
    "kl_coeff": NO_PENALTY,
    "kl_target": NO_PENALTY,
    "use_gae": "no such switch; algo.advantage.gae_lambda=1 gives whole returns",
    "optimize_memory_usage": "no such switch; image frames are always stored once",
    "policies": "no multi-agent training",
    "policy_mapping_fn": "no multi-agent training",
}

HYDRA = {  # Hydra's settings about runs, and what the user may write instead
    "hydra/launcher=basic": "-m alone trains one run after the other",
    "hydra/launcher=joblib": "write submit=local submit.workers=N",
    "hydra/launcher=submitit_local": "write submit=slurm submit.executor=local",
    "hydra/launcher=submitit": "write submit=slurm",
    "hydra/launcher=ray": "write submit=ray",
    "hydra/launcher": "write submit=local, submit=slurm or submit=ray",
    "hydra.launcher": "write submit=local, submit=slurm or submit=ray, with settings such as submit.workers=N",
    "hydra/sweeper": "`rlrun sweep` searches hyperparameters",
    "hydra.sweeper": "`rlrun sweep` searches hyperparameters",
    "hydra.run": "write name=... or run_dir=...",
    "hydra.sweep": "write name=... for the folder of a grid's runs",
}

PARTS = {
    "algo.buffer": {"her": "hindsight", "per": "prioritized", "uniform": "replay"},
    "algo.critic": {
        "c51": "categorical",
        "qr_dqn": "quantile",
        "qr_sac": "quantile",
        "redq": "min with algo.critic.target_members=2",
        "tqc": "truncated",
    },
}


def plain(name: str) -> str:
    """Returns a flag or key as these tables spell it: in lower case, with underscores, without leading dashes."""
    return name.lstrip("-").replace("-", "_").lower()


def counterparts(name: str, is_key: Callable[[str], bool]) -> list[str]:
    """Returns the candidates, with their notes, for which `is_key` is true."""
    return [candidate for candidate in _candidates(name) if is_key(candidate.partition(" ")[0])]


def _candidates(name: str) -> tuple[str, ...]:
    name = plain(name)
    return KEYS.get(name) or EARLIER.get(name, ())


def part(group: str, name: str) -> str | None:
    """Returns the part of a group, such as `algo.critic`, that has this name elsewhere; None if it is in no table."""
    return PARTS.get(group, {}).get(plain(name))


def explanation(key: str) -> str:
    """Returns why a key with a name of another library is not in this config, or "" for a name that is in no table."""
    name = key.rpartition(".")[2]
    found = _candidates(name)
    if found:
        counterpart = found[0].partition(" ")[0]
        if counterpart == key:
            return ""
        return f"; it corresponds to {counterpart}, which this algorithm does not have"
    is_in_part = key.count(".") > 1  # the names of other libraries are not in parts such as algo.loop
    if plain(name) in NOTHING and not is_in_part:
        return f"; rlrun has {NOTHING[plain(name)]}"
    return ""


def of_hydra(word: str) -> str:
    """Returns why a setting of Hydra is refused, and what to write instead."""
    for start, instead in HYDRA.items():
        if word.lstrip("+~").startswith(start):
            return f"Hydra starts no runs here; {instead}"
    return "Hydra only composes the config here, so its own settings have no effect"
