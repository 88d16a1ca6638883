"""Evaluation: whole episodes in separate environments, without learning and by default without exploration."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.collector import Acts
from rlrun.core.previous import of_step
from rlrun.core.random import Stream
from rlrun.envs.making.tasks import Task
from rlrun.loops.adaptation import MetaAgent, adapted_policy
from rlrun.nested import mapped
from rlrun.run.returns import components, score, shortfall, spread
from rlrun.types import Batch, Objective, Obs, Return, carried


class EpisodeResult(NamedTuple):
    """The result of one episode.

    Returns are sums of the environment's own rewards, before wrappers and normalisation. In contrast,
    `train/return_mean` sums rewards after wrappers but before normalisation.
    """

    episode_return: float
    length: int
    success: float | None  # from 0 to 1; None if the environment does not report it
    returned: Return  # for reward vectors the sum of each component, else the same as `episode_return`
    env: int  # index of the environment, and of its task in meta-learning


class Sampling(NamedTuple):
    """How many actions of an evaluation are sampled instead of the most likely ones."""

    probability: float  # for each action
    coins: Stream  # the random numbers that decide


class SampledPolicy:
    """A policy that samples some of its actions, as in training, in place of the most likely ones."""

    def __init__(self, policy: Acts, sampling: Sampling):
        self.policy, self.sampling = policy, sampling

    def act(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        action, extras = self.policy.act(obs, carry, explore)
        sample, sampled_extras = self.policy.act(obs, carry, explore=True)
        is_sampled = self.sampling.coins.uniform(len(action)) < self.sampling.probability

        def choose(sampled: Tensor, other: Tensor) -> Tensor:
            return torch.where(is_sampled.view(-1, *[1] * (sampled.dim() - 1)), sampled, other)

        # some extras come with samples alone, such as the noise that later steps carry on
        for name, sampled in sampled_extras.items():
            extras = extras | {name: mapped(choose, sampled, extras.get(name, sampled))}
        return choose(sample, action), extras


class EvaluationInterruptedError(Exception):
    """A stop signal interrupted an evaluation. No state has changed; the evaluation is repeated after the resume."""


def evaluate(
    agent: Agent,
    addons: Addons,
    env: Any,
    episodes: int,
    per_task: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
    sampling: "Sampling | None" = None,
) -> dict[str, float]:
    """Returns the metrics `eval/*` of `episodes` episodes; for meta-learners, also the return before adaptation.

    per_task: also return the metrics of each task of a meta-learner. sampling: as in `play`. Raises
    EvaluationInterruptedError when `interrupted` returns True.
    """
    results = play(agent, addons, env, episodes, interrupted=interrupted, sampling=sampling)
    found = summary(results, addons.spec_after(env.spec).objective)
    if isinstance(agent, MetaAgent):
        first = agent.get_exploration_policy()
        before = play(first, addons, env, episodes, interrupted=interrupted, sampling=sampling)
        found["eval/return_before"] = float(np.mean([result.episode_return for result in before]))
        if per_task:
            found |= of_tasks(env.tasks.current(), before, results)
    return found


def of_tasks(tasks: list[Task], before: list[EpisodeResult], after: list[EpisodeResult]) -> dict[str, float]:
    """Returns the arguments of each task, and the mean return and success rate before and after adaptation to it."""
    found: dict[str, float] = {}
    for index, task in enumerate(tasks):
        for name, value in task.items():
            found[f"eval/task_{index}/{name}"] = value
        for phase, results in (("before", before), ("after", after)):
            own = [result for result in results if result.env == index]
            found[f"eval/task_{index}/return_{phase}"] = float(np.mean([result.episode_return for result in own]))
            rate = success_rate(own)
            if rate is not None:
                found[f"eval/task_{index}/success_{phase}"] = rate
    return found


def summary(results: list[EpisodeResult], objective: Objective | None) -> dict[str, float]:
    """Returns the metrics `eval/*` of these episodes."""
    returns, lengths, _, returned, _ = zip(*results, strict=True)
    metrics = {
        "eval/return_mean": float(np.mean(returns)),
        **spread("eval", returns),
        "eval/length_mean": float(np.mean(lengths)),
        **components("eval", returned),
        **shortfall(returned, lengths, objective),
    }
    rate = success_rate(results)
    if rate is not None:
        metrics["eval/success_rate"] = rate
    return metrics


def success_rate(results: list[EpisodeResult]) -> float | None:
    """Returns the fraction of successful episodes, or None if none reports success.

    If some report it, an episode without a report is not a success.
    """
    if all(result.success is None for result in results):
        return None
    return float(np.mean([result.success or 0.0 for result in results]))


def episodes_per_env(episodes: int, num_envs: int) -> np.ndarray:
    """Returns the number of episodes for each environment, [num_envs].

    The numbers are fixed in advance; the first `episodes` to end would be mostly short ones.
    """
    counts = np.full(num_envs, episodes // num_envs)
    counts[: episodes % num_envs] += 1
    return counts


@torch.no_grad()
def play(
    agent: Agent | Acts,
    addons: Addons,
    env: Any,
    episodes: int,
    explore: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
    watch: Callable[[], object] = lambda: None,
    sampling: "Sampling | None" = None,
    acted: Callable[[Batch], object] = lambda extras: None,
) -> list[EpisodeResult]:
    """Plays `episodes` episodes and returns their results. A meta-learner adapts to the tasks first.

    sampling: samples some of the actions. watch: called after adaptation, before the first episode. acted: called with
    the extras of every action before the environments take it. The environments must have a time limit. Raises
    EvaluationInterruptedError when `interrupted` returns True.
    """
    policy: Any = agent
    if isinstance(agent, MetaAgent):
        policy = adapted_policy(agent, addons, env)
    if sampling is not None:
        policy = SampledPolicy(policy, sampling)
    watch()
    num_envs = env.spec.num_envs
    objective = addons.spec_after(env.spec).objective
    remaining = episodes_per_env(episodes, num_envs)
    results: list[EpisodeResult] = []
    running_return = np.zeros((num_envs, env.spec.reward_dim))
    running_length = np.zeros(num_envs, dtype=np.int64)
    obs = env.reset()
    carry: Batch = {"first": torch.ones(num_envs, dtype=torch.bool, device=env.device)}
    while remaining.any():
        if interrupted():
            raise EvaluationInterruptedError
        action, extras = addons.act(policy, obs, carry, explore)
        acted(extras)
        step, events = env.step(action)
        weight = step["weight"].cpu().numpy()
        reward = step["reward"].cpu().numpy().astype(np.float64)
        running_return += weight[:, None] * reward.reshape(num_envs, -1)
        running_length += weight.astype(np.int64)
        ended = step["terminated"] | step["truncated"]
        success = {episode.env: episode.success for episode in events.episodes}
        for i in np.flatnonzero(ended.cpu().numpy()):
            if remaining[i] and weight[i]:  # weight 0: a restart of the environment cut the episode, so it is repeated
                remaining[i] -= 1
                total = events.own_returns.get(i, running_return[i])
                results.append(_result(total, int(running_length[i]), success.get(i), int(i), objective))
            running_return[i] = running_length[i] = 0
        obs = step["following"]
        carry = carried(extras | of_step(step, addons.reads_previous), ended)
    return results


def _result(
    total: np.ndarray, length: int, success: float | None, env: int, objective: Objective | None
) -> EpisodeResult:
    """Returns the result of an episode. total: the sum of each component of the reward, [reward_dim]."""
    returned: Return = float(total[0])
    if objective:
        returned = total.tolist()
    return EpisodeResult(score(returned, objective), length, success, returned, env)
