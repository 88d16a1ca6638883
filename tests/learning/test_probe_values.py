"""Every agent finds the values and the best actions of small environments in which both are known."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from toys import Values, put, train

from rlrun.config.jobs import jobs
from rlrun.core.agent import Agent
from rlrun.core.loop import Loop

Build = Callable[..., Loop]

GAMMA = 0.5

OFF_POLICY: Values = {
    "algo.gamma": GAMMA, "algo.loop.warmup_steps": 64, "algo.loop.updates_per_step": 1.0, "algo.loop.batch_size": 32,
    "network.hidden": [16], "env.num_envs": 2, "trainer.total_steps": 800,
}  # fmt: skip

VALUE_BASED: Values = OFF_POLICY | {
    "algo.learning_rate": 0.01, "algo.tau": 1.0, "algo.target_every": 10, "algo.epsilon.end_step": 800,
    "algo.epsilon.start": 1.0, "algo.epsilon.end": 0.5, "algo.n_step": 1,
}  # fmt: skip
CATEGORICAL: Values = {"algo.critic.v_min": -1.5, "algo.critic.v_max": 2.5, "algo.critic.num_atoms": 33}

ACTOR_CRITIC: Values = OFF_POLICY | {
    "algo.actor_learning_rate": 0.01, "algo.critic_learning_rate": 0.01, "algo.tau": 0.1, "network.hidden": [32],
}  # fmt: skip
MODEL: Values = {
    "algo.gamma": GAMMA, "algo.loop.warmup_steps": 64, "algo.loop.batch_size": 32, "algo.learning_rate": 0.01,
    "algo.target_every": 10, "algo.unroll_steps": 2, "algo.td_steps": 2, "algo.latent_size": 16, "algo.support": 4,
    "algo.search.num_simulations": 8, "algo.weight_decay": 0.0, "network.hidden": [16], "env.num_envs": 4,
    "trainer.total_steps": 1000,
}  # fmt: skip
SOFT: Values = {"algo.entropy.initial_alpha": 0.03, "algo.entropy.learning_rate": 0.0}

# Settings with which a probe is learned in a second, and how often the agent learns.
LEARNERS: dict[str, tuple[Values, int]] = {
    "ppo": (
        {
            "algo.gamma": GAMMA, "algo.learning_rate": 0.01, "algo.epochs": 4, "algo.minibatch_size": 32,
            "algo.loop.rollout_steps": 32, "network.hidden": [16], "env.num_envs": 4, "trainer.total_steps": 100_000,
        },
        10,
    ),
    "dqn": (VALUE_BASED, 150),
    "c51": (VALUE_BASED | CATEGORICAL, 150),
    "qr_dqn": (VALUE_BASED | {"algo.critic.num_quantiles": 8}, 150),
    "rainbow": (VALUE_BASED | CATEGORICAL, 200),
    "sac": (ACTOR_CRITIC | SOFT, 200),
    "discrete_sac": (ACTOR_CRITIC | SOFT, 200),
    "td3": (ACTOR_CRITIC, 200),
    "cem": (
        {
            "algo.population": 32, "algo.elite_fraction": 0.2, "algo.extra_std": 0.5, "algo.extra_decay_time": 10,
            "algo.loop.episodes": 4, "env.num_envs": 32,
        },
        12,
    ),
    "cma_es": ({"algo.population": 32, "algo.loop.episodes": 4, "env.num_envs": 32}, 12),
    "openai_es": ({"algo.learning_rate": 0.2, "algo.std": 0.3, "algo.loop.episodes": 4, "env.num_envs": 64}, 60),
    "muzero": (MODEL, 150),
    "gumbel_muzero": (MODEL, 200),
}  # fmt: skip

CRITICS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "ppo": lambda agent, obs: agent.critic.network(obs),
    **dict.fromkeys(("dqn", "c51", "qr_dqn", "rainbow"), lambda agent, obs: agent.values(obs).amax(-1)),
    "sac": lambda agent, obs: agent.critic(obs, agent.actor(obs).mode()).mean(0),
    "discrete_sac": lambda agent, obs: agent.critic(obs).mean(0).amax(-1),
    "td3": lambda agent, obs: agent.critic(obs, agent.actor(obs)).mean(0),
    "muzero": lambda agent, obs: agent.model(obs),
}
CONTINUOUS = ("sac", "td3")

# State -> value.
KNOWN = {
    "ProbeConstant": {0.0: 1.0},
    "ProbeObservation": {-1.0: -1.0, 1.0: 1.0},
    "ProbeDiscount": {0.0: GAMMA, 1.0: 1.0},
    "TerminationTrap": {0.0: 1.0},
    "TruncationTrap": {0.0: GAMMA / (1 - GAMMA), 1.0: 1 / (1 - GAMMA)},
}


def learned(build: Build, algo: str, probe: str, continuous: bool) -> Agent:
    changes, updates = LEARNERS[algo]
    values = jobs([f"algo={algo}", f"env=rlrun/{probe}-v0", "preset=none"])[0].values
    return train(build(put(values, changes | {"env.kwargs": {"continuous": continuous}})), updates).agent


# TruncationTrap has two states with different values, of which one is discounted, and so has what the probes before
# TerminationTrap are about. It does not say which of them fails; one agent of each loop and action space does.
TRAPS = ("TerminationTrap", "TruncationTrap")
PLAIN = ("ppo", "dqn", "sac")


def marks(algo: str, probe: str) -> list[pytest.MarkDecorator]:
    if probe in TRAPS or (algo in PLAIN and probe != "ProbeConstant"):
        return []
    return [pytest.mark.full]


@pytest.mark.parametrize(
    ("algo", "probe"),
    [pytest.param(algo, probe, marks=marks(algo, probe)) for algo in CRITICS for probe in KNOWN],
)
def test_critics_find_the_known_values(algo: str, probe: str, build: Build) -> None:
    agent = learned(build, algo, probe, continuous=algo in CONTINUOUS)
    states = torch.tensor([[state] for state in KNOWN[probe]])
    with torch.no_grad():
        values = CRITICS[algo](agent, states)
    assert values.tolist() == pytest.approx([*KNOWN[probe].values()], abs=0.1)


@pytest.mark.parametrize(
    ("algo", "continuous"),
    [(algo, algo in CONTINUOUS) for algo in LEARNERS]
    + [("ppo", True), ("cem", True)]
    # how a member acts does not depend on how the next members are drawn
    + [pytest.param(algo, True, marks=pytest.mark.full) for algo in ("cma_es", "openai_es")],
)
@pytest.mark.parametrize(
    ("probe", "discrete_actions", "continuous_actions"),
    [
        pytest.param("ProbeAction", {0.0: 1}, {0.0: 0.5}, marks=pytest.mark.full),
        ("ProbeObservationAction", {-1.0: 0, 1.0: 1}, {-1.0: -0.5, 1.0: 0.5}),
    ],
    ids=["action", "observation and action"],
)
def test_policies_find_the_best_actions(
    algo: str, continuous: bool, probe: str, discrete_actions: Any, continuous_actions: Any, build: Build
) -> None:
    agent = learned(build, algo, probe, continuous)
    best = continuous_actions if continuous else discrete_actions
    states = torch.tensor([[state] for state in best])
    carry = {"first": torch.ones(len(states), dtype=torch.bool)}
    actions, _ = agent.act(states, carry, explore=False)
    assert actions.flatten().tolist() == pytest.approx([*best.values()], abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ddpg_finds_the_gain_of_riccatis_equation(seed: int, build: Build) -> None:
    """A critic of straight pieces is best at its kinks, up to 10 % off; this one is smooth, and leads the actor."""
    changes: Values = {
        "algo.gamma": 0.9, "algo.tau": 0.05, "algo.actor_learning_rate": 1e-3, "algo.critic_learning_rate": 1e-2,
        "algo.schedule": {f"{name}_learning_rate": {"linear": {"end": 0.0}} for name in ("actor", "critic")},
        "algo.loop.warmup_steps": 200, "algo.loop.batch_size": 64,
        "network.hidden": [64, 64], "network.activation": "silu", "env.num_envs": 2,
        "env.kwargs": {"continuous": True}, "trainer.total_steps": 5200, "seed": seed,
    }  # fmt: skip
    values = jobs(["algo=ddpg", "env=rlrun/ProbeRegulator-v0", "preset=none"])[0].values
    agent: Any = train(build(put(values, changes)), 5000).agent
    cost = 1.0  # discounted, from s = 1, without an end
    for _ in range(200):
        gain = 0.9 * cost / (1 + 0.9 * cost)
        cost = 1 + gain**2 + 0.9 * cost * (1 - gain) ** 2
    state = torch.linspace(-1, 1, 41).unsqueeze(1)
    with torch.no_grad():
        action = agent.actor(state)
    found = -float((state * action).sum() / (state * state).sum())
    print(f"{found:.4f} of {gain:.4f}")
    assert found == pytest.approx(gain, rel=0.05)
    assert action.flatten().tolist() == pytest.approx((-gain * state).flatten().tolist(), abs=0.05)
