"""Runs with hindsight replay: every off-policy algorithm learns from it, and a resume is exact."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import yaml
from toys import ALGOS, Values, optims, put, recorded, small, train

from rlrun.buffers.hindsight import Hindsight
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.config.sources import CONF
from rlrun.core.loop import Loop
from rlrun.dotted import leaves
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_loop
from rlrun.testing import check_resuming

Build = Callable[..., Loop]
# the first ones of each kind are tested by default, the others are marked `slow`
DISCRETE = ["rainbow", "discrete_sac", "r2d2", "c51", "dqn", "double_dqn", "dueling_dqn", "noisy_dqn",
            "prioritized_dqn", "qr_dqn", "soft_q", "bootstrap_bandit", "neural_greedy", "neural_linear",
            "parameter_noise_bandit", "variational_bandit"]  # fmt: skip
CONTINUOUS = ["sac", "td3", "recurrent_sac", "taac", "kl_sac", "continuous_sarsa", "crossq", "ddpg", "diayn", "mdq",
              "oac", "qr_sac", "redq", "sac_composite", "taac_l", "taac_q", "tqc"]  # fmt: skip
LEARNERS = [
    *[pytest.param(algo, "BitFlip", marks=[pytest.mark.slow] * (algo in DISCRETE[3:])) for algo in DISCRETE],
    *[pytest.param(algo, "PointReach", marks=[pytest.mark.slow] * (algo in CONTINUOUS[5:])) for algo in CONTINUOUS],
]
FROM_DATA = {"bc", "causal_bc", "iql", "sac_from_data"}
# searched policies, held actions, reward vectors, observations that are one vector
REFUSED = {"muzero", "gumbel_muzero", "sac_hold", "sac_lagrangian", "mbrl", "latent_mbrl"}
ON_POLICY = {"ppo_demos"}  # its buffer holds demonstrations


def composed(algo: str, env: str, *words: str) -> Values:
    """Returns values of a small run, composed as a user types them on the command line."""
    values = jobs([f"algo={algo}", f"env={env}", "preset=none", *words])[0].values
    return put(values, small(dict(leaves(values))) | {"algo.buffer.capacity": 64})


@pytest.mark.parametrize(("algo", "env"), LEARNERS)
def test_every_off_policy_algorithm_learns_with_hindsight(algo: str, env: str, build: Build) -> None:
    buffer = "prioritized_hindsight" if algo in ("rainbow", "r2d2") else "hindsight"
    loop: Any = train(build(composed(algo, env, f"algo.buffer={buffer}")), 3)
    assert isinstance(loop.buffer, Hindsight) and loop.buffer.registered == buffer
    assert not any(optim.fault for _, optim in optims(loop))


def test_every_algorithm_with_replay_is_tested_with_hindsight() -> None:
    with_replay = {algo for algo in ALGOS if has_replay(algo)}
    assert with_replay == {*DISCRETE, *CONTINUOUS} | FROM_DATA | REFUSED | ON_POLICY


def has_replay(algo: str) -> bool:
    """Returns whether the YAML of an algorithm, or one that it inherits from, has the part `algo.buffer`."""
    defaults = yaml.safe_load((CONF / "algo" / f"{algo}.yaml").read_text())["defaults"]
    own = any("buffer@algo.buffer" in line for line in defaults if isinstance(line, dict))
    return own or any(has_replay(line) for line in defaults if line != "_self_" and isinstance(line, str))


@pytest.mark.parametrize("words", [
    ("iql", "PointReach", "algo.loop=offline"),
    ("iql", "PointReach", "algo.loop=offpolicy", "algo.loop.warmup_steps=8", "algo.loop.updates_per_step=1"),
    ("sac_from_data", "PointReach"),
])  # fmt: skip
def test_hindsight_learns_from_data_sets(words: tuple[str, ...], build: Build) -> None:
    values = composed(*words, "algo.buffer=hindsight")
    if "data" in values["algo"]["loop"]:
        values["algo"]["loop"]["data"] = recorded(json.dumps(values))
    loop: Any = train(build(values), 5)
    stored = [each for each in loop.modules() if isinstance(each, Hindsight)]
    goals = torch.cat([each.all()["obs"]["desired_goal"] for each in stored])
    is_stored = (loop.batch["obs"]["desired_goal"].unsqueeze(1) == goals).all(-1).any(1)
    assert is_stored.any() and not is_stored.all(), "some rows have goals that no stored step has"
    assert not any(optim.fault for _, optim in optims(loop))


@pytest.mark.parametrize("words", [
    ("dqn", "BitFlip", "algo.buffer=hindsight", "algo.n_step=3"),
    ("dqn", "BitFlip", "algo.buffer=prioritized_hindsight", "env.backend=async"),
    ("sac", "PointReach", "algo.buffer=hindsight", "algo.buffer.strategy=episode", "env.normalize=obs"),
])  # fmt: skip
def test_hindsight_resumes_bit_for_bit(words: tuple[str, ...], build: Build) -> None:
    values = composed(*words)
    loop = train(build(values), 60)  # more rows than the buffer holds
    assert loop.buffer.ring.first > 0
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize("lag", [0, 1])
def test_hindsight_in_workers_gives_the_same_bits(lag: int, build: Build) -> None:
    weights = []
    for backend in ("sync", "async"):
        words = ("algo.buffer=hindsight", f"env.backend={backend}", f"algo.loop.lag={lag}")
        loop = train(build(composed("dqn", "BitFlip", *words)), 5)
        weights.append(torch.cat([parameter.flatten() for parameter in loop.agent.parameters()]))
    assert torch.equal(*weights)


def test_hindsight_needs_a_goal_environment() -> None:
    for algo, env, words, message in [
        ("sac", "Pendulum", (), "algo.buffer.achieved_goal=achieved_goal: the observation .* has no such entry"),
        ("muzero", "BitFlip", (), "not supported by algorithms that store search policies"),
        ("sac_hold", "PointReach", (), "algo.buffer=hindsight is not supported with the wrapper hold"),
        ("dqn", "BitFlip", ("env.backend=native",), "env"),
    ]:
        with pytest.raises(ConfigError, match=message):
            build_loop(run_config(composed(algo, env, "algo.buffer=hindsight", *words)))


@pytest.mark.parametrize("reward", ["environment", "distance"])
def test_runs_with_rewards_by_distance_make_no_further_environment(reward: str, build: Build) -> None:
    words = ["algo.buffer=hindsight", f"algo.buffer.reward={reward}"]
    loop: Any = train(build(composed("sac", "PointReach", *words)), 2)
    assert (loop.env.goal_rewards.env is None) == (reward == "distance")
