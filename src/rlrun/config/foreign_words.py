"""Option names of other libraries, and the keys of rlrun with the same meaning.

The libraries are Stable-Baselines3, RL Zoo, CleanRL, RLlib, Pyrado, PyTorchRL, GenRL, MetaRL and Hydra.

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
VALUE_COEF = (
    "algo.critic_update.value_coef "
    "(of half the squared error, as in CleanRL; twice that of Stable-Baselines3 and RLlib)",
)
SAME_VALUE_COEF = ("algo.critic_update.value_coef (of half the squared error too)",)
CLIP_VALUE = ("algo.critic_update.clip_value",)
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
ITERATIONS = ("trainer.total_updates (a rollout is one update; with replay, each gradient step is one)",)
UPDATES_OF_ITERATION = (
    "algo.loop.updates_per_iteration",
    "algo.loop.updates_per_step (per environment step, not per iteration)",
)
EPISODES_OF_ROLLOUT = ("algo.loop.min_rollouts", "algo.loop (episodes and offpolicy_episodes have it)")
INITIAL_ALPHA = ("algo.entropy.initial_alpha",)
LEARNED_ALPHA = ("algo.entropy (auto or fixed)",)
ACTOR_RATE = ("algo.actor_learning_rate", "algo.learning_rate")
CRITIC_RATE = (
    "algo.critic_learning_rate",
    "algo.critic_update.learning_rate",
    "algo.critic_update (first and split have a learning rate of the critic)",
    "algo.learning_rate",
)
WEIGHTS = ("init_from (a run, or a file of weights)",)
FOLDER = ("run_dir",)
WANDB = ("logger (a list: logger=[console,wandb])",)
DEVICE = ("device (cpu or cuda)",)
NO_TRAINING_WINDOW = "no window during training; `rlrun watch RUN` shows how a run acts now"
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
    "log_folder": FOLDER,
    "trained_agent": ("init_from",),
    "tensorboard_log": ("logger (a list: logger=[console,tensorboard])",),
    "track": WANDB,
    "wandb": WANDB,
    "wandb_project_name": ("logger (a list: logger=[console,wandb], with logger.wandb.project=NAME)",),
    "wandb_entity": ("logger (a list: logger=[console,wandb], with logger.wandb.entity=NAME)",),
    "reward_scale": ("algo.buffer.reward_scale",),
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
    "policy_lr": ACTOR_RATE,
    "actor_lr": ACTOR_RATE,
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
    "clip_vloss": ("algo.critic_update.clip_value (how far a value may move)",),
    "clip_range_vf": CLIP_VALUE,
    "vf_clip_param": ("algo.critic_update.clip_value (how far a value may move; RLlib limits the squared error)",),
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
    "tau": ("algo.tau (weight of the new weights; 1 minus the tau of Pyrado)",),
    "polyak": ("algo.tau (1 - polyak)",),
    "policy_frequency": ("algo.policy_delay",),
    "alpha": ("algo.entropy.initial_alpha", "algo.buffer.alpha"),
    "initial_alpha": INITIAL_ALPHA,
    "autotune": LEARNED_ALPHA,
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
    # Pyrado
    "max_iter": ITERATIONS,
    "std_init": ("algo.init_std",),
    "eps_clip": ("algo.clip_range",),
    "num_epoch": ("algo.epochs", "algo.critic_update.epochs (of Pyrado's GAE)"),
    "lamda": TRACE_LAMBDA,
    "vfcn_coeff": SAME_VALUE_COEF,
    "value_fcn_coeff": SAME_VALUE_COEF,
    "standardize_adv": NORMALIZE_ADVANTAGE,
    "lr_scheduler": SCHEDULE,
    "lr_scheduler_hparam": SCHEDULE,
    "min_steps": ("algo.loop.min_steps", "algo.loop (episodes and offpolicy_episodes have it)"),
    "min_rollouts": EPISODES_OF_ROLLOUT,
    "num_updates_per_step": UPDATES_OF_ITERATION,
    "num_batch_updates": UPDATES_OF_ITERATION,
    "num_init_memory_steps": WARMUP,
    "use_trained_policy_for_refill": ("algo.loop.refill_policy (agent or random)",),
    "target_update_intvl": TARGET_EVERY,
    "ent_coeff_init": INITIAL_ALPHA,
    "learn_ent_coeff": LEARNED_ALPHA,
    "standardize_rew": ("algo.buffer.standardize_reward",),
    "rew_scale": ("algo.buffer.reward_scale",),
    "eps_init": ("algo.epsilon.start",),
    "eps_schedule_gamma": (
        "algo.epsilon.factor (applied every algo.epsilon.updates updates, not iterations)",
        "algo.epsilon (geometric has it as factor)",
    ),
    "eval_intvl": ("trainer.eval_every (in iterations with trainer.period_unit=updates)",),
    "save_dir": FOLDER,
    "warmstart": WEIGHTS,
    # PyTorchRL
    "num_env_steps": TOTAL,
    "target_steps": TOTAL,
    "num_env_processes": ENVS,
    "max_time": ("trainer.stop_when.hours (in hours, not seconds)",),
    "lr_v": CRITIC_RATE,
    "lr_q": CRITIC_RATE,
    "lr_pi": ACTOR_RATE,
    "lr_alpha": ("algo.entropy.learning_rate",),
    "eps": ("algo.optimizer_eps",),
    "num_mini_batch": ("algo.num_minibatches (with algo.minibatch_size=null)",),
    "mini_batch_size": MINIBATCH,
    "ppo_epoch": ("algo.epochs",),
    "value_loss_coef": SAME_VALUE_COEF,
    "use_clipped_value_loss": ("algo.critic_update.clip_value (how far a value may move)",),
    "entropy_coef": ENTROPY,
    "num_updates": ("algo.loop.updates_per_step (num_updates / update_every)",),
    "start_steps": ("algo.loop.warmup_steps", "algo.epsilon.start_steps", "algo.epsilon (random_start has it)"),
    "test_every": ("trainer.eval_every (in updates with trainer.period_unit=updates)",),
    "num_test_episodes": EVAL_EPISODES,
    "save_interval": SNAPSHOT_EVERY,
    "log_dir": FOLDER,
    "nn": ("network",),
    "frame_skip": ("env.wrappers.atari.frame_skip",),
    # GenRL
    "max_timesteps": TOTAL,
    "epochs": ("algo.epochs (passes over a rollout; GenRL's trainers count rollouts and episodes)",),
    "n_episodes": ("trainer.stop_when.at_least (with trainer.stop_when.metric=train/episodes)",),
    "lr_policy": ACTOR_RATE,
    "lr_value": CRITIC_RATE,
    "layers": HIDDEN,
    "policy_layers": ("network.actor ({hidden: [64, 64]})",),
    "value_layers": ("network.critic ({hidden: [64, 64]})",),
    "shared_layers": CRITIC,
    "rollout_size": ROLLOUT,
    "value_coeff": ("algo.critic_update.value_coef (of half the squared error; twice that of GenRL)",),
    "replay_size": ("algo.buffer.capacity",),
    "buffer_type": ("algo.buffer (replay or prioritized)",),
    "max_epsilon": ("algo.epsilon.start",),
    "min_epsilon": ("algo.epsilon.end",),
    "epsilon_decay": (
        "algo.epsilon.steps (of exponential, as in GenRL)",
        "algo.epsilon.factor (of geometric, as in PyTorchRL)",
        "algo.epsilon (exponential with steps, as in GenRL; geometric with factor, as in PyTorchRL)",
    ),
    "update_interval": ("algo.loop.update_every (with algo.loop.updates_per_step=1)",),
    "entropy_tuning": LEARNED_ALPHA,
    "max_ep_len": ("env.max_episode_steps",),
    "evaluate_episodes": EVAL_EPISODES,
    "evaluate_frequency": ("trainer.eval_every (in episodes with trainer.period_unit=episodes)",),
    "log_key": ("logger.tensorboard.x (step, updates or episodes)",),
    "plan_n_steps": ("algo.planning_steps",),
    "log_mode": ("logger (a list: logger=[console,csv,tensorboard])",),
    "logdir": FOLDER,
    "save_model": FOLDER,
    "load_model": WEIGHTS,
    "load_weights": WEIGHTS,
    "load_hyperparams": ("preset (a YAML file)",),
    "parallel": ("env.backend (sync or async)",),
    "framestack": ("env.wrappers.frame_stack.stack", "env.wrappers"),
    # MetaRL
    "discount": ("algo.gamma", "algo.loop.gamma"),
    "best_frac": ("algo.elite_fraction",),
    "n_samples": ("algo.population",),
    "max_path_length": ("env.max_episode_steps",),
    "max_eval_path_length": ("trainer.eval_max_steps",),
    "steps_per_epoch": ("trainer.eval_every (in environment steps, not cycles)",),
    "rollout_batch_size": EPISODES_OF_ROLLOUT,
    "min_buffer_size": ("algo.loop.start_update", "algo.loop.warmup_steps (with random actions)"),
    "buffer_batch_size": ("algo.loop.batch_size",),
    "n_train_steps": UPDATES_OF_ITERATION,
    "qf_lr": CRITIC_RATE,
    "use_target": ("algo.target_every (with algo.tau=1, 1 is no target network)",),
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
    "coef_end": ("algo.schedule (intrinsic: {coef: {linear: {end: 0}}})",),
    "learning_rate_decay": ("algo.schedule (learning_rate: {inverse: {decay: 0.5}})",),
    "reset_learning_rate_every": ("algo.schedule (learning_rate: {inverse: {decay: 0.5, restart_every: 100}})",),
    "value_coef": ("algo.critic_update.value_coef", "algo.critic_update (all but none have it)"),
    "clip_value": ("algo.critic_update.clip_value", "algo.critic_update (all but none have it)"),
    "advantage_after_fit": ("algo.critic_update.advantage_after_fit", "algo.critic_update (first has it)"),
}

NOTHING = {
    "policy": "no policy classes; network=... chooses the networks, and the default suits the observations",
    "dropout": "no dropout in networks; network.norm=layer normalises them",
    "capture_video": "no videos of training; `rlrun eval RUN video=true` films how a run acts",
    "render": NO_TRAINING_WINDOW,
    "plot": NO_TRAINING_WINDOW,
    "run_num": "no numbers of runs; name=... names the folder of a run, whose own name begins with the time",
    "smooth_return": "no such switch; train/return_smooth is the mean of all episodes, train/return_mean of the latest",
    "store_paths": "no such switch; `rlrun eval RUN record=NAME-v0` stores episodes as a data set",
    "num_col_workers": "no collecting processes; env.backend=async steps environments in processes",
    "num_grad_workers": "one learning process",
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
    "algo": {
        "categorical_dqn": "c51",
        "cmaes": "cma_es",
        "ddqn": "double_dqn",
        "dql": "dqn",
        "dyna": "dyna_q",
        "es": "openai_es",
        "impala": "vtrace",
        "noisy": "noisy_dqn",
        "per_dqn": "prioritized_dqn",
        "prioritized_replay_dqn": "prioritized_dqn",
        "recurrent_ppo": "ppo_lstm",
        "reinforce": "vpg",
        "rnd": "ppo_rnd",
        "thompson_sampling": "thompson",
        "her": "sac algo.buffer=hindsight",
    },
    "algo.buffer": {"her": "hindsight", "per": "prioritized", "uniform": "replay"},
    "algo.critic": {
        "c51": "categorical",
        "qr_dqn": "quantile",
        "qr_sac": "quantile",
        "redq": "min with algo.critic.target_members=2",
        "tqc": "truncated",
    },
    "algo.representation": {"autoencoder": "encoding with algo.representation.trained_by=both"},
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
