"""Trust regions of on-policy agents: distances, limits, and what a pull moves back."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from toys import equal, toy, train, weights

from rlrun.agents.policy.trust_regions import PullBack
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError, RunError
from rlrun.functional.distributions import Categorical, Deterministic, Independent, Joint, Normal
from rlrun.functional.divergences import distances
from rlrun.networks.heads import GaussianPolicy, Head
from rlrun.spaces import JoinedBox, MixedSpace
from rlrun.types import Batch

Build = Callable[..., Loop]
INF = float("inf")
BOX = spaces.Box(-1, 1, (3,), np.float32)
GRIP = spaces.Box(-1, 1, (1,), np.float32)
BATCH = {"obs": torch.ones(4, 1), "weight": torch.tensor([1.0, 1.0, 0.0, 1.0])}
TIGHT = {"name": "pull_back", "limit_per_dim": 1e-6}
LOOSE = {"name": "pull_back", "limit_per_dim": 1e18}


class Constant(nn.Module):
    """A policy with the same distribution for every observation: dist(weight)."""

    def __init__(self, weight: list[float], dist: Callable[[Tensor], Any]):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.dist = dist

    def forward(self, obs: Tensor) -> Any:
        return self.dist(self.weight.expand(len(obs), -1))


def pull_back(space: Space, limit_per_dim: float = 0.01) -> PullBack:
    return PullBack(PullBack.Config(limit_per_dim=limit_per_dim), space)


def pulled(region: PullBack, policy: Constant, moved: list[float], batch: Batch = BATCH) -> dict[str, float]:
    """Sets the weights of the policy as a step would, pulls them back, and returns the metrics."""
    before = region.before(policy, batch)
    policy.weight.data.copy_(torch.tensor(moved))
    return {name.removeprefix("loss/"): value.item() for name, value in region.pull(policy, batch, before).items()}


@pytest.mark.parametrize(
    ("space", "dims"),
    [
        (spaces.Discrete(4), [4]),
        (spaces.MultiDiscrete([2, 3]), [2, 3]),
        (spaces.MultiBinary(2), [2, 2]),
        (BOX, [3]),
        (JoinedBox({"arm": BOX, "grip": GRIP}), [3, 1]),
        (MixedSpace({"a": spaces.MultiDiscrete([2, 5]), "b": BOX}), [2, 5, 3]),
        (MixedSpace({"arm": BOX, "gear": spaces.MultiDiscrete([4]), "grip": GRIP}), [4, 3, 1]),
    ],
)
def test_trust_region_limits_count_choices_and_dimensions(space: Space, dims: list[int]) -> None:
    assert pull_back(space).limits.tolist() == pytest.approx([math.sqrt(0.01 * size) for size in dims])


def test_trust_region_distance_is_the_root_of_the_mean_over_valid_steps() -> None:
    rows = [[1.0, 0.0, 0.0], [0.0, 3.0, 0.0], [50.0, 50.0, 0.0]]
    old, new = Deterministic(torch.zeros(3, 3)), Deterministic(torch.tensor(rows))
    batch = {"obs": torch.ones(3, 1), "weight": torch.tensor([1.0, 1.0, 0.0])}
    found = pull_back(BOX).distance(lambda obs: new, batch, old)  # type: ignore[arg-type]
    assert found.tolist() == pytest.approx([math.sqrt((1 + 9) / 2)])


def test_trust_region_pulls_weights_back_along_the_step() -> None:
    """A squared distance that is quadratic in the weights needs one pull, to 0.9 of the limit."""
    policy = Constant([1.0, -1.0, 0.5], Deterministic)
    metrics = pulled(pull_back(BOX), policy, [1.3, -1.0, 0.9])
    limit = math.sqrt(0.03)
    assert metrics == pytest.approx(
        {"policy_distance": 0.9 * limit, "policy_distance_before": 0.5, "pulls": 1.0}, abs=1e-6
    )
    scale = 0.9 * limit / 0.5
    assert policy.weight.tolist() == pytest.approx([1 + scale * 0.3, -1.0, 0.5 + scale * 0.4])


def test_trust_region_leaves_a_small_step_as_it_is() -> None:
    policy = Constant([0.0, 0.0], lambda logits: Categorical(logits))
    metrics = pulled(pull_back(spaces.Discrete(2)), policy, [0.1, 0.0])
    assert (metrics["pulls"], policy.weight.tolist()) == (0.0, torch.tensor([0.1, 0.0]).tolist())
    assert metrics["policy_distance"] == metrics["policy_distance_before"] > 0


def test_trust_region_takes_a_negative_divergence_as_0() -> None:
    """In float32, this divergence of standard deviations 1 and exp(3e-5) is rounded to less than 0."""
    policy = Constant([0.0, 0.0, 0.0], lambda log_std: Normal(torch.zeros_like(log_std), log_std))
    metrics = pulled(pull_back(BOX), policy, [3e-5, 3e-5, 3e-5])
    assert metrics == {"policy_distance": 0.0, "policy_distance_before": 0.0, "pulls": 0.0}


def test_trust_region_ignores_logits_that_move_together() -> None:
    policy = Constant([0.0, 1.0], lambda logits: Categorical(logits))
    assert pulled(pull_back(spaces.Discrete(2)), policy, [50.0, 51.0])["policy_distance_before"] < 1e-5


def test_trust_region_is_exceeded_by_a_single_leaf() -> None:
    def two(logits: Tensor) -> Independent:
        padded = torch.stack([torch.cat([logits[:, :2], torch.full_like(logits[:, :1], -INF)], -1), logits[:, 2:]], 1)
        return Independent(Categorical(padded))

    region = pull_back(spaces.MultiDiscrete([2, 3]))
    assert pulled(region, Constant([0.0] * 5, two), [0.05, 0.0, 0.05, 0.0, 0.0])["pulls"] == 0
    for moved in ([0.05, 0.0, 2.0, 0.0, 0.0], [2.0, 0.0, 0.05, 0.0, 0.0]):
        policy = Constant([0.0] * 5, two)
        metrics = pulled(region, policy, moved)
        assert metrics["pulls"] >= 1 and metrics["policy_distance_before"] > 1
        found = region.distance(policy, BATCH, two(torch.zeros(4, 5)))
        assert (found <= region.limits).all()
        assert metrics["policy_distance"] == found.max()
        ratio = policy.weight[0] / policy.weight[2]
        assert ratio.item() == pytest.approx(moved[0] / moved[2])


def gaussian(mean: Tensor) -> Normal:
    return Normal(mean, torch.zeros_like(mean))


def mixed(outputs: Tensor) -> Joint:
    """One choice of two, and four continuous dimensions."""
    return Joint(Independent(Categorical(outputs[:, :2].unsqueeze(1))), gaussian(outputs[:, 2:]))


JOINED = JoinedBox({"arm": BOX, "grip": GRIP})
MIXED = MixedSpace({"arm": BOX, "gear": spaces.MultiDiscrete([2]), "grip": GRIP})


@pytest.mark.parametrize(
    ("dist", "space", "discrete"), [(gaussian, JOINED, 0), (Deterministic, JOINED, 0), (mixed, MIXED, 2)]
)
def test_trust_region_limits_two_boxes_separately(dist: Callable[[Tensor], Any], space: Space, discrete: int) -> None:
    """A step of 0.15 in the grip exceeds its limit of sqrt(0.01), but not sqrt(0.04) of all four dimensions."""
    region, start = pull_back(space), [0.0] * (discrete + 4)
    for dimension, pulls in ((0, 0), (3, 1)):
        moved = [*start]
        moved[discrete + dimension] = 0.15
        policy = Constant(start, dist)
        metrics = pulled(region, policy, moved)
        assert metrics["pulls"] == pulls and metrics["policy_distance_before"] == pytest.approx(0.15)
        assert policy.weight[discrete + dimension].item() == pytest.approx(0.09 if pulls else 0.15)


def test_trust_region_compares_with_a_copy_of_the_old_distribution() -> None:
    """The standard deviation of this distribution is a view of the weights, which the step changes in place."""
    policy = Constant([0.0, 0.0, 0.0], lambda log_std: Normal(torch.zeros_like(log_std), log_std))
    before = Normal(torch.zeros(4, 3), torch.zeros(4, 3))
    metrics = pulled(pull_back(BOX), policy, [1.0, 0.0, 0.0])
    after = Normal(torch.zeros(4, 3), torch.tensor([1.0, 0.0, 0.0]).expand(4, 3))
    assert metrics["policy_distance_before"] == pytest.approx(distances(before, after, [3])[0].sqrt().item())


def test_trust_region_returns_to_the_old_weights_from_an_infinite_distance() -> None:
    policy = Constant([0.5, 0.5, 0.5], lambda log_std: Normal(torch.zeros_like(log_std), log_std))
    metrics = pulled(pull_back(BOX), policy, [200.0, 0.5, 0.5])
    assert (metrics["policy_distance_before"], metrics["policy_distance"]) == (INF, 0.0)
    assert policy.weight.tolist() == [0.5] * 3


def test_trust_region_ends_the_run_if_pulls_do_not_help() -> None:
    policy = Constant([0.0, 0.0, 0.0], lambda action: Deterministic(action * torch.nan))
    with pytest.raises(RunError, match=r"^algo.trust_region=pull_back: a distance of nan remains after 100 pulls$"):
        pulled(pull_back(BOX), policy, [1.0, 0.0, 0.0])


class Logistic:
    """A distribution of a plug-in that is no dataclass."""


@dataclass
class Cauchy:
    """A distribution of a plug-in that can be stored, but has no divergence."""

    location: Tensor


KINDS = itertools.cycle([Cauchy, gaussian])


def either(output: Tensor) -> Any:
    """Of another kind in every call."""
    return next(KINDS)(output)


@pytest.mark.parametrize(
    ("dist", "line"),
    [
        (
            lambda weight: Logistic(),
            "Logistic cannot be stored: write it as a @dataclass of tensors, distributions and constants",
        ),
        (Cauchy, "no closed form of the KL divergence of Cauchy"),
        (either, "no KL divergence of Cauchy and Normal: both must be of one kind"),
    ],
)
@pytest.mark.parametrize(
    ("words", "setting", "alternative"),
    [
        (["algo=trac"], "algo.trust_region=pull_back", "algo.trust_region=none"),
        (["algo=ppo", "algo.critic_update=phasic"], "algo.critic_update=phasic", "algo.critic_update=joint"),
    ],
)
def test_policies_without_a_distance_are_refused_before_anything_is_written(
    words: list[str], setting: str, alternative: str, dist: Callable[[Tensor], Any], line: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(GaussianPolicy, "forward", lambda head, obs: dist(Head.forward(head, obs)))
    assert main(["train", *words, "env=Pendulum"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {setting}: {line}; {alternative} takes any policy\n")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("algo", ["dqn", "sac", "cem"])
def test_trust_region_of_an_agent_without_a_policy_gradient_is_refused(algo: str) -> None:
    line = rf"^algo.trust_region=pull_back: algo={algo} has no part algo.trust_region; its parts are"
    with pytest.raises(ConfigError, match=line) as refused:
        jobs([f"algo={algo}", "env=CartPole" if algo == "dqn" else "env=Pendulum", "algo.trust_region=pull_back"])
    assert len(refused.value.faults) == 1


CASES = {
    "a2c": ("a2c", {}),
    "vpg": ("vpg", {}),
    "ppo": ("ppo", {}),
    "shared": (
        "ppo",
        {
            "algo.critic_update": {
                "name": "shared",
                "value_coef": 0.5,
                "clip_value": None,
                "huber_delta": None,
                "normalize_target": False,
            }
        },
    ),
    "split": ("a2c_split", {}),
    "recurrent": ("ppo_lstm", {}),
    "demonstrations": ("ppo_demos", {}),
    "phasic": ("ppg", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_trust_region_with_a_wide_limit_has_the_bits_of_none(case: str, build: Build) -> None:
    algo, changes = CASES[case]
    plain = build(toy(algo, **changes))
    wide = build(toy(algo, **changes | {"algo.trust_region": LOOSE}))
    assert equal(weights(train(plain, 3)), weights(train(wide, 3)))


def test_trust_region_of_particles_with_a_wide_limit_has_the_bits_of_none(build: Build) -> None:
    plain, wide = build(toy("svpg")), build(toy("svpg", **{"algo.particle.trust_region": LOOSE}))
    assert equal(weights(train(plain, 3)), weights(train(wide, 3)))


def recorded_steps(region: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """Returns a list to which every pull of the region adds its metrics."""
    steps: list[dict[str, float]] = []
    pull = region.pull

    def record(*given: Any) -> Any:
        metrics = pull(*given)
        steps.append({name.removeprefix("loss/"): value.item() for name, value in metrics.items()})
        return metrics

    monkeypatch.setattr(region, "pull", record)
    return steps


@pytest.mark.parametrize("case", CASES)
def test_trust_region_holds_after_every_step(case: str, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    algo, changes = CASES[case]
    loop: Any = build(toy(algo, **changes | {"algo.trust_region": TIGHT}))
    agent = getattr(loop.agent, "learner", loop.agent)
    steps = recorded_steps(agent.trust_region, monkeypatch)
    train(loop, 3)
    limit = agent.trust_region.limits.max().item()
    assert len(steps) >= 3 and sum(step["pulls"] > 0 for step in steps) > len(steps) / 2
    assert all(step["policy_distance"] <= limit for step in steps)


def test_trust_region_holds_after_the_common_step_of_particles(build: Build) -> None:
    loop: Any = build(toy("svpg", **{"algo.particle.trust_region": TIGHT}))
    metrics = loop.agent.update(loop.addons.relabel(loop.collect_rollout()), loop.context())
    limit = math.sqrt(2e-6)
    assert metrics["loss/pulls"] >= 1
    assert 0 < metrics["loss/policy_distance"] <= limit < metrics["loss/policy_distance_before"]


@pytest.mark.parametrize("critic", ["joint", "shared"])
def test_trust_region_pulls_back_the_weights_of_the_policy_alone(critic: str, build: Build) -> None:
    """The optimiser keeps the moments of the whole step, and a critic head stays where the step took it."""
    part = {
        "algo.critic_update": {
            "name": critic,
            "value_coef": 0.5,
            "clip_value": None,
            "huber_delta": None,
            "normalize_target": False,
        },
        "algo.epochs": 1,
    }
    plain, tight = [
        build(toy("a2c", **part | {"algo.minibatch_size": None, "algo.trust_region": region}))
        for region in ({"name": "none"}, TIGHT)
    ]
    train(plain, 1)
    train(tight, 1)
    far, near = (dict(loop.agent.named_parameters()) for loop in (plain, tight))
    policy = {id(param) for param in plain.agent.policy.parameters()}
    same = {name for name in far if torch.equal(far[name], near[name])}
    assert same == {name for name, param in far.items() if id(param) not in policy}
    assert torch.equal(plain.agent.optim.exp_avg, tight.agent.optim.exp_avg)


def test_trac_is_a2c_with_a_trust_region() -> None:
    trac, a2c = (jobs([f"algo={algo}", "env=CartPole"])[0].values["algo"] for algo in ("trac", "a2c"))
    assert trac.pop("trust_region") == {"name": "pull_back", "limit_per_dim": 0.01}
    assert trac["advantage"].pop("gae_lambda") == 0.95 != a2c["advantage"].pop("gae_lambda")
    assert a2c.pop("trust_region") == {"name": "none"}
    assert trac == a2c
