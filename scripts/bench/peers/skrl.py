"""Trains SAC or PPO of skrl in its virtual environment: `python skrl.py skrl STEPS THREADS CASE_AS_JSON`."""

import json
import sys
from typing import Any

_, STEPS, THREADS, TEXT = sys.argv[1:]
case = json.loads(TEXT)
p = case["peer"]

import gymnasium as gym  # noqa: E402
import torch  # noqa: E402
from skrl.agents.torch.ppo import PPO, PPO_CFG  # noqa: E402
from skrl.agents.torch.sac import SAC, SAC_CFG  # noqa: E402
from skrl.envs.wrappers.torch import wrap_env  # noqa: E402
from skrl.memories.torch import RandomMemory  # noqa: E402
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model  # noqa: E402
from skrl.resources.preprocessors.torch import RunningStandardScaler  # noqa: E402
from skrl.trainers.torch import SequentialTrainer  # noqa: E402
from torch import Tensor, nn  # noqa: E402

torch.set_num_threads(int(THREADS))
torch.manual_seed(0)
on_policy, num_envs = case["algo"] == "ppo", p.get("num_envs", 1)
made = gym.make_vec(case["env"], num_envs, "sync") if num_envs > 1 else gym.make(case["env"])
env = wrap_env(made, wrapper="gymnasium", verbose=False)
spaces = {
    "observation_space": env.observation_space, "state_space": None, "action_space": env.action_space, "device": "cpu",
}  # fmt: skip
activation = nn.Tanh if on_policy else nn.ReLU


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Returns a network of linear layers with activations in between."""
    (first, second) = p["hidden"]
    layers = [nn.Linear(inputs, first), activation(), nn.Linear(first, second), activation()]
    return nn.Sequential(*layers, nn.Linear(second, outputs))


class Gaussian(GaussianMixin, Model):
    """A Gaussian policy."""

    def __init__(self) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_actions=True)
        self.net = mlp(self.num_observations, self.num_actions * (1 if on_policy else 2))
        self.log_std = nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs: dict[str, Tensor], role: str = "") -> tuple[Tensor, dict[str, Tensor]]:
        out = self.net(inputs["observations"])
        if on_policy:
            return out, {"log_std": self.log_std}
        mean, log_std = out.chunk(2, -1)
        return torch.tanh(mean), {"log_std": log_std}


class Categorical(CategoricalMixin, Model):
    """A policy over discrete actions."""

    def __init__(self) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self, unnormalized_log_prob=True)
        self.net = mlp(self.num_observations, self.num_actions)

    def compute(self, inputs: dict[str, Tensor], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    """A value network."""

    def __init__(self, of_actions: bool) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self, clip_actions=False)
        self.of_actions = of_actions
        self.net = mlp(self.num_observations + (self.num_actions if of_actions else 0), 1)

    def compute(self, inputs: dict[str, Tensor], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        seen = inputs["observations"]
        return self.net(torch.cat([seen, inputs["taken_actions"]], 1) if self.of_actions else seen), {}


def ppo(silent: dict[str, Any]) -> PPO:
    """Returns PPO with the settings of the case."""
    scaler = {
        "observation_preprocessor": RunningStandardScaler,
        "observation_preprocessor_kwargs": {"size": env.observation_space, "device": "cpu"},
        "value_preprocessor": RunningStandardScaler,
        "value_preprocessor_kwargs": {"size": 1, "device": "cpu"},
    }
    cfg = PPO_CFG(
        rollouts=p["n_steps"], learning_epochs=p["n_epochs"], mini_batches=num_envs * p["n_steps"] // p["batch_size"],
        discount_factor=p["gamma"], gae_lambda=p["gae_lambda"], learning_rate=p["learning_rate"],
        ratio_clip=p["clip_range"], grad_norm_clip=p["max_grad_norm"], value_loss_scale=p["vf_coef"],
        experiment=silent, **(scaler if p["normalize"] else {}),
    )  # fmt: skip
    policy = Categorical() if isinstance(env.action_space, gym.spaces.Discrete) else Gaussian()
    memory = RandomMemory(memory_size=p["n_steps"], num_envs=num_envs, device="cpu")
    return PPO(models={"policy": policy, "value": Value(of_actions=False)}, memory=memory, cfg=cfg, **spaces)


def sac(silent: dict[str, Any]) -> SAC:
    """Returns SAC with the settings of the case."""
    cfg = SAC_CFG(
        batch_size=p["batch_size"], learning_rate=p["learning_rate"], learning_starts=p["learning_starts"],
        random_timesteps=p["learning_starts"], polyak=p["tau"], discount_factor=p["gamma"], experiment=silent,
    )  # fmt: skip
    names = ("critic_1", "critic_2", "target_critic_1", "target_critic_2")
    models = {"policy": Gaussian()} | {name: Value(of_actions=True) for name in names}
    memory = RandomMemory(memory_size=p["buffer_size"], num_envs=1, device="cpu", replacement=True)
    return SAC(models=models, memory=memory, cfg=cfg, **spaces)


agent = {"ppo": ppo, "sac": sac}[case["algo"]]({"directory": "runs", "write_interval": 1000, "checkpoint_interval": 0})
settings = {"timesteps": int(STEPS) // num_envs, "headless": True, "disable_progressbar": True}
SequentialTrainer(env=env, agents=agent, cfg=settings).train()
