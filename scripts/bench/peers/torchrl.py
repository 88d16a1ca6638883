"""Trains SAC or PPO of TorchRL in its virtual environment, assembled as in TorchRL's examples:

`python torchrl.py torchrl STEPS THREADS CASE_AS_JSON`
"""

import json
import sys
import warnings

_, STEPS, THREADS, TEXT = sys.argv[1:]
case = json.loads(TEXT)
p = case["peer"]
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from tensordict.nn import TensorDictModule  # noqa: E402
from torch import nn  # noqa: E402
from torchrl.collectors import Collector  # noqa: E402
from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement  # noqa: E402
from torchrl.envs import Compose, DoubleToFloat, GymEnv, RewardSum, SerialEnv, StepCounter, TransformedEnv, VecNorm  # noqa: E402
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator  # noqa: E402
from torchrl.objectives import ClipPPOLoss, SACLoss, SoftUpdate  # noqa: E402
from torchrl.objectives.value import GAE  # noqa: E402

torch.set_num_threads(int(THREADS))
torch.manual_seed(0)
on_policy, num_envs = case["algo"] == "ppo", p.get("num_envs", 1)
base = SerialEnv(num_envs, lambda: GymEnv(case["env"])) if num_envs > 1 else GymEnv(case["env"])
normalize = [VecNorm(in_keys=["observation"])] if p.get("normalize") else []
env = TransformedEnv(base, Compose(DoubleToFloat(), *normalize, StepCounter(), RewardSum()))
env.set_seed(0)
spec = env.full_action_spec_unbatched["action"]
inputs, actions = env.observation_spec["observation"].shape[-1], spec.shape[-1]
mlp = {"num_cells": p["hidden"], "activation_class": nn.Tanh if on_policy else nn.ReLU}
body = nn.Sequential(MLP(inputs, 2 * actions, **mlp), NormalParamExtractor())
actor = ProbabilisticActor(
    TensorDictModule(body, ["observation"], ["loc", "scale"]), in_keys=["loc", "scale"], distribution_class=TanhNormal,
    distribution_kwargs={"low": spec.space.low, "high": spec.space.high, "tanh_loc": False},
    return_log_prob=on_policy, spec=spec,
)  # fmt: skip


def ppo() -> None:
    """Trains PPO."""
    rollout = num_envs * p["n_steps"]
    critic = ValueOperator(MLP(inputs, 1, **mlp), in_keys=["observation"])
    advantages = GAE(gamma=p["gamma"], lmbda=p["gae_lambda"], value_network=critic, average_gae=False)
    losses = ClipPPOLoss(
        actor, critic, clip_epsilon=p["clip_range"], normalize_advantage=True, entropy_bonus=False,
        critic_coeff=p["vf_coef"], loss_critic_type="l2",
    )  # fmt: skip
    optim = torch.optim.Adam(losses.parameters(), lr=p["learning_rate"])
    rows = ReplayBuffer(
        storage=LazyTensorStorage(rollout), sampler=SamplerWithoutReplacement(), batch_size=p["batch_size"]
    )
    for data in Collector(env, actor, frames_per_batch=rollout, total_frames=int(STEPS)):
        for _ in range(p["n_epochs"]):
            with torch.no_grad():
                data = advantages(data)
            rows.extend(data.reshape(-1))
            for _ in range(rollout // p["batch_size"]):
                loss = losses(rows.sample())
                (loss["loss_objective"] + loss["loss_critic"]).backward()
                nn.utils.clip_grad_norm_(losses.parameters(), p["max_grad_norm"])
                optim.step()
                optim.zero_grad()


def sac() -> None:
    """Trains SAC."""
    critic = ValueOperator(MLP(inputs + actions, 1, **mlp), in_keys=["action", "observation"])
    losses = SACLoss(actor, critic, num_qvalue_nets=p["critics"], loss_function="l2", delay_qvalue=True)
    losses.make_value_estimator(gamma=p["gamma"])
    targets = SoftUpdate(losses, eps=1 - p["tau"])
    parts = (losses.actor_network_params, losses.qvalue_network_params)
    groups = [{"params": [*part.flatten_keys().values()]} for part in parts]
    optim = torch.optim.Adam([*groups, {"params": [losses.log_alpha]}], lr=p["learning_rate"])
    rows = ReplayBuffer(storage=LazyTensorStorage(p["buffer_size"]), batch_size=p["batch_size"])
    steps = Collector(env, actor, frames_per_batch=1, total_frames=int(STEPS), init_random_frames=p["learning_starts"])
    for count, data in enumerate(steps, 1):
        rows.extend(data.reshape(-1))
        if count > p["learning_starts"]:
            loss = losses(rows.sample())
            (loss["loss_actor"] + loss["loss_qvalue"] + loss["loss_alpha"]).backward()
            optim.step()
            optim.zero_grad()
            targets.step()


{"ppo": ppo, "sac": sac}[case["algo"]]()
