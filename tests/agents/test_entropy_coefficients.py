"""Entropy coefficients: fixed, learned, staged; traced by hand, on bandits, and inside agents."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from toys import put, toy, train

from rlrun.agents.entropy.coefficient import default_target
from rlrun.agents.entropy.staged import ADJUST, FREE, INIT
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Categorical
from rlrun.schedules.numbers import Schedules
from rlrun.settings import registry
from rlrun.types import Context

Build = Callable[..., Loop]
RULES = {
    "name": "staged", "target_entropy": 1.0, "max_entropy": 2.0, "initial_alpha": 1.0, "min_alpha": 1e-4,
    "skip_free_stage": False, "very_slow_rate": 0.001, "slow_rate": 0.01, "fast_rate": 0.5, "average_window": 1,
}  # fmt: skip
ONE = torch.ones(1)
AUTO = {"name": "auto", "target_entropy": 1.0, "initial_alpha": 1.0, "max_alpha": None, "learning_rate": 0.1}
SLOPE = {"name": "sgd", "target_entropy": 1.0, "initial_alpha": 1.0, "learning_rate": 0.1, "window": 1}


def staged(**changes: Any) -> Any:
    return registry.build("entropy", RULES | changes, 0.0)


def trace(target: Any, series: list[float]) -> list[tuple[int, float, float]]:
    """Returns stage, log alpha and rate after each entropy."""
    found = []
    for entropy in series:
        target.adjust(torch.tensor([entropy]), ONE)
        found.append((int(target.stage), round(float(target.log_alpha), 6), round(float(target.rate), 6)))
    return found


def test_staged_alpha_goes_through_its_three_stages() -> None:
    series = [3.0, 2.5, 2.6, 1.9, 1.5, 0.9, 0.8, 0.9, 1.1, 1.2, 1.1, 0.9, 0.4]
    assert trace(staged(), series) == [
        (INIT, -0.001, 0.5),  # the first entropy counts as rising: -1
        (INIT, -0.0005, 0.5),  # falling: +0.5, so that the entropy does not fall too fast
        (INIT, -0.0015, 0.5),
        (FREE, -0.001, 0.5),  # below the maximum: the stage ends, with a last change of the first stage
        (FREE, -0.001, 0.5),
        (ADJUST, 0.499, 0.5),  # below the target and falling: +1
        (ADJUST, 0.999, 0.5),
        (ADJUST, 0.749, 0.5),  # below, but rising already: -0.5
        (ADJUST, 0.299, 0.45),  # crosses the target: 0.9 of the rate; above and rising: -1
        (ADJUST, -0.151, 0.45),
        (ADJUST, 0.074, 0.45),  # above, but falling: +0.5
        (ADJUST, 0.479, 0.405),  # crosses the target again
        (ADJUST, 0.979, 0.5),  # below half the target: the initial rate
    ]


def test_staged_max_entropy_defaults_to_the_first_entropies() -> None:
    target = staged(max_entropy=None, average_window=2)
    assert trace(target, [2.0, 1.0])[-1][:2] == (INIT, 0.0005)  # nothing before the window is full, then falling
    assert float(target.max_entropy) == pytest.approx(0.8 * 1.5)
    assert trace(target, [1.3, 0.5])[-1][0] == ADJUST  # 1.15 lies below 1.2, and 0.9 below the target
    below_zero = staged(max_entropy=None, target_entropy=-5.0)
    trace(below_zero, [-1.0])
    assert float(below_zero.max_entropy) == pytest.approx(-1 / 0.8)


def test_staged_options_skip_stage_min_alpha_and_slow_rate() -> None:
    assert trace(staged(skip_free_stage=True), [1.5, 1.4]) == [(ADJUST, -0.5, 0.5), (ADJUST, -0.25, 0.5)]
    low = staged(skip_free_stage=True, min_alpha=0.5, slow_rate=0.48)
    crossing = trace(low, [1.5, 2.0, 3.0, 0.9])
    assert [alpha for _, alpha, _ in crossing[1:]] == [round(math.log(0.5), 6)] * 2 + [round(math.log(0.5) + 0.48, 6)]
    assert crossing[-1][2] == 0.48
    assert staged(min_alpha=-1.0).min_log_alpha == -100


def test_staged_negative_target_is_urgent_at_twice_its_size() -> None:
    target = staged(target_entropy=-1.0, skip_free_stage=True)
    rates = [rate for *_, rate in trace(target, [0.0, -1.5, -1.9, -2.1])]
    assert rates == [0.5, 0.45, 0.45, 0.5]


def test_sgd_alpha_moves_against_the_gap_to_the_target_entropy() -> None:
    for entropy, direction in ((2.0, -1), (0.5, 1), (1.0, 0)):
        target: Any = registry.build("entropy", SLOPE, 0.0)
        before = target.alpha
        target.adjust(torch.tensor([entropy]), ONE)
        assert torch.sign(target.alpha - before) == direction
    target = registry.build("entropy", SLOPE | {"window": 2}, 0.0)
    target.adjust(torch.tensor([3.0]), ONE)
    assert target.adjust(torch.tensor([-1.0]), ONE)["loss/entropy_gap"] == 0  # the mean of both is the target


@pytest.mark.parametrize(
    "values",
    [
        RULES | {"target_entropy": 0.5, "max_entropy": 1.0, "initial_alpha": 0.01, "slow_rate": 0.002},
        SLOPE | {"target_entropy": 0.5, "learning_rate": 0.003},
    ],
    ids=["staged", "sgd"],
)
def test_entropy_coefficients_settle_a_bandit_at_the_target_entropy(values: dict[str, Any]) -> None:
    """Rewards 1, 0, 0 for three arms, exact gradients of reward + alpha H."""
    target: Any = registry.build("entropy", values, 0.0)
    logits = torch.nn.Parameter(torch.zeros(3))
    optim, last = Optim([logits], 0.03), []
    for _ in range(3000):
        policy = Categorical(logits)
        entropy = policy.entropy()
        target.adjust(entropy.detach().view(1), ONE)
        optim.step(-(logits.softmax(-1)[0] + target.alpha * entropy))
        last.append(entropy.item())
    assert sum(last[-500:]) / 500 == pytest.approx(0.5, abs=0.05)


def test_default_target_entropy_by_action_space() -> None:
    assert default_target(Box(-1.0, 1.0, (3,))) == pytest.approx(3 * math.log(0.2))
    spread = Categorical(torch.tensor([0.9, 0.05, 0.05]).log()).entropy().item()
    assert default_target(Discrete(3)) == pytest.approx(spread)
    assert default_target(MultiDiscrete([3, 3])) == pytest.approx(2 * spread)


@pytest.mark.parametrize(
    "values",
    [RULES | {"skip_free_stage": True, "max_entropy": None}, SLOPE, AUTO],
    ids=["staged", "sgd", "auto"],
)
@pytest.mark.parametrize("algo", ["a2c", "ppo", "vtrace", "ppo_lstm", "sac", "discrete_sac"])
def test_agents_learn_with_the_adjusted_entropy_coefficient(algo: str, values: Any, build: Build) -> None:
    loop: Any = build(put(toy(algo), {"algo.entropy": values | {"target_entropy": 100.0}}))
    before, rows = loop.agent.entropy.alpha, []
    while loop.updates < 4:
        rows.append(loop.tick())
    assert loop.agent.entropy.alpha != before
    assert "loss/alpha" in rows[-1]


def test_alpha_scales_the_gradient_of_the_entropy(build: Build) -> None:
    """PPO with alpha at 0.3 is PPO with ent_coef=0.3."""
    still = RULES | {"initial_alpha": 0.3, "target_entropy": -1e9, "max_entropy": 1e9}  # stays in the stage `free`
    held = train(build(put(toy("ppo"), {"algo.entropy": still})), 2)
    fixed = train(build(toy("ppo", **{"algo.entropy.ent_coef": 0.3})), 2)
    for one, other in zip(held.agent.policy.parameters(), fixed.agent.policy.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_fixed_entropy_coefficient_never_changes() -> None:
    fixed: Any = registry.build("entropy", {"name": "fixed", "ent_coef": 0.3}, 0.0)
    assert fixed.adjust(torch.tensor([5.0]), ONE) == {}
    assert fixed.alpha.item() == pytest.approx(0.3)
    assert not fixed.state_dict()


def test_auto_temperature_weights_rows_by_importance() -> None:
    """The gradient of -log alpha * mean(w (target - H)): rows of weight 0 do not count."""
    for entropy, direction in ((2.0, -1), (0.5, 1)):
        auto: Any = registry.build("entropy", AUTO, 0.0)
        auto.adjust(torch.tensor([entropy, 1e3 * direction]), torch.tensor([1.0, 0.0]))
        assert torch.sign(auto.alpha - 1.0) == direction


def test_auto_alpha_stays_below_its_maximum() -> None:
    below: Any = registry.build("entropy", AUTO | {"max_alpha": 1.3}, 0.0)
    free: Any = registry.build("entropy", AUTO, 0.0)
    for _ in range(10):
        for auto in (below, free):
            auto.adjust(torch.tensor([0.0]), ONE)  # far below the target, so alpha increases
    assert free.alpha > 2
    assert below.alpha.item() == pytest.approx(1.3)
    below.adjust(torch.tensor([50.0]), ONE)
    for _ in range(20):
        below.adjust(torch.tensor([50.0]), ONE)
    assert below.alpha < 1.2, "the maximum is no fixed point"
    high: Any = registry.build("entropy", AUTO | {"max_alpha": 0.5}, 0.0)
    assert high.alpha.item() == pytest.approx(0.5), "the initial value is limited too"


@pytest.mark.parametrize(
    ("algo", "rule", "expected"),
    [
        ("sac", "tenth", math.log(0.2)),
        ("sac", "minus_dimensions", -1.0),
        ("crossq", "tenth", math.log(0.2)),
        ("sac_lagrangian", "tenth", 2 * math.log(0.2)),
        ("discrete_sac", "tenth", Categorical(torch.tensor([0.9, 0.1]).log()).entropy().item()),
        ("discrete_sac", "nearly_uniform", 0.98 * math.log(2)),
        ("ppo", "nearly_uniform", 0.98 * math.log(2)),
    ],
)
@pytest.mark.parametrize("part", [AUTO, SLOPE, RULES | {"max_entropy": None}], ids=["auto", "sgd", "staged"])
def test_target_entropy_follows_a_rule_of_the_action_space(
    algo: str, rule: str, expected: float, part: Any, build: Build
) -> None:
    entropy = build(put(toy(algo), {"algo.entropy": part | {"target_entropy": rule}})).agent.entropy
    assert float(entropy.target) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("algo", "rule", "line"),
    [
        ("sac", "nearly_uniform", "nearly_uniform: needs discrete actions; choose minus_dimensions, tenth or a number"),
        ("discrete_sac", "minus_dimensions", "minus_dimensions: needs Box actions; choose nearly_uniform, tenth or a"),
        ("sac", "tiny", "'tiny': must be a number, null or one of tenth, minus_dimensions, nearly_uniform"),
    ],
)
def test_impossible_rule_of_the_target_entropy_is_refused(algo: str, rule: str, line: str, build: Build) -> None:
    with pytest.raises(ConfigError, match=f"^algo.entropy.target_entropy={line}"):
        build(toy(algo, **{"algo.entropy.target_entropy": rule}))


@pytest.mark.parametrize("values", [RULES | {"skip_free_stage": True}, SLOPE, AUTO], ids=["staged", "sgd", "auto"])
def test_target_entropy_may_be_scheduled(values: dict[str, Any]) -> None:
    """The entropy falls slowly from 1.5: first it is above the target 1, then below the target 2."""
    schedule = {"entropy.target_entropy": {"piecewise": {"values": [2.0], "at": [5]}}}
    schedules = Schedules({"name": "sac", "entropy": values, "schedule": schedule})
    coefficient: Any = registry.build("entropy", schedules.applied({"entropy": values})["entropy"], 0.0)
    changes = []
    for step in range(10):
        schedules.update(Context(step, step, step / 10), step)
        before = coefficient.alpha.log()
        coefficient.adjust(torch.tensor([1.5 - 0.01 * step]), ONE)
        changes.append((coefficient.alpha.log() - before).item())
    if values["name"] == "staged":  # half the rate above the target, 0.9 of the rate after crossing it
        assert changes[1:] == pytest.approx([0.25] * 4 + [0.45] * 5)
    else:
        assert all(change < 0 for change in changes[:5])
        assert all(change > 0 for change in changes[-2:])


def test_recorded_updates_of_sac_follow_the_scheduled_target(build: Build) -> None:
    jump = {"piecewise": {"values": [50.0], "at": [20]}}
    schedule = {"algo.entropy.target_entropy": -50.0, "algo.schedule": {"entropy.target_entropy": jump}}
    loop: Any = build(toy("sac", **schedule, **{"trainer.engine": "auto"}))
    alphas: dict[bool, list[float]] = {False: [], True: []}
    while loop.steps < 60:
        loop.tick()
        alphas[loop.steps > 24].append(loop.agent.entropy.alpha.item())
    assert alphas[False][-1] < alphas[False][0], "before the jump, the entropy is above its target"
    assert alphas[True][-1] > alphas[True][0]
    line = "algo.schedule.entropy.target_entropy: algo.entropy.target_entropy is tenth; give it a number to start from"
    with pytest.raises(ConfigError, match=line):
        build(toy("sac", **schedule | {"algo.entropy.target_entropy": "tenth"}))


def test_max_entropy_below_the_target_is_refused(build: Build) -> None:
    words = ["algo=sac", "env=Pendulum", "preset=none", "algo.entropy=staged", "algo.entropy.max_entropy=-9"]
    with pytest.raises(ConfigError, match=r"algo\.entropy\.max_entropy=-9"):
        build(jobs(words)[0].values)


def test_part_of_another_kind_is_refused(build: Build) -> None:
    words = ["algo=discrete_sac", "env=CartPole", "preset=none", "algo.critic=quantile"]
    with pytest.raises(
        ConfigError, match=r"algo\.critic=quantile: not supported by this algorithm; choose hl_gauss or mean"
    ):
        build(jobs(words)[0].values)
