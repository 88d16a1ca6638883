"""Weights of reward vectors: fixed ones and Lagrange multipliers."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from toys import NOT_NORMALIZED

from rlrun.addons.rewards import reward_weight_addons
from rlrun.addons.rewards.normalise import NormaliseRewards
from rlrun.errors import ConfigError
from rlrun.settings import registry
from rlrun.types import Context, Objective, Spec

BOX = Box(-1.0, 1.0, (1,), np.float32)
SPEC = Spec(BOX, BOX, num_envs=2, reward_dim=2)
CTX = Context(0, 0, 0.0)
LAGRANGIAN = {
    "name": "lagrangian", "thresholds": [None, -0.25], "initial_weights": None, "max_weight": None,
    "measure": "rollout", "evaluation_rate": 1.0, "normalize": False, "transform": "softplus", "learning_rate": 0.01,
    "gamma": None,
}  # fmt: skip


def addon(spec: Spec = SPEC, **changes: Any) -> Any:
    values = (LAGRANGIAN if changes.get("name") != "fixed" else {"gamma": None}) | changes
    return registry.build("reward_weights", values, spec, path="algo.reward_weights")


def collect(model: Any, *rewards: list[float], weight: float = 1.0) -> None:
    """Collects one vector step for each reward, the same in both environments."""
    for reward in rewards:
        model.on_step({"reward": torch.tensor([reward, reward]), "weight": torch.full((2,), weight)})


def weights(model: Any) -> list[float]:
    return model.relabel({})["reward_weights"].tolist()


def test_fixed_reward_weights_default_to_1() -> None:
    assert weights(addon(name="fixed", weights=[2.0, -0.5])) == [2.0, -0.5]
    assert weights(addon(name="fixed", weights=None)) == [1.0, 1.0]
    assert addon(name="fixed", weights=[2.0, -0.5]).spec_after(SPEC).objective == Objective((2.0, -0.5), (None, None))


@pytest.mark.parametrize("values", [{"name": "fixed", "weights": None}, {}])
def test_reward_weights_set_the_discount_of_each_component(values: dict[str, Any]) -> None:
    assert addon(**values, gamma=[0.0, 0.9]).spec_after(SPEC).discount(0.99) == (0.0, 0.9)
    assert addon(**values, gamma=[0.0, 0.0]).spec_after(SPEC).discount(0.99) == (0.0, 0.0)
    assert addon(**values).spec_after(SPEC).discount(0.99) == 0.99


@pytest.mark.parametrize("transform", ["softplus", "exp"])
@pytest.mark.parametrize(("mean", "sign"), [(-0.1, -1), (-0.5, 1)])
def test_lagrangian_weight_falls_above_its_threshold_and_rises_below(mean: float, sign: int, transform: str) -> None:
    model = addon(transform=transform)
    collect(model, [5.0, mean])
    model.update({}, CTX)
    free, limited = weights(model)
    assert free == 1.0 and sign * (limited - 1.0) > 0


def test_lagrangian_gradient_is_weight_slope_times_mean_surplus() -> None:
    model = addon(initial_weights=[1.0, 2.0])
    seen: list[Any] = []
    model.optim.apply = seen.append
    collect(model, [0.0, -1.0], [0.0, -2.0])
    collect(model, [0.0, 100.0], weight=0.0)  # a masked step
    model.update({}, CTX)
    slope = 1 - np.exp(-2.0)  # derivative of softplus at the point where softplus is 2: sigmoid(log(e^2 - 1))
    torch.testing.assert_close(seen, [torch.tensor([0.0, slope * (-1.5 + 0.25)]).float()])


def test_lagrangian_takes_one_step_per_batch_of_new_rewards() -> None:
    model, other = addon(), addon()
    collect(model, [0.0, -1.0], [0.0, -3.0])
    collect(other, [0.0, -2.0])
    for one in (model, other):
        for _ in range(3):  # several updates after one step: one gradient step
            one.update({}, CTX)
    assert weights(model) == weights(other) != [1.0, 1.0] and model.optim.steps == 1


def test_lagrangian_state_restores_exactly(tmp_path: Any) -> None:
    model, other = addon(), addon()
    collect(model, [0.0, -1.0])
    model.update({}, CTX)
    collect(model, [0.0, -2.0])
    other.load_state_dict(model.state_dict())
    for one in (model, other):
        one.update({}, CTX)
        collect(one, [0.0, 1.0])
        one.update({}, CTX)
    assert weights(model) == weights(other) and model.optim.steps == other.optim.steps == 3


def test_lagrangian_max_weight_does_not_wind_up() -> None:
    model = addon(max_weight=1.5, learning_rate=0.5, initial_weights=[9.0, 1.0])
    for _ in range(50):
        collect(model, [0.0, -2.0])
        model.update({}, CTX)
    assert weights(model) == pytest.approx([9.0, 1.5]), "those without threshold have none"
    for _ in range(20):
        collect(model, [0.0, 2.0])
        model.update({}, CTX)
    assert weights(model)[1] < 1.0, "nothing was wound up beyond it"


def test_lagrangian_weights_are_normalised_on_read() -> None:
    model = addon(normalize=True, initial_weights=[1.0, 3.0])
    assert weights(model) == pytest.approx([0.25, 0.75])
    collect(model, [0.0, -9.0])
    metrics = model.update({}, CTX)
    assert sum(weights(model)) == pytest.approx(1.0) and weights(model)[1] > 0.75
    assert [float(metrics[f"loss/reward_weight_{i}"]) for i in range(2)] == weights(model)


def found(mean: float, length: float = 4.0) -> dict[str, float]:
    return {"eval/return_mean_0": 0.0, "eval/return_mean_1": mean * length, "eval/length_mean": length}


def test_lagrangian_measure_evaluation_uses_the_mean_of_evaluations() -> None:
    model = addon(measure="evaluation", evaluation_rate=0.5)
    for mean, sign in ((None, 0), (-0.1, -1), (-1.0, 1)):  # of evaluations; the mean of rollouts is far below
        if mean is not None:
            model.on_evaluation(found(mean))
        before = weights(model)[1]
        for _ in range(30):
            collect(model, [0.0, -9.0])
            model.update({}, CTX)
        assert np.sign(weights(model)[1] - before) == sign
    assert model.average.tolist() == pytest.approx([0.0, -0.55])
    other = addon(measure="evaluation", evaluation_rate=0.5)
    other.load_state_dict(model.state_dict())
    for one in (model, other):
        one.on_evaluation(found(-0.1))
    assert torch.equal(model.average, other.average)


def test_lagrangian_measure_evaluation_requires_evaluations() -> None:
    with pytest.raises(ConfigError, match=r"algo\.reward_weights\.measure=evaluation: .* trainer\.eval_every=0"):
        reward_weight_addons(LAGRANGIAN | {"measure": "evaluation"}, SPEC, evaluates=False)


def test_lagrangian_objective_sums_components_without_threshold() -> None:
    assert addon(initial_weights=[2.0, 5.0]).spec_after(SPEC).objective == Objective((2.0, 0.0), (None, -0.25))
    every = addon(thresholds=[1.0, -0.25])
    assert every.spec_after(SPEC).objective == Objective((1.0, 1.0), (1.0, -0.25))


@pytest.mark.parametrize(("normalize", "transform"), [(False, "softplus"), (True, "softplus"), (False, "exp")])
@pytest.mark.parametrize("start", [0.05, 20.0])
def test_lagrangian_bandit_converges_to_the_constrained_optimum(start: float, normalize: bool, transform: str) -> None:
    """Action x has the reward (x, -x^2). If the cost x^2 is at most 0.25, the best x is 0.5 and the multiplier is 1."""
    model = addon(initial_weights=[1.0, start], normalize=normalize, transform=transform, learning_rate=0.02)
    for _ in range(1500):
        free, price = weights(model)
        x = min(free / (2 * price), 1.0)  # the best action for these weights
        collect(model, [x, -x * x])
        model.update({}, CTX)
    assert x == pytest.approx(0.5, rel=1e-3) and price / free == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"thresholds": [None, None]}, r"thresholds: none is given; algo\.reward_weights=fixed"),
        ({"thresholds": []}, r"algo\.reward_weights\.thresholds=\[\]: must have 2 values, one per component"),
        ({"initial_weights": [1.0]}, r"initial_weights=\[1.0\]: must have 2 values, one per component"),
        ({"initial_weights": [1.0, -1.0]}, r"algo\.reward_weights\.initial_weights\.1=-1"),
        ({"name": "fixed", "weights": [1.0, 1.0, 1.0]}, r"algo\.reward_weights\.weights=.* have 2 values"),
        (
            {"name": "fixed", "weights": None, "gamma": [0.9]},
            r"algo\.reward_weights\.gamma=\[0.9\]: must have 2 values",
        ),
        ({"gamma": []}, r"algo\.reward_weights\.gamma=\[\]: must have 2 values, one per component"),
        ({"gamma": [0.9, 1.5]}, r"algo\.reward_weights\.gamma\.1=1\.5"),
    ],
)
def test_reward_weights_refuse_invalid_settings(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        addon(**changes)


def test_reward_weights_are_refused_for_scalar_rewards() -> None:
    one = Spec(BOX, BOX, 2)
    plain: dict[str, Any] = {"name": "fixed", "weights": None, "gamma": None}
    assert reward_weight_addons(plain, one, evaluates=True) == []
    with pytest.raises(
        ConfigError, match=r"^algo\.reward_weights\.gamma=\[0\.5\]: needs a reward vector.*algo\.gamma$"
    ):
        reward_weight_addons(plain | {"gamma": [0.5]}, one, evaluates=True)
    for values in (plain | {"weights": [2.0]}, LAGRANGIAN):
        with pytest.raises(ConfigError, match=rf"algo\.reward_weights={values['name']} needs a reward vector"):
            reward_weight_addons(values, one, evaluates=True)


def test_reward_normalisation_scales_each_component() -> None:
    both, alone = (
        NormaliseRewards(SPEC, 0.9, NOT_NORMALIZED),
        [NormaliseRewards(Spec(BOX, BOX, 2), 0.9, NOT_NORMALIZED) for _ in range(2)],
    )
    rewards, done = torch.randn(40, 2, 2) * torch.tensor([5.0, 0.1]), torch.rand(40, 2) < 0.1
    no = torch.zeros(2, dtype=torch.bool)
    for reward, ended in zip(rewards, done, strict=True):
        step = {"reward": reward, "terminated": ended, "truncated": no, "weight": torch.ones(2)}
        both.on_step(step)
        for part, one in enumerate(alone):
            one.on_step(step | {"reward": reward[:, part]})
    parts = [one.relabel({"reward": rewards[..., part]})["reward"] for part, one in enumerate(alone)]
    torch.testing.assert_close(both.relabel({"reward": rewards})["reward"], torch.stack(parts, -1))
