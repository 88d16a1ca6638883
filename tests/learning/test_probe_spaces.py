"""With every kind of observation and action, agents observe the bit and find the right action."""

from collections.abc import Callable

import pytest
from probe_spaces import ACTIONS, OBSERVATIONS
from toys import Values, put, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.run.evaluation import evaluate

Build = Callable[..., Loop]

# Settings with which the probe is learned in a second, and how often the agent learns.
LEARNERS: dict[str, tuple[Values, int]] = {
    "ppo": (
        {
            "algo.learning_rate": 0.005, "algo.epochs": 4, "algo.minibatch_size": 32, "algo.loop.rollout_steps": 16,
            "env.num_envs": 4, "trainer.total_steps": 100_000,
        },
        30,
    ),
    "dqn": (
        {
            "algo.learning_rate": 0.01, "algo.tau": 1.0, "algo.target_every": 10,
            "algo.epsilon.end_step": 800, "algo.epsilon.end": 0.3,
            "algo.buffer.capacity": 1000, "algo.loop.warmup_steps": 64, "algo.loop.updates_per_step": 1.0,
            "env.num_envs": 2, "trainer.total_steps": 800,
        },
        100,
    ),
    "sac_composite": (
        {
            "algo.actor_learning_rate": 0.01, "algo.critic_learning_rate": 0.01, "algo.tau": 0.1,
            "algo.loop.warmup_steps": 64, "algo.loop.updates_per_step": 1.0, "algo.loop.batch_size": 32,
            "env.num_envs": 2, "trainer.total_steps": 800,
        },
        250,
    ),
}  # fmt: skip
LEARNERS["ppo_composite"] = LEARNERS["ppo"]

# Random actions return 0.33 for Discrete, less than 0.5 on the way to the others. Half of `tuple` is a Box.
ENOUGH = {"box": 0.8, "unbounded_box": 0.8, "tuple": 0.9}


def learned(build: Build, algo: str, share: float = 1.0, **spaces: str) -> float:
    """Returns the return of the greedy policy; the probe raises if it receives a forbidden action.

    share: of the updates; half of them suffice where the action is plain.
    """
    changes, updates = LEARNERS[algo]
    values = jobs([f"algo={algo}", "env=rlrun/ProbeSpaces-v0", "preset=none"])[0].values
    loop = train(build(put(values, changes | {"network.hidden": [16], "env.kwargs": spaces})), int(share * updates))
    return evaluate(loop.agent, loop.addons, loop.env, 100)["eval/return_mean"]


# What the network sees does not depend on the algorithm, but rollouts store observations in another way than replay.
@pytest.mark.parametrize(
    ("algo", "observation"),
    [("dqn", observation) for observation in OBSERVATIONS]
    + [
        pytest.param("ppo", observation, marks=[] if observation in ("discrete", "dict") else pytest.mark.full)
        for observation in OBSERVATIONS
    ],
)
def test_every_observation_is_understood(algo: str, observation: str, build: Build) -> None:
    assert learned(build, algo, share=0.5, observation=observation) >= 0.95


@pytest.mark.parametrize(("algo", "action"), [("ppo_composite", "discrete"), ("sac_composite", "box")])
def test_parts_that_go_together_do_not_stand_in_the_way(algo: str, action: str, build: Build) -> None:
    assert learned(build, algo, action=action) >= ENOUGH.get(action, 0.95)


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_found(action: str, build: Build) -> None:
    assert learned(build, "ppo", action=action) >= ENOUGH.get(action, 0.95)


@pytest.mark.parametrize(
    ("algo", "action", "masks"),
    [
        ("ppo", "discrete", "info"), ("ppo", "discrete", "obs"), ("ppo", "multi_discrete", "info"),
        ("ppo", "multi_discrete", "obs"), ("ppo", "multi_binary", "info"),
        ("dqn", "discrete", "info"), ("dqn", "discrete", "obs"),
    ],
)  # fmt: skip
def test_masked_actions_are_never_sent(algo: str, action: str, masks: str, build: Build) -> None:
    assert learned(build, algo, share=0.5, action=action, masks=masks) >= 0.95
