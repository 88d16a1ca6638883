"""DIAYN: its reward in closed form, and the inputs of its discriminator."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy, train

from rlrun.core.loop import Loop
from rlrun.errors import ConfigError

Build = Callable[..., Loop]


def test_diayn_reward_is_log_probability_of_skill_over_prior(build: Build) -> None:
    loop: Any = train(build(toy("diayn")), 3)
    model, batch = loop.addons[1].model, loop.addons.relabel(loop.buffer.all())
    logits = model.discriminator(batch["next_obs"])
    probability = logits.softmax(-1)[torch.arange(len(logits)), batch["carry.goal"]]
    torch.testing.assert_close(model.raw_reward(batch), (probability / 0.25).log())
    assert loop.batch["reward"].max() <= math.log(4)


def test_diayn_discriminator_reads_next_state_without_skill(build: Build) -> None:
    loop: Any = train(build(toy("diayn")), 1)
    model, batch = loop.addons[1].model, loop.addons.relabel(loop.buffer.all())
    others = batch | {"next_obs": batch["next_obs"] | {"goal": (batch["carry.goal"] + 1) % 4}}
    assert torch.equal(model.predict_skill(batch).logits, model.predict_skill(others).logits)
    moved = batch | {"next_obs": batch["next_obs"] | {"obs": batch["next_obs"]["obs"] + 1}}
    assert not torch.equal(model.predict_skill(batch).logits, model.predict_skill(moved).logits)


def test_diayn_reward_of_separable_skills_is_log_of_their_number(build: Build) -> None:
    loop: Any = train(build(toy("diayn", **{"algo.intrinsic.hidden": [32]})), 1)
    model = loop.addons[1].model
    goal = torch.arange(64) % 4
    state = torch.nn.functional.one_hot(goal, 4)[:, :3].float()
    rows = {"next_obs": {"obs": state, "goal": goal}, "weight": torch.ones(64)}
    assert model.fit(rows)["loss/diayn_accuracy"] < 0.9
    for _ in range(200):
        metrics = model.fit(rows)
    assert metrics["loss/diayn_accuracy"] == 1
    torch.testing.assert_close(model.raw_reward(rows), torch.full((64,), math.log(4)), atol=0.05, rtol=0)


def normal_density(x: torch.Tensor) -> torch.Tensor:
    return (-0.5 * x.square() - 0.5 * math.log(2 * math.pi)).sum(-1)


@pytest.mark.parametrize("kind", ["gaussian", "box"])
@pytest.mark.parametrize("statistics", ["none", "all"])
def test_diayn_reward_of_continuous_skills_is_a_ratio_of_densities(kind: str, statistics: str, build: Build) -> None:
    changes = {"algo.goals": {"name": kind, "dims": 2}, "algo.intrinsic.obs_statistics": {"name": statistics}}
    loop: Any = train(build(put(toy("diayn"), changes)), 3)
    model, batch = loop.addons[1].model, loop.addons.relabel(loop.buffer.all())
    skill = batch["carry.goal"]
    rows = model.preprocess(batch)
    predicted = model.discriminator({"obs": rows["next_obs"]["obs"]})
    prior = {"gaussian": normal_density(skill), "box": torch.full(skill.shape[:1], -2 * math.log(2))}[kind]
    torch.testing.assert_close(model.raw_reward(rows), normal_density(skill - predicted) - prior)
    assert torch.equal(rows["next_obs"]["goal"], skill), "statistics of observations leave skills as they are"


def test_the_prediction_of_continuous_skills_learns_by_half_the_squared_error(build: Build) -> None:
    changes = {"algo.goals": {"name": "gaussian", "dims": 2}, "algo.intrinsic.hidden": [32]}
    loop: Any = train(build(put(toy("diayn"), changes)), 1)
    model, skill = loop.addons[1].model, torch.randn(64, 2)
    state = torch.cat([skill, skill[:, :1]], 1)
    rows = {"next_obs": {"obs": state, "goal": skill}, "weight": torch.ones(64)}
    predicted = model.discriminator({"obs": state}).detach()
    assert model.fit(rows)["loss/diayn"] == pytest.approx(0.5 * (predicted - skill).square().sum(-1).mean().item())
    for _ in range(200):
        loss = model.fit(rows)["loss/diayn"]
    assert loss < 0.05


def test_diayn_requires_goals(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo\.intrinsic=diayn: requires algo\.goals=categorical"):
        build(put(toy("diayn"), {"algo.goals": None}))
