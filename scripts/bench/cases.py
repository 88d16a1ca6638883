"""What is compared end to end: the same task, networks and hyper-parameters for every library."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    algo: str
    env: str  # Gymnasium's id
    short: int  # steps of the run that holds start-up, warm-up and compiling
    long: int  # steps of the run that holds more of the same
    rlrun: tuple[str, ...]
    peer: dict[str, object]  # arguments of SB3's and SBX's class, beside num_envs


OFF_POLICY: dict[str, object] = {
    "learning_rate": 3e-4, "buffer_size": 1_000_000, "learning_starts": 1000, "batch_size": 256, "tau": 0.005,
    "gamma": 0.99, "train_freq": 1, "gradient_steps": 1,
}  # fmt: skip
MLP256: dict[str, object] = {"policy_kwargs": {"net_arch": [256, 256]}}
RATES = ("algo.actor_learning_rate=3e-4", "algo.critic_learning_rate=3e-4", "algo.loop.warmup_steps=1000")

CASES = {
    "sac-HalfCheetah": Case("sac", "HalfCheetah-v5", 1500, 4000, RATES, OFF_POLICY | MLP256),
    "td3-HalfCheetah": Case("td3", "HalfCheetah-v5", 1500, 4000, RATES, OFF_POLICY | MLP256),
    "ppo-HalfCheetah": Case(
        "ppo", "HalfCheetah-v5", 4096, 24576,
        ("env.num_envs=8", "algo.loop.rollout_steps=256", "env.normalize=both"),
        {"num_envs": 8, "n_steps": 256, "batch_size": 64, "n_epochs": 10, "learning_rate": 3e-4, "normalize": True},
    ),
    "ppo-CartPole": Case(
        "ppo", "CartPole-v1", 1024, 24576,
        ("env.num_envs=8", "algo.loop.rollout_steps=32", "algo.epochs=20", "algo.minibatch_size=256"),
        {"num_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "learning_rate": 3e-4},
    ),
    "dqn-CartPole": Case(
        "dqn", "CartPole-v1", 3000, 15000,
        ("algo.buffer.capacity=100000", "algo.loop.batch_size=32", "network.hidden=[64,64]",
         "algo.loop.updates_per_step=0.25", "algo.loop.warmup_steps=1000"),
        {"learning_rate": 1e-4, "buffer_size": 100_000, "learning_starts": 1000, "batch_size": 32, "train_freq": 4,
         "gradient_steps": 1, "target_update_interval": 2500},
    ),
}  # fmt: skip
