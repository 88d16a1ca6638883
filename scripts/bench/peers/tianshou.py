"""Trains SAC, PPO or DQN of Tianshou in its virtual environment:

`python tianshou.py tianshou STEPS THREADS CASE_AS_JSON`
"""

import json
import sys
from functools import partial

_, STEPS, THREADS, TEXT = sys.argv[1:]
case = json.loads(TEXT)
p = case["peer"]

import gymnasium as gym  # noqa: E402
import torch  # noqa: E402
from tianshou.algorithm import DQN, PPO, SAC  # noqa: E402
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy  # noqa: E402
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy  # noqa: E402
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy  # noqa: E402
from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: E402
from tianshou.data import Collector, VectorReplayBuffer  # noqa: E402
from tianshou.env import DummyVectorEnv, VectorEnvNormObs  # noqa: E402
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams  # noqa: E402
from tianshou.utils.net.common import Net  # noqa: E402
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic  # noqa: E402
from torch.distributions import Independent, Normal  # noqa: E402

torch.set_num_threads(int(THREADS))
torch.manual_seed(0)
on_policy, num_envs = case["algo"] == "ppo", p.get("num_envs", 1)
one = gym.make(case["env"])
spaces = {"action_space": one.action_space, "observation_space": one.observation_space}
actions = getattr(one.action_space, "n", one.action_space.shape)
net = partial(Net, state_shape=one.observation_space.shape, hidden_sizes=p["hidden"])
adam = AdamOptimizerFactory(lr=p["learning_rate"])


def sac() -> SAC:
    """Returns SAC with the settings of the case."""
    actor = ContinuousActorProbabilistic(
        preprocess_net=net(), action_shape=actions, unbounded=True, conditioned_sigma=True
    )
    first, second = (ContinuousCritic(preprocess_net=net(action_shape=actions, concat=True)) for _ in range(2))
    alpha = AutoAlpha(-float(actions[0]), 0.0, AdamOptimizerFactory(lr=p["learning_rate"]))
    return SAC(
        policy=SACPolicy(actor=actor, **spaces), policy_optim=adam, critic=first, critic_optim=adam, critic2=second,
        critic2_optim=adam, tau=p["tau"], gamma=p["gamma"], alpha=alpha,
    )  # fmt: skip


def ppo() -> PPO:
    """Returns PPO with the settings of the case."""
    tanh = partial(net, activation=torch.nn.Tanh)
    actor = ContinuousActorProbabilistic(preprocess_net=tanh(), action_shape=actions, unbounded=True)
    policy = ProbabilisticActorPolicy(
        actor=actor, dist_fn=lambda parts: Independent(Normal(*parts), 1), action_scaling=True, **spaces
    )
    return PPO(
        policy=policy, critic=ContinuousCritic(preprocess_net=tanh()), optim=adam, eps_clip=p["clip_range"],
        gamma=p["gamma"], gae_lambda=p["gae_lambda"], max_grad_norm=p["max_grad_norm"], vf_coef=p["vf_coef"],
        ent_coef=0.0, return_scaling=p["normalize"],
    )  # fmt: skip


def dqn() -> DQN:
    """Returns DQN with the settings of the case."""
    policy = DiscreteQLearningPolicy(model=net(action_shape=actions), eps_training=0.05, **spaces)
    target = p["target_update_interval"] // p["train_freq"]
    return DQN(policy=policy, optim=adam, gamma=p["gamma"], target_update_freq=target, is_double=False)


algorithm = {"sac": sac, "ppo": ppo, "dqn": dqn}[case["algo"]]()
envs = DummyVectorEnv([lambda: gym.make(case["env"])] * num_envs)
if p.get("normalize"):
    envs = VectorEnvNormObs(envs)  # rewards are normalised by PPO's `return_scaling`
rollout = num_envs * p.get("n_steps", 0)
collector = Collector(
    algorithm, envs, VectorReplayBuffer(rollout or p["buffer_size"], num_envs), exploration_noise=True
)
collector.reset()
warm_up = p.get("learning_starts", 0)
if warm_up:
    collector.collect(n_step=warm_up, random=True)
each = rollout or p["train_freq"]
common = {
    "max_epochs": 1, "epoch_num_steps": int(STEPS) - warm_up, "training_collector": collector,
    "collection_step_num_env_steps": each, "show_progress": False, "verbose": False,
}  # fmt: skip
if on_policy:
    params = OnPolicyTrainerParams(batch_size=p["batch_size"], update_step_num_repetitions=p["n_epochs"], **common)
else:
    ratio = p["gradient_steps"] / each
    params = OffPolicyTrainerParams(
        batch_size=p["batch_size"], update_step_num_gradient_steps_per_sample=ratio, **common
    )
algorithm.run_training(params)
