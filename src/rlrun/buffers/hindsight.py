"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495)."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.buffers.prioritized import Prioritized
from rlrun.buffers.replay import Reading, Replay, Returns
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.networks.inputs import is_image
from rlrun.settings import Fraction, PositiveFloat, config, register
from rlrun.types import Batch, Spec

TOLERANCE = 1e-3  # stored goals are rounded to float32, so recomputed rewards may differ by a little


class Goals(NamedTuple):
    """The goals of a sampled batch."""

    goal: Tensor  # [batch, *goal]; used for relabelled rows only
    relabelled: Tensor  # [batch] bool


class DistanceRewards:
    """Rewards by the Euclidean distance of the goals: 0 if it is below a limit, else -1."""

    def __init__(self, limit: float):
        self.limit = limit

    def __call__(self, achieved: Tensor, desired: Tensor) -> tuple[Tensor, None]:
        """Returns the rewards [batch] of goals [batch, *goal]. Terminations stay as stored."""
        distance = (achieved - desired).flatten(1).norm(dim=1)
        return torch.where(distance < self.limit, 0.0, -1.0), None


@register("buffer", "hindsight")
class Hindsight(Replay):
    """Uniform replay that gives some of the sampled rows another goal: one that the agent achieved in the same episode.

    The new goal of a row is the achieved goal after a random step of its episode. `future`: this or a later step;
    `final`: the last step; `episode`: any step. Of a running episode, the steps stored so far count.

    `compute_reward` of the environment gives the rewards under the new goal, or with `reward=distance` the distance of
    the goals. If the environment has
    `compute_terminated`, this decides which steps terminate under the new goal, and n-step returns end there;
    otherwise the stored terminations stay. Rows that are not relabelled stay as stored, and so do recurrent states,
    which burn-in refreshes.
    """

    @config
    class Config(Replay.Config):
        strategy: Literal["future", "final", "episode"]
        her_ratio: Fraction
        achieved_goal: str
        desired_goal: str
        reward: Literal["environment", "distance"]
        distance: PositiveFloat

    def __init__(
        self,
        cfg: Any,
        spec: Spec,
        reading: Reading,
        seed: int,
        device: torch.device,
    ):
        super().__init__(cfg, spec, reading, seed, device)
        achieved = _goal_space(spec.obs, "achieved_goal", cfg.achieved_goal)
        desired = _goal_space(spec.obs, "desired_goal", cfg.desired_goal)
        if achieved.shape != desired.shape:
            raise ConfigError(
                f"algo.buffer.achieved_goal={cfg.achieved_goal}: has shape {achieved.shape}, but "
                f"algo.buffer.desired_goal={cfg.desired_goal} has shape {desired.shape}"
            )
        if "policy" in reading.extras:
            raise ConfigError(
                f"algo.buffer={self.registered} is not supported by algorithms that store search policies, because "
                "these were searched for the original goals"
            )
        if spec.holds:
            raise ConfigError(f"algo.buffer={self.registered} is not supported with the wrapper hold")
        if reading.own_rewards > 1:
            raise ConfigError("algo.buffer: hindsight is not supported for reward vectors")
        self.compute: Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]
        if cfg.reward == "distance":
            self.compute = DistanceRewards(cfg.distance)
        elif spec.goal_rewards is None:
            raise ConfigError(
                f"algo.buffer={self.registered} is not supported with these environments: only env.backend=sync, "
                "async and torch can call compute_reward of a single environment; or set algo.buffer.reward=distance"
            )
        else:
            spec.goal_rewards.open(achieved, desired)
            self.compute = spec.goal_rewards
        self.random = Stream(seed, "hindsight", device)
        self.checks = True  # whether recomputed rewards are still compared with stored ones

    def drawn(self, flat_index: Tensor) -> Batch:
        """Returns the batch for flat indices [batch], in which a share of the rows have another goal."""
        relabelled = self.random.uniform(len(flat_index)) < self.cfg.her_ratio
        goal_index = self._goal_index(flat_index)
        goal = self.field(f"next_obs.{self.cfg.achieved_goal}", goal_index)
        if self.checks:
            self._check_rewards(flat_index[~relabelled])
        return self._read(flat_index, partial(self._relabelled_returns, Goals(goal, relabelled)))

    def _goal_index(self, flat_index: Tensor) -> Tensor:
        """Returns the flat indices of the steps whose achieved goals become the new goals, [batch]."""
        first, last = self.episode_of(flat_index)
        if self.cfg.strategy == "final":
            return last
        if self.cfg.strategy == "future":
            first = flat_index
        num_steps = (last - first) // self.spec.num_envs + 1
        uniform = self.random.uniform(len(flat_index))
        step = (uniform * num_steps).long().clamp(max=num_steps - 1)
        return first + self.spec.num_envs * step

    def _relabelled_returns(self, goals: Goals, flat_index: Tensor, n_step: int) -> tuple[Batch, Tensor, Batch]:
        """Returns what `_n_step_returns` does, under the new goals.

        flat_index: the indices of the sampled rows [batch], or of their sequences [time * batch].
        """
        goals = _repeated(goals, len(flat_index) // len(goals.relabelled))
        following = self._following(flat_index, n_step)
        reward, terminated = self._step_rewards(following, goals)
        goes_on = (1 - terminated[:-1]).cumprod(0)
        mask = self._same_episode_mask(following)
        mask[1:] *= goes_on.unsqueeze(-1)
        n_steps = mask.sum(0).squeeze(-1)
        last_step = n_steps.long() - 1
        last_index = flat_index + self.spec.num_envs * last_step

        batch = self._with_goals(self._unpacked(flat_index), goals)
        end = self._with_goals(self._unpacked(last_index), goals)
        self._put_sums(batch, reward, mask)
        batch["n_steps"] = n_steps
        batch["terminated"] = terminated.gather(0, last_step.unsqueeze(0)).squeeze(0)
        return batch, last_index, end

    def _step_rewards(self, following: Tensor, goals: Goals) -> tuple[Tensor, Tensor]:
        """Returns rewards [time, batch, columns] and terminations [time, batch] of single steps under the new goals.

        following: flat indices [time, batch]; beyond the newest row, the results are those of the newest. Columns
        with intrinsic rewards stay as stored.
        """
        newest = self.num_complete_rows * self.spec.num_envs - 1
        following = following.clamp(max=newest)
        reward = self.field("reward", following).view(*following.shape, -1)
        terminated = self.field("terminated", following)
        rows = goals.relabelled.nonzero().squeeze(-1)
        if len(rows):
            achieved = self.field(f"next_obs.{self.cfg.achieved_goal}", following[:, rows])
            goal = goals.goal[rows].expand_as(achieved)
            new_reward, new_terminated = self.compute(achieved.flatten(0, 1), goal.flatten(0, 1))
            reward[:, rows, 0] = new_reward.view(len(following), -1)
            if new_terminated is not None:
                terminated[:, rows] = new_terminated.view(len(following), -1)
        return reward, terminated

    def _with_goals(self, rows: Batch, goals: Goals) -> Batch:
        """Returns stored rows with the new goals in their observations."""
        for name in (f"obs.{self.cfg.desired_goal}", f"next_obs.{self.cfg.desired_goal}"):
            stored = rows[name]
            relabelled = goals.relabelled.view(-1, *[1] * (stored.dim() - 1))
            rows[name] = torch.where(relabelled, goals.goal.to(stored.dtype), stored)
        return rows

    def _sequences(
        self,
        flat_index: Tensor,
        returns: Returns,
        length: int,
        n_step: int = 1,
        burn_in: int = 0,
    ) -> Batch:
        """Returns sequences as `Replay._sequences` does; steps after a termination under the new goal have mask 0."""
        batch = super()._sequences(flat_index, returns, length, n_step, burn_in)
        ends_here = ((batch["terminated"] > 0) & (batch["n_steps"] == 1)).long()
        ends_here[:burn_in] = 0  # a goal that was also achieved during the burn-in must not mask the sequence
        ended_before = ends_here.cumsum(0) - ends_here
        batch["mask"] = batch["mask"] * (ended_before == 0)
        return batch

    def _check_rewards(self, flat_index: Tensor) -> None:
        """Warns once if the environment's rewards of stored steps differ from the recomputed ones."""
        flat_index = flat_index[self.field("weight", flat_index) > 0]
        if not len(flat_index):
            return
        achieved = self.field(f"next_obs.{self.cfg.achieved_goal}", flat_index)
        goal = self.field(f"obs.{self.cfg.desired_goal}", flat_index)
        recomputed, _ = self.compute(achieved, goal)
        stored = self.field("reward", flat_index).view(len(flat_index), -1)[:, 0]
        differs = ~torch.isclose(recomputed, stored, rtol=TOLERANCE, atol=TOLERANCE)
        if not differs.any():
            return
        self.checks = False
        example = differs.nonzero()[0]
        logging.getLogger(__name__).warning(
            "algo.buffer=%s: compute_reward returns %g for a step whose reward was %g; relabelled rewards are those of "
            "compute_reward, without wrappers that change rewards",
            self.registered,
            recomputed[example].item(),
            stored[example].item(),
        )


@register("buffer", "prioritized_hindsight")
class PrioritizedHindsight(Hindsight, Prioritized):
    """Hindsight with prioritised replay: rows are drawn by their priorities, and then relabelled."""

    @config
    class Config(Hindsight.Config, Prioritized.Config):
        pass


def _goal_space(space: Space, key: str, path: str) -> Space:
    """Returns the space of the entry at a dotted path of an observation. Raises ConfigError if it cannot be a goal."""
    entry = space
    for name in path.split("."):
        if not isinstance(entry, spaces.Dict) or name not in entry.spaces:
            raise ConfigError(
                f"algo.buffer.{key}={path}: the observation {space} has no such entry; hindsight needs goals"
            )
        entry = entry[name]
    if isinstance(entry, spaces.Dict) or is_image(entry):
        raise ConfigError(f"algo.buffer.{key}={path}: must be one array and not an image, but is {entry}")
    return entry


def _repeated(goals: Goals, times: int) -> Goals:
    """Returns goals [batch] repeated for every timestep of sequences, [times * batch]."""
    if times == 1:
        return goals
    one_per_dim = [1] * (goals.goal.dim() - 1)
    return Goals(goals.goal.repeat(times, *one_per_dim), goals.relabelled.repeat(times))
