"""The part `algo.noise`: its numbers, and how it enters the actions and log-probabilities of every continuous agent."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from toys import put, toy, train

from rlrun.agents.noise.action_noise import ActionNoise
from rlrun.agents.noise.gaussian import GaussianNoise
from rlrun.agents.noise.ou import OrnsteinUhlenbeck
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Normal
from rlrun.testing import check_resuming
from rlrun.types import Batch, Spec

Build = Callable[..., Loop]

GAUSSIAN = {"mean": 0.2, "std": 0.4, "random_action": 0.0}
OU = {"mean": 0.2, "std": 0.3, "theta": 0.5, "dt": 0.8, "initial": -0.4, "random_action": 0.0}
ON_POLICY = ["a2c", "vpg", "ppo", "ppo_lstm", "ppo_demos", "vtrace"]
OFF_POLICY = ["td3", "sac", "recurrent_sac", "crossq"]
ROWS = 4000


def gaussian(dims: int = 1, **numbers: Any) -> GaussianNoise:
    return GaussianNoise(GaussianNoise.Config(**GAUSSIAN | numbers), spec(dims))


def ou(dims: int = 1, **numbers: Any) -> OrnsteinUhlenbeck:
    return OrnsteinUhlenbeck(OrnsteinUhlenbeck.Config(**OU | numbers), spec(dims))


def spec(dims: int) -> Spec:
    return Spec(Box(-1, 1, (3,)), Box(-1, 1, (dims,)), ROWS)


def on_pendulum(algo: str, **changes: Any) -> Any:
    """Returns the toy of an algorithm with Pendulum as its environment."""
    env = jobs([f"algo={algo}", "env=Pendulum", "preset=none"])[0].values["env"]
    return put(put(toy(algo), {"env": env}), {"env.num_envs": 2, "env.max_episode_steps": 6} | changes)


def first(rows: int = ROWS) -> Batch:
    return {"first": torch.ones(rows, dtype=torch.bool)}


def later(extras: Batch) -> Batch:
    return extras | {"first": torch.zeros(len(extras["carry.noise"]), dtype=torch.bool)}


def test_gaussian_noise_has_its_mean_and_standard_deviation_in_every_dimension() -> None:
    noise = gaussian(2, mean=[0.1, -0.2], std=[0.05, 0.1])
    action, extras = noise.add(torch.zeros(ROWS, 2), first(), Stream(0, "noise"))
    assert action.mean(0).tolist() == pytest.approx([0.1, -0.2], abs=0.01)
    assert action.std(0).tolist() == pytest.approx([0.05, 0.1], rel=0.05)
    assert extras == {}


@pytest.mark.parametrize("noise", [gaussian(std=1.0), ou(std=1.0)])
def test_noisy_actions_are_clipped_to_the_bounds(noise: ActionNoise) -> None:
    action, _ = noise.add(torch.full((ROWS, 1), 0.5), first(), Stream(0, "noise"))
    assert action.min() == -1 and action.max() == 1


def test_ou_noise_follows_its_recurrence_and_restarts_with_every_episode() -> None:
    """x' = x + theta (mean - x) dt + std sqrt(dt) eps by hand; the second environment starts an episode at step 2."""
    noise = ou(2, mean=[0.2, 0.0], std=[0.3, 0.1], initial=[-0.4, 0.1])
    stream, twin = Stream(3, "noise"), Stream(3, "noise")
    mean, std, start = torch.tensor([[0.2, 0.0], [0.3, 0.1], [-0.4, 0.1]])
    x, carry = start.repeat(2, 1), first(2)
    for step in range(4):
        if step == 2:
            carry["first"] = torch.tensor([False, True])
            x[1] = start
        x = x + 0.5 * (mean - x) * 0.8 + std * 0.8**0.5 * twin.normal(2, 2)
        _, extras = noise.add(torch.zeros(2, 2), carry, stream)
        torch.testing.assert_close(extras["carry.noise"], x)
        carry = later(extras)


def test_ou_noise_is_stationary_with_the_variance_of_the_process() -> None:
    """Standard deviation std / sqrt(2 theta) for a small dt; correlation 1 - theta dt between steps."""
    noise = ou(mean=0.1, std=0.1, theta=2.0, dt=0.05, initial=0.1)
    stream, carry, walk = Stream(0, "noise"), first(), []
    for _ in range(60):
        _, extras = noise.add(torch.zeros(ROWS, 1), carry, stream)
        walk.append(extras["carry.noise"].flatten())
        carry = later(extras)
    assert walk[-1].mean().item() == pytest.approx(0.1, abs=0.005)
    assert walk[-1].std().item() == pytest.approx(0.1 / 4**0.5, rel=0.06)
    assert torch.corrcoef(torch.stack(walk[-2:]))[0, 1].item() == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("noise", [gaussian(), ou()], ids=["gaussian", "ou"])
def test_log_probability_is_that_of_the_policy_plus_noise(noise: ActionNoise) -> None:
    """Given the walk so far, the sum is Gaussian. Its sample has mean and variance of the reported density."""
    mean, std = torch.linspace(-1, 1, ROWS).unsqueeze(-1), 0.3
    dist = Normal(mean, torch.full_like(mean, std).log())
    stream, carry = Stream(0, "noise"), first()
    expected, variance = 0.2, 0.4**2
    walk = torch.full((ROWS, 1), -0.4)
    for _ in range(3):
        if isinstance(noise, OrnsteinUhlenbeck):
            expected = walk + 0.5 * (0.2 - walk) * 0.8
            variance = 0.3**2 * 0.8
        action, log_prob, extras = noise.sample(dist, carry, stream)
        wide = (std**2 + variance) ** 0.5
        z = (action - mean - expected) / wide
        assert z.mean().item() == pytest.approx(0, abs=0.06) and z.std().item() == pytest.approx(1, rel=0.05)
        theirs = torch.distributions.Normal(mean + expected, wide).log_prob(action).sum(-1)
        torch.testing.assert_close(log_prob, theirs)
        if extras:
            walk, carry = extras["carry.noise"], later(extras)
            own = action - mean - walk
            assert own.std().item() == pytest.approx(std, rel=0.05), "what is left is the sample of the policy"
            assert abs(torch.corrcoef(torch.cat([own, walk], 1).T)[0, 1].item()) < 0.05


@pytest.mark.parametrize("noise", [gaussian(2, random_action=0.3), ou(2, random_action=0.3)], ids=["gaussian", "ou"])
def test_random_actions_are_uniform_and_replace_whole_actions(noise: ActionNoise) -> None:
    """Noise moves an action of -1 by at most 2 standard deviations here, so actions above 0.8 are uniform ones."""
    policy = torch.full((ROWS, 2), -1.0)
    action, extras = noise.add(policy, first(), Stream(0, "noise"))
    _, walk = noise.noisy(policy, first(), Stream(0, "noise"))
    assert extras.keys() == walk.keys()
    assert all(torch.equal(extras[name], walk[name]) for name in extras), "random actions leave the walk as it is"
    high = action > 0.8
    assert high.float().mean(0).tolist() == pytest.approx([0.3 * 0.1] * 2, abs=0.01)
    for one, other in ((0, 1), (1, 0)):
        assert action[high[:, one], other].mean() > -0.2, "where one dimension is uniform, the other one is too"


def test_log_probability_is_that_of_the_mixture_with_random_actions() -> None:
    """By Monte Carlo: the density of the actions in a bin is the mean of the reported density in this bin."""
    noise = gaussian(random_action=0.4, mean=0.0, std=0.1)
    mean = torch.zeros(20 * ROWS, 1)
    dist = Normal(mean, torch.full_like(mean, 0.2).log())
    action, log_prob, _ = noise.sample(dist, first(len(mean)), Stream(0, "noise"))
    for low in (-0.9, -0.1, 0.3, 0.8):
        inside = (action[:, 0] >= low) & (action[:, 0] < low + 0.1)
        counted = inside.float().mean().item() / 0.1
        assert log_prob[inside].exp().mean().item() == pytest.approx(counted, rel=0.1)
    outside = torch.tensor([[1.5]])
    near = Normal(torch.ones(1, 1), torch.zeros(1, 1))
    assert noise.log_prob(near, outside).item() == pytest.approx(math.log(0.6) + near.log_prob(outside).item())
    always = gaussian(random_action=1.0)
    assert always.log_prob(near, torch.tensor([[0.5]])).item() == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("algo", ["td3", "sac", "crossq", "a2c", "ppo"])
def test_agents_learn_from_random_actions_and_evaluate_without(algo: str, build: Build) -> None:
    loop: Any = build(on_pendulum(algo, **{"algo.noise": {"name": "none", "random_action": 1.0}}))
    obs = torch.zeros(ROWS, 3)
    action, extras = loop.agent.act(obs, first(), True)
    assert action.min() < -0.98 and action.max() > 0.98
    assert action.mean().item() == pytest.approx(0, abs=0.05)
    if "log_prob" in extras:
        torch.testing.assert_close(extras["log_prob"], torch.full((ROWS,), math.log(0.5)))
    greedy, _ = loop.agent.act(obs, first(), False)
    assert (greedy == greedy[0]).all()
    train(loop, 2)


@pytest.mark.parametrize("algo", OFF_POLICY)
def test_off_policy_agents_add_noise_only_when_they_explore(algo: str, build: Build) -> None:
    loop: Any = build(on_pendulum(algo, **{"algo.noise": {"name": "ou", **OU}}))
    plain: Any = build(on_pendulum(algo, **{"algo.noise": {"name": "none", "random_action": 0.0}}))
    both = [each.addons.act(each.agent, loop.obs, loop.carry, True) for each in (loop, plain)]
    torch.testing.assert_close(both[0][0], (both[1][0] + both[0][1]["carry.noise"]).clamp(-1, 1))
    both = [each.addons.act(each.agent, loop.obs, loop.carry, False) for each in (loop, plain)]
    assert torch.equal(both[0][0], both[1][0])
    train(loop, 2)


@pytest.mark.parametrize("algo", ON_POLICY)
def test_on_policy_agents_learn_with_ou_noise(algo: str, build: Build) -> None:
    """The rollout holds the density of the executed actions around the policy's mean and the walk's expectation."""
    loop: Any = train(build(on_pendulum(algo, **{"algo.noise": {"name": "ou", **OU}})), 2)
    if algo == "ppo_lstm":  # the rest needs recurrent states
        return
    agent = getattr(loop.agent, "learner", loop.agent)
    rollout = loop.collect_rollout()
    with torch.no_grad():
        dist = agent.policy(rollout["obs"].flatten(0, 1))
    walk = rollout["carry.noise"]
    previous = torch.cat([torch.full_like(walk[:1], torch.nan), walk[:-1]])
    previous = torch.where(rollout["first"].unsqueeze(-1), -0.4, previous).flatten(0, 1)
    known = ~previous.isnan().squeeze(-1) & (rollout["weight"].flatten() > 0)
    assert known.sum() > 4
    wide = (dist.log_std.exp() ** 2 + 0.3**2 * 0.8) ** 0.5
    reference = torch.distributions.Normal(dist.mean + previous + 0.4 * (0.2 - previous), wide, validate_args=False)
    exact = reference.log_prob(rollout["action"].flatten(0, 1)).sum(-1)
    torch.testing.assert_close(rollout["log_prob"].flatten()[known], exact[known])


def test_particles_of_svpg_carry_their_own_walks(build: Build) -> None:
    section = toy("svpg")["algo"]["particle"] | {"noise": {"name": "ou", **OU}}
    loop: Any = train(build(on_pendulum("svpg", **{"env.num_envs": 4, "algo.particle": section})), 2)
    assert loop.carry["carry.noise"].shape == (4, 1)


@pytest.mark.parametrize("algo", ["a2c", "sac"])
def test_a_walk_is_resumed_in_the_middle_of_an_episode(algo: str, build: Build) -> None:
    values = on_pendulum(algo, **{"algo.noise": {"name": "ou", **OU}, "env.max_episode_steps": 7})
    loop = train(build(values), 1)
    for _ in range(5):
        loop.tick()
    assert not loop.carry["first"].any()
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize(
    ("algo", "noise", "line"),
    [
        ("a2c", {"name": "gaussian", **GAUSSIAN}, r"algo.noise=gaussian: needs Box actions; .*Discrete\(2\)"),
        ("discrete_sac", {"name": "ou", **OU}, "algo.noise=ou: needs Box actions"),
        ("td3", {"name": "ou", **OU, "theta": 2.0}, "algo.noise.theta=2.0: must be at most 1 / dt, which is 1.25"),
        ("td3", {"name": "gaussian", **GAUSSIAN, "std": [0.1, 0.2]}, "must be one number, or a list of 1, one for"),
        ("td3", {"name": "gaussian", **GAUSSIAN, "std": [-0.1]}, "algo.noise.std=.*: must be at least 0"),
        (
            "discrete_sac",
            {"name": "none", "random_action": 0.1},
            r"algo.noise.random_action=0.1: needs Box actions with finite bounds; this environment has Discrete\(2\)",
        ),
    ],
)
def test_impossible_noise_is_refused_in_one_line(algo: str, noise: Batch, line: str, build: Build) -> None:
    with pytest.raises(ConfigError, match=line) as error:
        build(put(toy(algo), {"algo.noise": noise}))
    assert len(error.value.faults) == 1


def test_noise_is_chosen_by_name_with_one_number_or_one_for_each_dimension() -> None:
    words = ["algo=ppo", "env=HalfCheetah", "preset=none", "algo.noise=gaussian", "algo.noise.std=[1,2,0.5,1,1,1]"]
    assert jobs(words)[0].values["algo"]["noise"] == {
        "name": "gaussian",
        "mean": 0.0,
        "std": [1, 2, 0.5, 1, 1, 1],
        "random_action": 0.0,
    }
    with pytest.raises(ConfigError, match=r"algo\.noise\.std=.*: must be a number, like 0\.1"):
        jobs([*words[:4], "algo.noise.std=[1,high]"])
