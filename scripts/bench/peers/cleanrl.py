"""Trains SAC, TD3, DQN or PPO, implemented in one file of plain PyTorch in the style of CleanRL:

`python cleanrl.py cleanrl STEPS THREADS CASE_AS_JSON`
"""

import copy
import json
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import wrappers
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

_, STEPS, THREADS, TEXT = sys.argv[1:]
CASE = json.loads(TEXT)
P = CASE["peer"]


def make() -> gym.Env:
    """Returns one environment of the case, with wrappers."""
    if P.get("frames"):
        import ale_py

        gym.register_envs(ale_py)
        env = gym.make(CASE["env"], frameskip=1, repeat_action_probability=0.25)
        env = wrappers.FrameStackObservation(wrappers.AtariPreprocessing(env), P["frames"])
        return wrappers.TransformReward(wrappers.RecordEpisodeStatistics(env), np.sign)
    env = wrappers.RecordEpisodeStatistics(gym.make(CASE["env"]))
    if P.get("normalize"):
        env = wrappers.NormalizeReward(wrappers.NormalizeObservation(wrappers.ClipAction(env)))
    return env


def mlp(inputs: int, outputs: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Returns a network of linear layers with activations in between."""
    sizes = [inputs, *P["hidden"]]
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


class Replay:
    """A replay buffer of transitions on the CPU."""

    def __init__(self, env: gym.vector.VectorEnv):
        size, obs, action = P["buffer_size"], env.single_observation_space, env.single_action_space
        self.obs = np.zeros((size, *obs.shape), obs.dtype if P.get("frames") else np.float32)
        self.next_obs = np.zeros_like(self.obs)
        self.action = np.zeros((size, *action.shape), np.int64 if action.shape == () else np.float32)
        self.reward, self.done = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.at = self.count = 0

    def add(self, *row: Any) -> None:
        for array, value in zip((self.obs, self.next_obs, self.action, self.reward, self.done), row, strict=True):
            array[self.at] = value
        self.at = (self.at + 1) % len(self.reward)
        self.count = min(self.count + 1, len(self.reward))

    def sample(self) -> list[Tensor]:
        chosen = np.random.randint(0, self.count, P["batch_size"])
        return [
            torch.from_numpy(array[chosen]) for array in (self.obs, self.next_obs, self.action, self.reward, self.done)
        ]


def off_policy(env: gym.vector.VectorEnv, act: Callable[[Tensor], Tensor]) -> Iterator[tuple[int, list[Tensor]]]:
    """Acts and stores the transitions. Yields the step and a batch whenever an update is due."""
    replay = Replay(env)
    obs, _ = env.reset(seed=0)
    for step in range(1, int(STEPS) + 1):
        if step <= P["learning_starts"]:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = act(torch.as_tensor(obs)).numpy()
        next_obs, reward, terminated, _, info = env.step(action)
        last = info["final_obs"][0] if "final_obs" in info else next_obs[0]
        replay.add(obs[0], last, action[0], reward[0], terminated[0])
        obs = next_obs
        if step > P["learning_starts"] and step % P["train_freq"] == 0:
            yield step, replay.sample()


def track(targets: nn.Module, online: nn.Module) -> None:
    """Moves target networks towards the online ones by Polyak averaging."""
    for target, parameter in zip(targets.parameters(), online.parameters(), strict=True):
        target.data.copy_(P["tau"] * parameter.data + (1 - P["tau"]) * target.data)


class Continuous(nn.Module):
    """The parts that SAC and TD3 share: actor network, scale of actions, critics, optimisers."""

    def __init__(self, env: gym.vector.VectorEnv, outputs: int):
        super().__init__()
        box = env.single_action_space
        self.inputs, self.actions = env.single_observation_space.shape[0], box.shape[0]
        self.scale, self.middle = torch.tensor((box.high - box.low) / 2), torch.tensor((box.high + box.low) / 2)
        self.net = mlp(self.inputs, outputs * self.actions)
        self.critics = nn.ModuleList(mlp(self.inputs + self.actions, 1) for _ in range(P["critics"]))
        self.targets = copy.deepcopy(self.critics)
        self.actor_optim = torch.optim.Adam(self.net.parameters(), lr=P["learning_rate"])
        self.critic_optim = torch.optim.Adam(self.critics.parameters(), lr=P["learning_rate"])

    def values(self, critics: nn.ModuleList, obs: Tensor, action: Tensor) -> list[Tensor]:
        return [critic(torch.cat([obs, action], 1)).view(-1) for critic in critics]

    def fit(self, optim: torch.optim.Optimizer, loss: Tensor) -> None:
        optim.zero_grad()
        loss.backward()
        optim.step()


def sac(env: gym.vector.VectorEnv) -> None:
    """Trains SAC."""
    agent = Continuous(env, outputs=2)
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha_optim = torch.optim.Adam([log_alpha], lr=P["learning_rate"])

    def sample(obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = agent.net(obs.float()).chunk(2, -1)
        policy = Normal(mean, (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp())
        raw = policy.rsample()
        squashed = torch.tanh(raw)
        log_prob = policy.log_prob(raw) - torch.log(agent.scale * (1 - squashed**2) + 1e-6)
        return squashed * agent.scale + agent.middle, log_prob.sum(1)

    for _, (obs, next_obs, action, reward, done) in off_policy(env, lambda obs: sample(obs)[0]):
        alpha = log_alpha.exp().item()
        with torch.no_grad():
            next_action, next_log_prob = sample(next_obs)
            least = torch.stack(agent.values(agent.targets, next_obs, next_action)).min(0).values
            target = reward + P["gamma"] * (1 - done) * (least - alpha * next_log_prob)
        loss = sum(F.mse_loss(value, target) for value in agent.values(agent.critics, obs, action))
        agent.fit(agent.critic_optim, loss)
        chosen, log_prob = sample(obs)
        least = torch.stack(agent.values(agent.critics, obs, chosen)).min(0).values
        agent.fit(agent.actor_optim, (alpha * log_prob - least).mean())
        agent.fit(alpha_optim, (-log_alpha.exp() * (log_prob.detach() - agent.actions)).mean())
        track(agent.targets, agent.critics)


def td3(env: gym.vector.VectorEnv) -> None:
    """Trains TD3."""
    agent = Continuous(env, outputs=1)
    slow = copy.deepcopy(agent.net)

    def bounded(action: Tensor) -> Tensor:
        return torch.min(torch.max(action, agent.middle - agent.scale), agent.middle + agent.scale)

    def policy(net: nn.Module, obs: Tensor) -> Tensor:
        return torch.tanh(net(obs.float())) * agent.scale + agent.middle

    def explore(obs: Tensor) -> Tensor:
        action = policy(agent.net, obs)
        return bounded(action + 0.1 * agent.scale * torch.randn_like(action))

    for step, (obs, next_obs, action, reward, done) in off_policy(env, explore):
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5) * agent.scale
            next_values = agent.values(agent.targets, next_obs, bounded(policy(slow, next_obs) + noise))
            target = reward + P["gamma"] * (1 - done) * torch.stack(next_values).min(0).values
        loss = sum(F.mse_loss(value, target) for value in agent.values(agent.critics, obs, action))
        agent.fit(agent.critic_optim, loss)
        if step % 2 == 0:
            first = agent.critics[0](torch.cat([obs, policy(agent.net, obs)], 1))
            agent.fit(agent.actor_optim, -first.mean())
            track(slow, agent.net)
            track(agent.targets, agent.critics)


class Pixels(nn.Module):
    """Scales frames to [0, 1]."""

    def forward(self, frames: Tensor) -> Tensor:
        return frames.float() / 255


def dqn(env: gym.vector.VectorEnv) -> None:
    """Trains DQN."""
    actions = int(env.single_action_space.n)
    if P["frames"]:
        convolutions = [nn.Conv2d(P["frames"], 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()]
        convolutions += [nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()]
        online = nn.Sequential(Pixels(), *convolutions, mlp(3136, actions))
    else:
        online = mlp(env.single_observation_space.shape[0], actions)
    target = copy.deepcopy(online)
    optim = torch.optim.Adam(online.parameters(), lr=P["learning_rate"])
    last = step = P["learning_starts"]

    def act(obs: Tensor) -> Tensor:
        epsilon = max(0.05, 1 - 0.95 * step / (0.1 * int(STEPS)))
        return torch.randint(actions, (1,)) if np.random.rand() < epsilon else online(obs).argmax(1)

    for step, (obs, next_obs, action, reward, done) in off_policy(env, act):
        with torch.no_grad():
            goal = reward + P["gamma"] * (1 - done) * target(next_obs).max(1).values
        loss = F.smooth_l1_loss(online(obs).gather(1, action[:, None]).view(-1), goal)
        optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10)
        optim.step()
        if step - last >= P["target_update_interval"]:
            target.load_state_dict(online.state_dict())
            last = step


def ppo(env: gym.vector.VectorEnv) -> None:
    """Trains PPO."""
    count, length, inputs = env.num_envs, P["n_steps"], env.single_observation_space.shape
    discrete = env.single_action_space.shape == ()
    outputs = int(env.single_action_space.n) if discrete else env.single_action_space.shape[0]
    actor, critic = mlp(inputs[0], outputs, nn.Tanh), mlp(inputs[0], 1, nn.Tanh)
    log_std = nn.Parameter(torch.zeros(outputs))
    parameters = [*actor.parameters(), *critic.parameters(), *([] if discrete else [log_std])]
    optim = torch.optim.Adam(parameters, lr=P["learning_rate"], eps=1e-5)

    def policy(obs: Tensor) -> Any:
        out = actor(obs)
        return Categorical(logits=out) if discrete else Normal(out, log_std.exp())

    def log_prob(dist: Any, action: Tensor) -> Tensor:
        return dist.log_prob(action) if discrete else dist.log_prob(action).sum(-1)

    obs = torch.zeros(length, count, *inputs)
    actions = torch.zeros(length, count, dtype=torch.int64) if discrete else torch.zeros(length, count, outputs)
    log_probs, rewards, dones, values = (torch.zeros(length, count) for _ in range(4))
    now, done = torch.as_tensor(env.reset(seed=0)[0], dtype=torch.float32), torch.zeros(count)
    for _ in range(0, int(STEPS), count * length):
        for t in range(length):
            obs[t], dones[t] = now, done
            with torch.no_grad():
                dist = policy(now)
                actions[t] = dist.sample()
                log_probs[t], values[t] = log_prob(dist, actions[t]), critic(now).view(-1)
            following, reward, terminated, truncated, _ = env.step(actions[t].numpy())
            rewards[t] = torch.as_tensor(reward)
            now = torch.as_tensor(following, dtype=torch.float32)
            done = torch.as_tensor(terminated | truncated, dtype=torch.float32)
        advantages, trace = torch.zeros_like(rewards), torch.zeros(count)
        with torch.no_grad():
            next_value, alive = critic(now).view(-1), 1 - done
            for t in reversed(range(length)):
                delta = rewards[t] + P["gamma"] * alive * next_value - values[t]
                advantages[t] = trace = delta + P["gamma"] * P["gae_lambda"] * alive * trace
                next_value, alive = values[t], 1 - dones[t]
        rows = [part.flatten(0, 1) for part in (obs, actions, log_probs, advantages, advantages + values)]
        for _ in range(P["n_epochs"]):
            for chosen in np.split(np.random.permutation(count * length), count * length // P["batch_size"]):
                seen, taken, before, advantage, returned = (part[chosen] for part in rows)
                dist = policy(seen)
                ratio = (log_prob(dist, taken) - before).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - P["clip_range"], 1 + P["clip_range"])
                loss = torch.max(-advantage * ratio, -advantage * clipped).mean()
                loss = loss + P["vf_coef"] * F.mse_loss(critic(seen).view(-1), returned)
                optim.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, P["max_grad_norm"])
                optim.step()


if __name__ == "__main__":
    torch.set_num_threads(int(THREADS))
    torch.manual_seed(0)
    np.random.seed(0)
    same_step = gym.vector.AutoresetMode.SAME_STEP
    environments = gym.vector.SyncVectorEnv([make] * P.get("num_envs", 1), autoreset_mode=same_step)
    {"sac": sac, "td3": td3, "dqn": dqn, "ppo": ppo}[CASE["algo"]](environments)
