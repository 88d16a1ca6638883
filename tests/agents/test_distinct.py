"""Every variant has a proof that passes for the variant and fails for its parent.

Agents are built from their YAML with small networks, and learn from transitions that are defined here.
"""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from policy_proofs import PROOFS as OF_POLICIES
from policy_proofs import Proof
from toys import ALGOS, put, toy, train

from rlrun.config.jobs import jobs
from rlrun.config.sources import CONF, content
from rlrun.core.agent import Agent
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.settings import registry
from rlrun.types import Batch, Context

Build = Callable[..., Loop]

ROWS = 64
FAMILIES = tuple(f"rlrun.agents.{name}." for name in ("policy", "value", "actor_critic"))


def agent_of(build: Build, algo: str, env: str = "CartPole", **changes: Any) -> Any:
    values = jobs([f"algo={algo}", f"env={env}", "preset=none", "network=linear"])[0].values
    return build(put(values, {"algo.buffer.capacity": 1000} | changes)).agent


def learn(agent: Agent, updates: int, batch: Callable[[], Batch]) -> None:
    for i in range(updates):
        agent.update(batch(), Context(i, i, 1.0))


def transitions(obs: Any, action: Any, reward: Any, terminated: float = 1.0) -> Batch:
    rows = len(reward)
    return {
        "obs": obs, "next_obs": obs, "action": action, "reward": reward,
        "n_steps": torch.ones(rows), "terminated": torch.full((rows,), terminated), "weight": torch.ones(rows),
    }  # fmt: skip


def does_not_overestimate(build: Build, algo: str) -> bool:
    """State 0 leads to state 1, whose six actions end the episode with noise of mean 0: every value is 0."""
    agent = agent_of(build, algo, "Taxi", **{"algo.learning_rate": 0.05, "algo.tau": 1.0, "algo.target_every": 100})
    draw = torch.Generator().manual_seed(0)
    obs = torch.arange(2).repeat(ROWS // 2)
    estimates = []

    def batch() -> Batch:
        estimates.append(agent.values(torch.tensor([0])).mean().item())
        rows = transitions(obs, torch.randint(6, (ROWS,), generator=draw), torch.randn(ROWS, generator=draw) * obs)
        return rows | {"next_obs": torch.ones_like(obs), "terminated": obs.float()}

    learn(agent, 900, batch)
    return sum(estimates[300:]) / 600 < 0.1


def one_action_teaches_the_others(build: Build, algo: str) -> bool:
    """Only one of six actions is tried, in one state: the values of the others change only by the state's value."""
    agent = agent_of(build, algo, "Taxi", **{"algo.learning_rate": 0.01})
    obs = torch.zeros(ROWS, dtype=torch.int64)
    before = agent.q(obs)[0, 1].clone()
    learn(agent, 10, lambda: transitions(obs, obs, torch.full((ROWS,), 5.0)))
    return not torch.allclose(agent.q(obs)[0, 1], before, atol=1e-3)


def crosses_a_blind_cliff(build: Build, algo: str) -> bool:
    """Action 0 ends the episode. A greedy policy that has learned this survives; a random policy does not."""
    agent = agent_of(build, algo, **{"algo.learning_rate": 0.01})
    obs = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0))
    action = torch.arange(2).repeat(ROWS // 2)
    steps = lambda: torch.cat([agent.act(obs, {}, explore=True)[0] for _ in range(50)]).view(50, ROWS)  # noqa: E731
    falls = (steps() == 0).float().mean()
    learn(agent, 600, lambda: transitions(obs, action, 4.0 * action - 2.0))
    return bool(falls > 0.05 and (steps() == 1).all(0).float().mean() > 0.9)


def learns_the_return_distribution(build: Build, algo: str) -> bool:
    """Rewards are -1 or 1 with equal probability: the distribution has no mass at the mean."""
    agent = agent_of(build, algo, **{"algo.learning_rate": 0.02})
    draw = torch.Generator().manual_seed(0)
    obs, action = torch.ones(ROWS, 4), torch.zeros(ROWS, dtype=torch.int64)
    learn(agent, 500, lambda: transitions(obs, action, 2.0 * torch.randint(2, (ROWS,), generator=draw) - 1))
    z = agent.q(obs)[0, 0].detach()
    if not hasattr(agent.ensemble, "atoms"):
        return bool((z.abs() - 1).abs().lt(0.3).all() and (z > 0).any() and (z < 0).any())
    near = [z.softmax(-1)[(agent.ensemble.atoms - mode).abs() < 0.3].sum() for mode in (-1.0, 0.0, 1.0)]
    return bool(near[0] > 0.35 and near[1] < 0.1 and near[2] > 0.35)


def predicts_quantiles(build: Build, algo: str) -> bool:
    """Rewards are uniform between 20 and 30: predictions are evenly spaced quantiles, however far from 0."""
    quantiles = {"algo.critic.num_quantiles": 10} if algo == "qr_dqn" else {}
    agent = agent_of(build, algo, **{"algo.learning_rate": 0.1}, **quantiles)
    draw = torch.Generator().manual_seed(0)
    obs, action = torch.ones(ROWS, 4), torch.zeros(ROWS, dtype=torch.int64)
    learn(agent, 500, lambda: transitions(obs, action, 20 + 10 * torch.rand(ROWS, generator=draw)))
    z = agent.q(obs)[0, 0].detach().view(-1).sort().values
    exact = 20 + 10 * (torch.arange(len(z)) + 0.5) / len(z)
    return bool(len(z) > 1 and (z - exact).abs().max() < 1.5)


def returns_to_the_rare_row(build: Build, algo: str) -> bool:
    """One of 400 stored steps has a reward. Uniform sampling draws this step 16 times in 200 batches of 32."""
    changes = {"algo.learning_rate": 0.1, "algo.n_step": 1, "algo.buffer.capacity": 400, "env.num_envs": 1}
    values = jobs([f"algo={algo}", "env=rlrun/ProbeObservation-v0", "preset=none", "network=linear"])[0].values
    loop = build(put(values, changes))
    for row in range(400):
        obs = torch.tensor([[1.0 if row == 100 else 0.0]])
        step, _ = loop.env.step(torch.zeros(1, dtype=torch.int64))
        loop.buffer.add(step | {"obs": obs, "next_obs": obs, "reward": obs[:, 0] * 5.0})
    met = 0
    for _ in range(200):
        loop.learn_from_replay()
        met += int((loop.batch["index"] == 100).sum())
    return met > 50


def looks_several_steps_ahead(build: Build, algo: str) -> bool:
    """The first target includes a reward that follows two steps later."""
    return bool(build(toy(algo)).buffer.reading.n_step > 1)


def takes_the_minimum_of_two_critics(build: Build, algo: str) -> bool:
    """One critic outputs 0 and the other 100 for every action; the target uses 0."""
    agent = agent_of(build, algo, "Pendulum")
    with torch.no_grad():
        for param in agent.target_critic.module.parameters():
            param.zero_()
        agent.target_critic.module.output.bias[-1] = 100.0
        for param in agent.critic.parameters():
            param.zero_()
    batch = transitions(torch.randn(8, 3), torch.zeros(8, 1), torch.zeros(8), terminated=0.0)
    return bool(agent.update_critic(batch, torch.zeros(8, 1))[0]["loss/critic"] == 0)


def explores_in_swings(build: Build, algo: str) -> bool:
    """Exploration noise is correlated from step to step: by 1 - theta."""
    agent = agent_of(build, algo, "Pendulum")
    obs = torch.zeros(1000, 3)
    carry: Batch = {"first": torch.ones(1000, dtype=torch.bool)}
    mean, noise = agent.act(obs, carry, explore=False)[0], []
    for _ in range(30):
        action, extras = agent.act(obs, carry, explore=True)
        carry = extras | {"first": torch.zeros(1000, dtype=torch.bool)}
        noise.append((action - mean).flatten())
    return bool(torch.corrcoef(torch.stack(noise[-2:]))[0, 1] > 0.7)


def samples_two_critics_per_target(build: Build, algo: str) -> bool:
    """Ten target critics output 0 to 9. The minimum of two random ones varies, and exceeds the minimum of all."""
    tiny = {f"algo.{name}_learning_rate": 1e-9 for name in ("actor", "critic")}
    agent = agent_of(
        build,
        algo,
        "Pendulum",
        **tiny,
        **{"algo.critic.members": 10, "algo.entropy.initial_alpha": 1e-9, "algo.entropy.learning_rate": 0.0},
    )
    with torch.no_grad():
        for param in [*agent.target_critic.module.parameters(), *agent.critic.parameters()]:
            param.zero_()
        agent.target_critic.module.output.bias.copy_(torch.arange(10.0).view(10, 1, 1))
    batch = transitions(torch.randn(8, 3), torch.zeros(8, 1), torch.zeros(8), terminated=0.0)
    losses = [agent.update(batch, Context(i, i, 0.0))[0]["loss/critic"].item() for i in range(10)]
    targets = {round((loss / 5) ** 0.5) for loss in losses}  # sum of half the squared errors of ten members
    return len(targets) > 1


def learns_quantiles_of_the_return(build: Build, algo: str) -> bool:
    """Rewards are -1 or 1 with equal probability: all critics predict both, and not only the mean."""
    agent = agent_of(build, algo, "Pendulum", **{"algo.critic_learning_rate": 0.05})
    draw = torch.Generator().manual_seed(0)
    obs, action = torch.ones(ROWS, 3), torch.zeros(ROWS, 1)
    for _ in range(150):
        batch = transitions(obs, action, 2.0 * torch.randint(2, (ROWS,), generator=draw) - 1)
        agent.update_critic(batch, torch.zeros(ROWS, 1))
    z = agent.critic(obs, action)[:, 0].detach().sort(-1).values
    return z.dim() == 2 and bool((z[:, 0] < -0.8).all() and (z[:, -1] > 0.8).all())


def drops_the_highest_quantiles(build: Build, algo: str) -> bool:
    """Target critics predict 100 as their highest quantile and else 0: the target is 0."""
    agent = agent_of(build, algo, "Pendulum", **{"algo.entropy.initial_alpha": 1e-9, "network.critic": {}})
    with torch.no_grad():
        for param in agent.target_critic.module.parameters():
            param.zero_()
        agent.target_critic.module.output.bias[..., -1] = 100.0
    batch = transitions(torch.randn(8, 3), torch.zeros(8, 1), torch.zeros(8), terminated=0.0)
    return bool(agent.target_q(batch, torch.zeros(8, 1), agent.target_critic).abs().max() < 1e-3)


def expects_over_every_action(build: Build, algo: str) -> bool:
    """The target is an expectation over discrete actions, so it does not depend on noise."""
    try:
        agent = agent_of(build, algo, "CartPole")
    except ConfigError:
        return False
    batch = transitions(torch.randn(8, 4), torch.zeros(8, dtype=torch.int64), torch.zeros(8), terminated=0.0)
    before = copy.deepcopy(agent.state_dict())
    losses = []
    for noise in (torch.zeros(8), torch.full((8,), 9.0)):
        agent.load_state_dict(before)
        losses.append(agent.update_critic(batch, noise)[0]["loss/critic"])
    return bool(losses[0] == losses[1])


def rewards_new_observations(build: Build, algo: str) -> bool:
    """No extrinsic reward. The intrinsic reward is larger for new observations than for familiar ones."""
    loop: Any = build(toy(algo))
    batch = rollout(loop)
    for _ in range(30):
        loop.addons.update(loop.addons.relabel(batch), loop.context())
    rewards = []
    for shift in (0.0, 3.0):
        obs = {key: batch[key] + shift * torch.tensor([1.0, -1.0, 1.0, -1.0]) for key in ("obs", "next_obs")}
        rewards.append(loop.addons.relabel(batch | obs)["reward"].sum())
    return bool(rewards[1] > 2 * rewards[0] > 0)


def predicts_the_action(build: Build, algo: str) -> bool:
    """The inverse model predicts the action from an observation and the next one."""
    loop: Any = build(toy(algo, **{"algo.intrinsic.learning_rate": 0.03}))
    batch = rollout(loop)
    batch["next_obs"] = batch["obs"] + batch["action"].unsqueeze(-1)
    metrics: Any = {}
    for _ in range(150):
        metrics = loop.addons.update(loop.addons.relabel(batch), loop.context())
    return "loss/icm_inverse" in metrics and bool(metrics["loss/icm_inverse"] < 0.3)


def learns_from_what_it_was_shown(build: Build, algo: str) -> bool:
    """The batch has further time lines, in which the demonstrated action has probability 1."""
    loop: Any = build(toy(algo))
    for updates in range(1, 20):
        train(loop, updates)
        if loop.batch["weight"].shape[1] > 2:
            return not loop.batch["log_prob"][:, 2:].any()
    return False


def is_a_swarm(build: Build, algo: str) -> bool:
    """Policies with equal gradients diverge, because they repel each other."""
    loop: Any = build(toy(algo))
    if not hasattr(loop.agent, "particles"):
        return False
    optims = [particle.optim.optim for particle in loop.agent.particles]
    apart = (optims[0].flat - optims[1].flat).norm()
    for particle in loop.agent.particles:
        particle.optim.count.fill_(1.0)
    loop.agent.move()
    return bool((optims[0].flat - optims[1].flat).norm() > apart)


def differences(build: Build, algo: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns first and second differences of the actions of a trajectory that goes on, from a random one on."""
    agent: Any = build(toy(algo, **{"algo.advantage_clip": [-1e9, -1e9]})).agent
    tau = 0.01 * torch.rand(2, agent.trajectory.size, generator=torch.Generator().manual_seed(0))
    carry = {"first": torch.zeros(2, dtype=torch.bool), "carry.trajectory": tau}
    actions = []
    for _ in range(4):
        action, extras = agent.act(torch.zeros(2, 3), carry, False)
        carry = carry | {"carry.trajectory": extras["carry.trajectory"]}
        actions.append(action)
    first = torch.stack(actions).diff(dim=0)
    return first, first.diff(dim=0)


def acts_on_lines(build: Build, algo: str) -> bool:
    first, second = differences(build, algo)
    return bool((first > 1e-4).all() and (second.abs() < 1e-6).all())


def acts_on_parabolas(build: Build, algo: str) -> bool:
    _, second = differences(build, algo)
    return bool((second > 1e-4).all() and torch.allclose(second[0], second[1], atol=1e-6))


def chooses_how_long_to_act(build: Build, algo: str) -> bool:
    """A step of the agent is up to five steps of the environment, so an episode has fewer of them."""
    (job,) = jobs([f"algo={algo}", "env=Pendulum", "algo.loop.warmup_steps=400", "env.num_envs=1"])
    loop: Any = build(job.values)
    for _ in range(300):
        loop.tick()
    return any(episode.length < 200 for episode in loop.metrics.episodes)


def explores_beside_its_policy(build: Build, algo: str) -> bool:
    """The actions of exploration lie several standard deviations from the mean of the policy, on one side."""
    agent: Any = agent_of(build, algo, "Pendulum")
    obs = torch.zeros(ROWS, 3)
    action, _ = agent.act(obs, {}, explore=True)
    dist = agent.actor(obs)
    distance = (torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6)) - dist.mean) / dist.log_std.exp()
    return bool(distance.mean().abs() > 2)


def acts_by_the_last_action(build: Build, algo: str) -> bool:
    agent: Any = build(toy(algo)).agent
    carry = {"first": torch.zeros(2, dtype=torch.bool), "carry.action": torch.tensor([[-0.9], [0.9]])}
    action, _ = agent.act(torch.zeros(2, 3), carry, False)
    return not torch.equal(action[0], action[1])


def rollout(loop: Any) -> Batch:
    """Returns two time lines of random observations without rewards."""
    draw = torch.Generator().manual_seed(0)
    batch: Batch = loop.collect_rollout()
    obs = {key: torch.randn(batch[key].shape, generator=draw) for key in ("obs", "next_obs")}
    return batch | obs | {"reward": torch.zeros_like(batch["reward"])}


PROOFS: list[tuple[str, str, Proof]] = [
    *OF_POLICIES,
    ("ppo_rnd", "ppo", rewards_new_observations),
    ("ppo_icm", "ppo", rewards_new_observations),
    ("ppo_icm", "ppo_rnd", predicts_the_action),
    ("ppo_demos", "ppo", learns_from_what_it_was_shown),
    ("svpg", "a2c", is_a_swarm),
    ("double_dqn", "dqn", does_not_overestimate),
    ("dueling_dqn", "double_dqn", one_action_teaches_the_others),
    ("noisy_dqn", "dqn", crosses_a_blind_cliff),
    ("prioritized_dqn", "double_dqn", returns_to_the_rare_row),
    ("c51", "dqn", learns_the_return_distribution),
    ("qr_dqn", "dqn", predicts_quantiles),
    ("qr_dqn", "c51", predicts_quantiles),
    ("r2d2", "dqn", looks_several_steps_ahead),
    ("rainbow", "c51", one_action_teaches_the_others),
    ("rainbow", "c51", crosses_a_blind_cliff),
    ("rainbow", "c51", returns_to_the_rare_row),
    ("rainbow", "c51", looks_several_steps_ahead),
    ("rainbow", "dqn", learns_the_return_distribution),
    ("td3", "ddpg", takes_the_minimum_of_two_critics),
    ("ddpg", "td3", explores_in_swings),
    ("discrete_sac", "sac", expects_over_every_action),
    ("redq", "sac", samples_two_critics_per_target),
    ("kl_sac", "sac", acts_by_the_last_action),
    ("oac", "sac", explores_beside_its_policy),
    ("sac_hold", "sac", chooses_how_long_to_act),
    ("taac_l", "taac", acts_on_lines),
    ("taac_q", "taac", acts_on_parabolas),
    ("qr_sac", "sac", learns_quantiles_of_the_return),
    ("tqc", "sac", drops_the_highest_quantiles),
]


@pytest.mark.parametrize(("algo", "parent", "proof"), PROOFS, ids=lambda part: getattr(part, "__name__", part))
def test_variant_differs_from_its_parent(algo: str, parent: str, proof: Proof, build: Build) -> None:
    assert proof(build, algo)
    assert not proof(build, parent)


def parents(algo: str) -> set[str]:
    """Returns the names on which the YAML of an algorithm builds."""
    defaults = content(CONF / "algo" / f"{algo}.yaml").get("defaults", [])
    return {entry for entry in defaults if entry in ALGOS}


@cache
def home(root: str) -> str:
    """Returns the name of an agent's module."""
    name = jobs([f"algo={root}", "env=CartPole", "preset=none"])[0].values["algo"]["name"]
    return registry.lookup("algo", name).__module__


def roots(algo: str) -> set[str]:
    """Returns the names without parents on which the YAML of an algorithm builds, directly or indirectly."""
    return {root for parent in parents(algo) for root in roots(parent)} or {algo}


def test_deep_variants_all_have_a_proof() -> None:
    derived = [algo for algo in ALGOS if parents(algo)]
    deep = [algo for algo in derived for root in roots(algo) if home(root).startswith(FAMILIES)]
    names = {(algo, parent) for algo in deep for parent in parents(algo)}
    assert {("redq", "sac"), ("ppo", "a2c"), ("rainbow", "dqn")} <= names
    assert not names - {(algo, parent) for algo, parent, _ in PROOFS}
