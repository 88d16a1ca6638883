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


def test_diayn_requires_goals(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo\.intrinsic=diayn: requires algo\.goals=categorical"):
        build(put(toy("diayn"), {"algo.goals": None}))
