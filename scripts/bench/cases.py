"""The cases of whole runs. In each, every library has the same task, networks and hyperparameters."""

import random
from dataclasses import dataclass

OWN = ("rlrun", "rlrun-compiled")
TWO = ("rlrun-compiled@2", "sb3@2")  # on two threads, for cases with matrix products large enough to be shared


@dataclass(frozen=True)
class Case:
    """One task, with the same hyperparameters for every library."""

    algo: str
    env: str  # id in Gymnasium
    first: int  # step at which measuring begins, after start-up, warm-up and compiling
    steps: int  # number of steps in each measured interval: a whole number of rollouts that takes several turns
    rlrun: tuple[str, ...]  # settings of rlrun
    # Settings of all peers: arguments of SB3's class, and num_envs, normalize (observations and rewards), frames
    # (number of stacked Atari frames), hidden (units per layer, after the convolutions if there are frames), critics.
    peer: dict[str, object]
    libraries: tuple[str, ...]  # libraries that are compared by default


def off_policy(
    algo: str, env: str, libraries: tuple[str, ...], width: int = 256, batch: int = 256, critics: int = 2
) -> Case:
    """Returns a case of SAC or TD3."""
    words = ("algo.actor_learning_rate=3e-4", "algo.critic_learning_rate=3e-4", "algo.loop.warmup_steps=1000")
    words += (f"network.hidden=[{width},{width}]", f"algo.loop.batch_size={batch}", f"algo.critic.members={critics}")
    peer: dict[str, object] = {
        "learning_rate": 3e-4, "buffer_size": 1_000_000, "learning_starts": 1000, "batch_size": batch, "tau": 0.005,
        "gamma": 0.99, "train_freq": 1, "gradient_steps": 1, "hidden": [width, width], "critics": critics,
    }  # fmt: skip
    return Case(algo, env, 1100, 200, words, peer, libraries)


def ppo(
    env: str, first: int, steps: int, rollout: int, minibatch: int, epochs: int, normalize: bool,
    libraries: tuple[str, ...],
) -> Case:  # fmt: skip
    """Returns a case of PPO."""
    normalized = "both" if normalize else "none"
    words = ("env.num_envs=8", f"algo.loop.rollout_steps={rollout}", f"algo.epochs={epochs}")
    words += (f"algo.minibatch_size={minibatch}", f"env.normalize={normalized}")
    peer: dict[str, object] = {
        "num_envs": 8, "n_steps": rollout, "batch_size": minibatch, "n_epochs": epochs, "learning_rate": 3e-4,
        "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.2, "max_grad_norm": 0.5, "vf_coef": 0.5,
        "hidden": [64, 64], "normalize": normalize,
    }  # fmt: skip
    return Case("ppo", env, first, steps, words, peer, libraries)


def dqn(
    env: str, first: int, steps: int, hidden: list[int], capacity: int, frames: int, libraries: tuple[str, ...]
) -> Case:
    """Returns a case of DQN. frames: number of stacked frames, or 0 for observations that are not images."""
    words = (f"algo.buffer.capacity={capacity}", "algo.loop.batch_size=32", "algo.loop.updates_per_step=0.25")
    words += ("algo.learning_rate=1e-4", "algo.tau=1", "algo.target_every=2500", "algo.target_unit=steps")
    words += ("algo.loop.warmup_steps=1000", f"network.hidden={hidden}".replace(" ", ""))
    if frames:
        words += ("network=cnn", "algo.buffer.reward_clip=1.0")
    peer: dict[str, object] = {
        "learning_rate": 1e-4, "buffer_size": capacity, "learning_starts": 1000, "batch_size": 32, "train_freq": 4,
        "gradient_steps": 1, "gamma": 0.99, "target_update_interval": 2500, "hidden": hidden, "frames": frames,
    }  # fmt: skip
    return Case("dqn", env, first, steps, words, peer, libraries)


def planning(algo: str, first: int, steps: int) -> Case:
    """Returns a case of an algorithm that acts by planning, which no peer has."""
    return Case(algo, "Pendulum-v1", first, steps, (), {}, ("rlrun",))


TORCH = ("cleanrl", "tianshou", "torchrl", "skrl")
CASES = {  # the most important cases first
    "sac-HalfCheetah": off_policy("sac", "HalfCheetah-v5", (*OWN, "rlrun-bf16", *TWO, "sb3", "sbx", *TORCH)),
    "td3-HalfCheetah": off_policy("td3", "HalfCheetah-v5", (*OWN, *TWO, "sb3", "sbx", "cleanrl")),
    "ppo-HalfCheetah": ppo("HalfCheetah-v5", 4096, 12288, 256, 64, 10, True, (*OWN, "sb3", "sbx", *TORCH)),
    "ppo-HalfCheetah-16k": ppo("HalfCheetah-v5", 16384, 16384, 2048, 512, 10, True, (*OWN, "sb3", "sbx")),
    "ppo-CartPole": ppo("CartPole-v1", 1024, 15360, 32, 256, 20, False, (*OWN, "sb3", "sbx", "cleanrl")),
    "dqn-Pong": dqn(
        "ALE/Pong-v5", 1200, 200, [512], 10_000, 4, (*OWN, "rlrun-bf16", "rlrun@2", "sb3@2", "sb3", "sbx", "cleanrl")
    ),
    "dqn-CartPole": dqn("CartPole-v1", 3000, 4000, [64, 64], 100_000, 0, (*OWN, "sb3", "sbx", "cleanrl")),
    "mbrl-Pendulum": planning("mbrl", 600, 200),
    "latent_mbrl-Pendulum": planning("latent_mbrl", 600, 200),
    "mpc-Pendulum": planning("mpc", 128, 256),
}


def drawn(seed: int) -> tuple[str, Case]:
    """Returns a case of SAC with random sizes, and its name. Shows whether rlrun is only fast in the cases above."""
    dice = random.Random(seed)
    env, width = dice.choice(("Hopper", "Walker2d", "Ant", "Swimmer")), dice.randrange(128, 449, 32)
    batch, critics = dice.randrange(96, 385, 32), dice.choice((2, 3, 4))
    name = f"drawn {seed}: sac-{env}, width {width}, batch {batch}, {critics} critics"
    return name, off_policy("sac", f"{env}-v5", (*OWN, "sb3", "sbx"), width, batch, critics)
