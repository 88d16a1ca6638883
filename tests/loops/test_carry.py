"""The carry of an agent from step to step, and the flags of episode starts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import toy

from rlrun.core.loop import Loop


@pytest.mark.parametrize("algo", ["sac", "ppo", "cem"])
def test_every_loop_gives_the_agent_its_carry_and_the_episode_starts(algo: str, build: Callable[..., Loop]) -> None:
    loop = build(toy(algo, **{"algo.loop.warmup_steps": 0} if algo == "sac" else {}))
    carries: list[Any] = []
    act = loop.agent.act

    def remember(obs: Any, carry: Any, *args: Any, **given: Any) -> Any:
        carries.append(carry)
        action, extras = act(obs, carry, *args, **given)
        return action, extras | {"carry.steps": carry.get("carry.steps", torch.zeros(2)) + 1}

    loop.agent.act = remember  # type: ignore[method-assign]
    ended: list[torch.Tensor] = []
    step_env = loop.env.step

    def step(action: Any) -> Any:
        result, events = step_env(action)
        ended.append(result["terminated"] | result["truncated"])
        return result, events

    loop.env.step = step  # type: ignore[method-assign]
    while len(carries) < 48 and loop.updates < (1 if algo == "cem" else 100):
        loop.tick()
    assert carries[0]["first"].all()
    assert [carry["first"].tolist() for carry in carries[1:]] == [end.tolist() for end in ended[: len(carries) - 1]]
    assert torch.stack(ended).any()
    assert [carry["carry.steps"].tolist() for carry in carries[1:]] == [[i, i] for i in range(1, len(carries))]
    assert loop.carry.keys() == {"first", "carry.steps"}
