"""Evaluation: whole episodes in environments of their own, nothing explored, nothing learned."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.loops.adaptation import MetaAgent, Policy, adapted
from rlrun.run.returns import components, score, shortfall
from rlrun.types import Objective, Return, carried


class Played(NamedTuple):
    """One episode. Returns are the environment's own, beneath wrappers and without normalisation; `train/return_mean`
    counts rewards as the agent gets them from the environments, after wrappers and before normalisation."""

    episode_return: float
    length: int
    success: bool | None  # None where the environment does not tell
    returned: Return  # the sums of a reward vector's components; else the return again


class EvaluationInterruptedError(Exception):
    """A signal asked to stop. Nothing has changed: the evaluation is done again after the resume."""


def evaluate(
    agent: Agent, addons: Addons, env: Any, episodes: int, interrupted: Callable[[], bool] = lambda: False
) -> dict[str, float]:
    """What metrics.jsonl says about `episodes` episodes. Raises EvaluationInterruptedError.

    Of an agent that adapts also what it returns in the same tasks as it was before.
    """
    found = summary(play(agent, addons, env, episodes, interrupted=interrupted), addons.spec(env.spec).objective)
    if isinstance(agent, MetaAgent):
        before = play(agent.get_exploration_policy(), addons, env, episodes, interrupted=interrupted)
        found["eval/return_before"] = float(np.mean([one.episode_return for one in before]))
    return found


def summary(played: list[Played], objective: Objective | None) -> dict[str, float]:
    """The metrics `eval/*` of these episodes."""
    returns, lengths, successes, returned = zip(*played, strict=True)
    told = [success for success in successes if success is not None]
    return {
        "eval/return_mean": float(np.mean(returns)),
        "eval/return_std": float(np.std(returns)),
        "eval/return_min": min(returns),
        "eval/return_max": max(returns),
        "eval/length_mean": float(np.mean(lengths)),
        **components("eval", returned),
        **shortfall(returned, lengths, objective),
    } | ({"eval/success_rate": float(np.mean(told))} if told else {})


def shares(episodes: int, num_envs: int) -> np.ndarray:
    """How many episodes each environment plays, [num_envs]: a fixed number, so that short ones count no more."""
    owed = np.full(num_envs, episodes // num_envs)
    owed[: episodes % num_envs] += 1
    return owed


@torch.no_grad()
def play(
    agent: Agent | Policy,
    addons: Addons,
    env: Any,
    episodes: int,
    explore: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
    watch: Callable[[], object] = lambda: None,
) -> list[Played]:
    """`episodes` episodes, after those in which an agent that adapts to its task has explored.

    `watch` is called in between. The environments must end by themselves. Raises EvaluationInterruptedError.
    """
    policy: Any = adapted(agent, addons, env) if isinstance(agent, MetaAgent) else agent
    watch()
    num_envs, objective = env.spec.num_envs, addons.spec(env.spec).objective
    owed = shares(episodes, num_envs)
    played: list[Played] = []
    running_return, running_length = np.zeros((num_envs, env.spec.reward_dim)), np.zeros(num_envs, dtype=np.int64)
    obs = env.reset()
    carry: dict[str, Any] = {"first": torch.ones(num_envs, dtype=torch.bool, device=env.device)}
    while owed.any():
        if interrupted():
            raise EvaluationInterruptedError
        action, extras = addons.act(policy, obs, carry, explore)
        step = env.step(action)
        weight = step.weight.cpu().numpy()
        running_return += weight[:, None] * step.reward.cpu().numpy().astype(np.float64).reshape(num_envs, -1)
        running_length += weight.astype(np.int64)
        ended = step.terminated | step.truncated
        for i in np.flatnonzero(ended.cpu().numpy()):
            if owed[i] and weight[i]:  # else the episode was dropped, and is played again
                owed[i] -= 1
                total = step.info.get("own_returns", {}).get(i, running_return[i])
                success = step.info.get("success", {}).get(i)
                played.append(_played(total, int(running_length[i]), success, objective))
            running_return[i] = running_length[i] = 0
        obs, carry = step.obs, carried(extras, ended)
    return played


def _played(total: np.ndarray, length: int, success: bool | None, objective: Objective | None) -> Played:
    """`total` [reward_dim]: the sum of each component of the reward."""
    returned = total.tolist() if objective else float(total[0])
    return Played(score(returned, objective), length, success, returned)
