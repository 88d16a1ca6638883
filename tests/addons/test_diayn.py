"""Skills: what is paid for them, by hand, and what the discriminator may see."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy, train

from rlrun.core.loop import Loop
from rlrun.errors import ConfigError

Build = Callable[..., Loop]


def test_the_bonus_is_how_much_better_than_chance_the_skill_is_told(build: Build) -> None:
    loop: Any = train(build(toy("diayn")), 3)
    model, batch = loop.addons[1].model, loop.addons.relabel(loop.buffer.all())
    logits = model.discriminator(batch["next_obs"])
    told = logits.softmax(-1)[torch.arange(len(logits)), batch["carry.goal"]]
    torch.testing.assert_close(model.raw_reward(batch), (told / 0.25).log())
    assert loop.batch["reward"].max() <= math.log(4)


def test_the_discriminator_sees_where_a_step_led_and_not_its_skill(build: Build) -> None:
    loop: Any = train(build(toy("diayn")), 1)
    model, batch = loop.addons[1].model, loop.addons.relabel(loop.buffer.all())
    others = batch | {"next_obs": batch["next_obs"] | {"goal": (batch["carry.goal"] + 1) % 4}}
    assert torch.equal(model.predict_skill(batch).logits, model.predict_skill(others).logits)
    moved = batch | {"next_obs": batch["next_obs"] | {"obs": batch["next_obs"]["obs"] + 1}}
    assert not torch.equal(model.predict_skill(batch).logits, model.predict_skill(moved).logits)


def test_skills_that_are_told_apart_are_paid_the_logarithm_of_their_number(build: Build) -> None:
    loop: Any = train(build(toy("diayn", **{"algo.intrinsic.hidden": [32]})), 1)
    model = loop.addons[1].model
    goal = torch.arange(64) % 4
    state = torch.nn.functional.one_hot(goal, 4)[:, :3].float()
    rows = {"next_obs": {"obs": state, "goal": goal}, "weight": torch.ones(64)}
    assert model.fit(rows)["diayn_accuracy"] < 0.9
    for _ in range(200):
        metrics = model.fit(rows)
    assert metrics["diayn_accuracy"] == 1
    torch.testing.assert_close(model.raw_reward(rows), torch.full((64,), math.log(4)), atol=0.05, rtol=0)


def test_skills_need_goals(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo\.intrinsic=diayn: needs algo\.goals=categorical"):
        build(put(toy("diayn"), {"algo.goals": None}))
