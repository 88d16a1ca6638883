"""Proofs that pass for a variant and fail for its parent: on-policy algorithms, and the parts around agents.

Each proof is a small run from the YAML of the algorithm that learns from rollouts defined here.
"""

from collections.abc import Callable
from typing import Any

import torch
from toys import toy, train

from rlrun.core.agent import Agent
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.types import Batch, Context

Build = Callable[..., Loop]
Proof = Callable[[Build, str], bool]


def agent_of(build: Build, algo: str, **changes: Any) -> Any:
    return build(toy(algo, **{"algo.advantage.normalize": "none"} | changes)).agent


def rollout(action: torch.Tensor, reward: torch.Tensor, probability: float = 0.5) -> Batch:
    """Returns one-step episodes [rows, 1] with equal observations. probability: of the actions when they were taken."""
    yes, obs = torch.ones(len(action), 1, dtype=torch.bool), torch.ones(len(action), 1, 4)
    return {
        "obs": obs, "next_obs": obs, "action": action.view(-1, 1), "reward": reward.float().view(-1, 1),
        "log_prob": torch.full((len(action), 1), probability).log(), "weight": torch.ones(len(action), 1),
        "terminated": yes, "truncated": ~yes, "first": yes,
    }  # fmt: skip


def learn(agent: Agent, batch: Batch, updates: int = 1) -> None:
    for i in range(updates):
        agent.update(batch, Context(i, i, 0.0))


def no_advantage(advantage: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Replaces the normalisation of advantages by 0."""
    return torch.zeros_like(advantage)


def prefers(agent: Any, action: int = 1, obs: torch.Tensor | None = None) -> float:
    """Returns the probability of an action."""
    with torch.no_grad():
        seen = torch.ones(1, 4) if obs is None else obs
        return float(agent.policy(seen).log_prob(torch.tensor([action])).exp())


def stays_near_where_it_collected(build: Build, algo: str) -> bool:
    """However many passes are made over one rollout, the better action does not become certain."""
    changes = {"algo.epochs": 200, "algo.learning_rate": 0.003, "algo.critic_update.value_coef": 0.0}
    agent = agent_of(build, algo, **changes)
    action = torch.arange(8) % 2
    learn(agent, rollout(action, 2 * action - 1))
    return 0.55 < prefers(agent) < 0.75


def clips_policy_and_critic_apart(build: Build, algo: str) -> bool:
    """The gradient clipping of the policy does not depend on the error of the critic."""
    norms = []
    for reward in (0.0, 1e4):
        agent, taken = agent_of(build, algo, **{"algo.advantage.gae_lambda": 1.0, "algo.epochs": 1}), []

        def record(grads: Any, taken: list[Any] = taken) -> Any:
            taken.append(grads)
            return grads.norm()

        agent.optim.apply = record
        batch = rollout(torch.arange(8) % 2, torch.full((8,), reward))
        agent.advantage.normalise_rollout = no_advantage
        learn(agent, batch)
        norms.append(taken[0].norm())
    return bool(norms[0] == norms[1])


def survives_a_huge_step(build: Build, algo: str) -> bool:
    """However high the learning rate is, one step hardly changes the probabilities."""
    agent = agent_of(build, algo, **{"algo.epochs": 1, "algo.minibatch_size": None, "algo.learning_rate": 10.0})
    before = prefers(agent)
    action = torch.arange(8) % 2
    learn(agent, rollout(action, 2 * action - 1))
    return 0 < prefers(agent) - before < 0.1


def stops_where_there_is_no_gradient(build: Build, algo: str) -> bool:
    """Momentum would continue to change the policy."""
    agent = agent_of(build, algo, **{"algo.entropy.ent_coef": 0.0})
    action = torch.arange(8) % 2
    learn(agent, rollout(action, 2 * action - 1))
    before = prefers(agent)
    agent.advantage.normalise_rollout = no_advantage
    learn(agent, rollout(action, torch.zeros(8)))
    return before > 0.5 and prefers(agent) == before


def goes_through_a_rollout_once(build: Build, algo: str) -> bool:
    """The composed YAML makes one pass; the runs of these tests make two passes to learn faster."""
    from rlrun.config.jobs import jobs

    return bool(jobs([f"algo={algo}", "env=CartPole", "preset=none"])[0].values["algo"]["epochs"] == 1)


def keeps_its_choices_open(build: Build, algo: str) -> bool:
    """If all rewards are 0, a policy that prefers an action loses this preference."""
    agent = agent_of(build, algo)
    with torch.no_grad():
        agent.policy.output.bias.copy_(torch.tensor([0.0, 2.0]))
    before = prefers(agent)
    agent.advantage.normalise_rollout = no_advantage
    learn(agent, rollout(torch.arange(8) % 2, torch.zeros(8)), 20)
    return prefers(agent) < before - 0.01


def values_take_small_steps(build: Build, algo: str) -> bool:
    """Returns are 10 and values less than 1: a rollout changes a value by at most the clip range, plus momentum."""
    agent = agent_of(build, algo, **{"algo.epochs": 200, "algo.learning_rate": 0.003, "algo.max_grad_norm": None})
    value = lambda: agent.critic.network(torch.ones(1, 4)).item()  # noqa: E731
    before = value()
    learn(agent, rollout(torch.arange(8) % 2, torch.full((8,), 10.0)))
    return 0.05 < value() - before < 1.0


def fits_the_critic_first(build: Build, algo: str) -> bool:
    """All rewards are 5: with a critic fitted first no advantage is left and the policy does not change."""
    many = {"algo.critic_update.epochs": 300, "algo.critic_update.learning_rate": 0.03}
    fitted_first = toy(algo)["algo"]["critic_update"]["name"] == "first"
    agent = agent_of(build, algo, **{"algo.epochs": 20}, **(many if fitted_first else {}))
    before = prefers(agent)
    learn(agent, rollout(torch.ones(8, dtype=torch.int64), torch.full((8,), 5.0)))
    return abs(prefers(agent) - before) < 0.03


def waits_for_the_end_of_episodes(build: Build, algo: str) -> bool:
    """In every environment, the batch ends with the last step of an episode."""
    loop: Any = train(build(toy(algo)), 1)
    batch = loop.batch
    over = (batch["terminated"] | batch["truncated"]) & (batch["weight"] > 0)
    return bool(over.any(0).all()) and not hasattr(loop.agent.critic, "network")


def learns_from_rollouts_that_are_old(build: Build, algo: str) -> bool:
    """Left ends with a reward of 0.4. Right leads to a state where right ends with 1, an action that the old policy
    seldom took: the first step right looks worse than left unless values are those of the current policy."""
    settings = {"algo.gamma": 1.0, "algo.entropy.ent_coef": 0.02, "algo.epochs": 1, "algo.minibatch_size": None}
    settings |= {"algo.learning_rate": 0.01}
    agent = agent_of(build, algo, **settings)
    draw = torch.Generator().manual_seed(0)
    rows, start, there = 256, torch.tensor([1.0, 0, 0, 0]), torch.tensor([0, 1.0, 0, 0])
    first = torch.rand(rows, generator=draw) < 0.5
    second = torch.rand(rows, generator=draw) < 1 / 8
    yes = torch.ones(rows, dtype=torch.bool)
    seen = torch.stack([start.expand(rows, 4), there.expand(rows, 4)])
    batch = {
        "obs": seen, "next_obs": there.expand(2, rows, 4), "action": torch.stack([first, second]).long(),
        "reward": torch.stack([0.4 * ~first, second.float()]),
        "log_prob": torch.stack([torch.full((rows,), 0.5), torch.where(second, 1 / 8, 7 / 8)]).log(),
        "weight": torch.stack([yes, first]).float(), "terminated": torch.stack([~first, yes]),
        "truncated": torch.zeros(2, rows, dtype=torch.bool), "first": torch.stack([yes, ~yes]),
    }  # fmt: skip
    learn(agent, batch, 400)
    return prefers(agent, obs=start.view(1, 4)) > 0.9


def recalls_what_it_saw(build: Build, algo: str) -> bool:
    """The output for an observation depends on the previous observation."""
    loop: Any = build(toy(algo))
    agent, addons, said = loop.agent, loop.addons, []
    now = loop.obs
    for before in (now + 1.0, now - 1.0):
        first = torch.ones(len(now), dtype=torch.bool)
        _, extras = addons.act(agent, before, {"first": first}, False)
        carry = {"first": ~first} | {key: value for key, value in extras.items() if key.startswith("carry.")}
        obs, _ = addons.see(now, carry, False)
        action = torch.zeros(len(now), *loop.env.spec.action.shape)
        said.append(opinion(agent, obs, action))
    return not torch.allclose(*said)


def opinion(agent: Any, obs: Any, action: torch.Tensor) -> torch.Tensor:
    """Returns action values, or the log-probability of an action."""
    if hasattr(agent, "values"):
        return agent.values(obs)
    policy = agent.policy if hasattr(agent, "policy") else agent.actor
    return policy(obs).log_prob(action)


def acts_on_a_learned_state_towards_a_goal(build: Build, algo: str) -> bool:
    """Observations and rewards are transformed before the agent receives them."""
    loop: Any = build(toy(algo))
    seen, extras = loop.addons.see(loop.obs, loop.carry, True)
    return "carry.goal" in extras and isinstance(seen, dict) and not torch.equal(seen.get("obs"), loop.obs)


def weighs_a_broken_limit_more(build: Build, algo: str) -> bool:
    """The weight of a reward that is always below its threshold increases."""
    try:
        loop: Any = build(toy(algo))
    except ConfigError:
        return False
    addon = next((addon for addon in loop.addons if hasattr(addon, "theta")), None)
    if addon is None:
        return False
    before = addon.theta.detach().clone()
    with torch.no_grad():
        addon.floors.copy_(torch.where(addon.limited, 1e3, 0.0))
    train(loop, 5)
    return bool((addon.theta > before)[addon.limited].all())


def learns_before_the_first_transition(build: Build, algo: str) -> bool:
    """Updates use a data set before any transition is collected."""
    loop: Any = build(toy(algo))
    loop.tick()
    return bool(loop.updates == 1 and loop.collected == 0)


def earns_nothing_from_the_environment(build: Build, algo: str) -> bool:
    """The training rewards do not depend on the rewards of the environment."""
    loop: Any = train(build(toy(algo)), 1)
    batch, learned = loop.buffer.sample(8), []
    for more in (0.0, 9.0):
        reward = batch["reward"].clone()
        reward.view(8, -1)[:, 0] += more
        learned.append(loop.addons.relabel(batch | {"reward": reward})["reward"])
    return torch.equal(*learned)


def policy_learns_what_states_are_worth(build: Build, algo: str) -> bool:
    """Where no action has an advantage, the torso of the policy still learns."""
    agent = agent_of(build, algo)
    agent.advantage.normalise_rollout = no_advantage
    before = [param.clone() for param in agent.policy.torso.parameters()]
    learn(agent, rollout(torch.arange(8) % 2, torch.ones(8)), updates=2)
    return not all(map(torch.equal, before, agent.policy.torso.parameters()))


PROOFS: list[tuple[str, str, Proof]] = [
    ("ppo", "a2c", stays_near_where_it_collected),
    ("a2c_split", "a2c", clips_policy_and_critic_apart),
    ("a2c_split", "a2c", keeps_its_choices_open),
    ("a2c_minibatch", "a2c", stops_where_there_is_no_gradient),
    ("trac", "a2c", survives_a_huge_step),
    ("ppo1", "ppo", goes_through_a_rollout_once),
    ("ppo1", "ppo", clips_policy_and_critic_apart),
    ("ppo1", "ppo", keeps_its_choices_open),
    ("ppo2", "ppo", clips_policy_and_critic_apart),
    ("ppo2", "ppo", values_take_small_steps),
    ("ppo_critic_first", "ppo", fits_the_critic_first),
    ("ppg", "ppo", policy_learns_what_states_are_worth),
    ("ppo_lstm", "ppo", recalls_what_it_saw),
    ("recurrent_sac", "sac", recalls_what_it_saw),
    ("r2d2", "dqn", recalls_what_it_saw),
    ("vpg", "a2c", waits_for_the_end_of_episodes),
    ("vtrace", "a2c", learns_from_rollouts_that_are_old),
    ("ppo_composite", "ppo", acts_on_a_learned_state_towards_a_goal),
    ("sac_composite", "sac", acts_on_a_learned_state_towards_a_goal),
    ("ppo_lagrangian", "ppo", weighs_a_broken_limit_more),
    ("sac_lagrangian", "sac", weighs_a_broken_limit_more),
    ("diayn", "sac", earns_nothing_from_the_environment),
    ("sac_from_data", "sac", learns_before_the_first_transition),
]
