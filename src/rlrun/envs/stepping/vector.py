"""Steps all environments of a run as one batch: actions and results are tensors, resets happen inside the step."""

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv as GymVectorEnv
from torch import Tensor, nn

from rlrun.core.random import Stream
from rlrun.envs.config import EnvConfig
from rlrun.envs.equations import equations
from rlrun.envs.making.explained import explained
from rlrun.envs.making.make import Recipe, recipe
from rlrun.envs.making.native import own_verdict, simulator
from rlrun.envs.making.tasks import Tasks
from rlrun.envs.origin import origin
from rlrun.envs.recording import tiled
from rlrun.envs.saving.examination import examined
from rlrun.envs.saving.selftest import EPISODE_END, NATIVE, REPLAY
from rlrun.envs.saving.state import Tree
from rlrun.envs.saving.verdicts import Verdict
from rlrun.envs.stepping import reports
from rlrun.envs.stepping.accelerated import Accelerated
from rlrun.envs.stepping.actions import conversion
from rlrun.envs.stepping.autoreset import Arrays, Infos, Results, SameStep, adapter, copied, put
from rlrun.envs.stepping.executed import replaced
from rlrun.envs.stepping.goal_rewards import GoalRewards
from rlrun.envs.stepping.obs_adapter import as_tensors
from rlrun.envs.stepping.pool import SyncPool, VectorPool
from rlrun.envs.stepping.process import check_folder, unchanged
from rlrun.envs.stepping.random_actions import sampled
from rlrun.envs.stepping.ray_pool import RayPool
from rlrun.envs.stepping.reports import Reports
from rlrun.envs.stepping.returned import (
    BOOLS,
    NUMBERS,
    WHOLE,
    ReturnedError,
    batched,
    check_observation,
    check_rows,
    check_stored,
    fraction,
)
from rlrun.envs.stepping.slot import LOST, EnvError
from rlrun.envs.stepping.workers import AsyncPool
from rlrun.envs.wrappers.reward_vectors import reward_shape
from rlrun.errors import ConfigError, RunError, reason
from rlrun.images import rgb
from rlrun.nested import index as rows_of
from rlrun.nested import mapped
from rlrun.ray_connection import connected
from rlrun.types import MASK, NOTHING, Episode, Events, Obs, Spec, Step

RESTARTS = 10  # the most restarts of one environment without a finished step in between; then the run fails


class VectorClock:
    """The counters and current observations of a VectorEnv.

    They are in an object of their own because setting an attribute of an nn.Module is slow.
    """

    def __init__(
        self, num_envs: int, reward_shape: tuple[int, ...] = (), steps: int = 0, reports_success: bool = False
    ):
        self.steps = steps  # vector steps since the start of the run
        self.reports_success = reports_success  # whether a step has reported success; from then on, none means 0
        # sums of rewards of the current episodes, which do not end where only the agent's episode ends (a lost life)
        self.returns = np.zeros((num_envs, *reward_shape))
        self.begun = np.full(num_envs, steps)  # `steps` when the current episodes began
        self.successes = np.full(num_envs, np.nan)  # sums of the successes that steps reported; NaN without a report
        self.obs: Any = None  # tensors to act on next; None before the first reset
        # index -> reason, for environments whose state could not be restored; the next step starts new episodes there
        self.cut: dict[int, str] = {}
        # index -> restarts since the last finished step, for environments that failed in the last step
        self.restarts: dict[int, int] = {}
        self.lines: list[str] = []  # messages about restarts, reported in the events of the next step

    def count_from_here(self, rows: int | slice | np.ndarray) -> None:
        """Resets the counters of these rows, whose episodes begin now. rows: an index into [num_envs]."""
        self.returns[rows] = 0.0
        self.begun[rows] = self.steps
        self.successes[rows] = np.nan


class VectorEnv(nn.Module):
    """Wraps any Gymnasium vector env; `make` builds one from a config.

    It is a module because its extra state, which decides how the environments continue, belongs in every snapshot.
    """

    def __init__(
        self,
        venv: GymVectorEnv,
        seed: np.random.SeedSequence,
        device: torch.device | str = "cpu",
        *,
        name: str = "env",
        frame_stack: int = 1,
        recipe: Recipe | None = None,
        restart: bool = False,
        verdict: Verdict | None = None,
        first: int = 0,
    ):
        """restart: replace environments that fail; needs a VectorPool, which `make` builds.

        verdict: the result of a self-test; None: `venv` can save its state if it has methods for that. first: index of
        the first environment, if these are a block of the environments of a run.
        """
        super().__init__()
        self.venv: Any = venv  # Any, because Gymnasium's annotation allows a single seed only
        self.pool: VectorPool | None = None
        self.lost: dict[int, EnvError] = {}
        holds = False
        if isinstance(venv, VectorPool):
            self.pool, self.lost = venv, venv.lost
            holds, declared = venv.holds, venv.reports
            self.reward_shape = venv.reward_shape
        else:
            declared = reports.declared(venv)
            self.reward_shape = reward_shape(venv)
        self.name, self.recipe, self.restart, self.first = name, recipe, restart, first
        self.folder = os.getcwd()
        self.origin: dict[str, object] = {"id": name, "wrappers": {}}  # stored in data sets of its episodes
        self.tasks = Tasks({}, seed, venv.num_envs)
        self.goal_rewards: GoalRewards | None = None  # None if there are no single environments
        self.digests: dict[str, str] = getattr(venv, "digests", {})  # `key=value` -> SHA-256 of that data
        self.device = torch.device(device)
        self.seeds = self._seeds_from(seed)
        self.actions = conversion(venv.single_action_space)
        self.refuses_masks = False  # whether masks in infos of a vector env, which are not used, are an error
        self.batch = batched(venv.single_observation_space, venv.num_envs)
        obs_space = as_tensors(venv.single_observation_space)
        rewards = math.prod(self.reward_shape)
        native = venv.single_action_space
        self.spec = Spec(
            obs_space,
            self.actions.space,
            venv.num_envs,
            rewards,
            frame_stack=frame_stack,
            native_action=native,
            holds=holds,
            reports=declared,
        )
        self.read_reports: Reports = {}  # those that steps hold, because somebody reads them
        self.adapter: SameStep | None = None  # a pool needs none
        if self.pool is None:
            self.adapter = adapter(venv)
        self.clock = VectorClock(venv.num_envs, self.reward_shape)
        self._tensor: Callable[[np.ndarray], Tensor] = self._to_device
        if self.device.type == "cpu":
            self._tensor = torch.from_numpy
        self._ones = torch.ones(venv.num_envs, device=self.device)
        self._all_false = torch.zeros(venv.num_envs, dtype=torch.bool, device=self.device)
        self.verdict = verdict or own_verdict(venv)
        self._refused: dict[int, str] = {}  # VectorClock.cut as the last restore left it, for `exactness`

    @classmethod
    def make(
        cls,
        cfg: EnvConfig,
        seed: np.random.SeedSequence,
        device: torch.device | str = "cpu",
        one: Recipe | None = None,
    ) -> "VectorEnv":
        """Returns the environments of a config. Raises ConfigError if they cannot be made.

        one: the recipe of the config, if another process has made it, which may know more ids than this one.
        """
        with unchanged(cfg.id):
            if one is None:
                one = recipe(cfg)
            made = cls._made(cfg, one, seed, device)
        made.origin = origin(cfg, one)
        made.spec = dataclasses.replace(made.spec, time_limit=one.time_limit)
        return made

    @classmethod
    def _made(
        cls, cfg: EnvConfig, one: Recipe, seed: np.random.SeedSequence, device: torch.device | str
    ) -> "VectorEnv":
        if one.vectorised or cfg.backend in ("native", "torch", "envpool"):
            check_single(cfg)
            venv, verdict = simulator(one, cfg)
            if not isinstance(venv, GymVectorEnv):
                made: Any = Accelerated(venv, seed, device, name=cfg.id)
                if not one.vectorised:
                    made.goal_rewards = GoalRewards(one, False, cfg.timeout_s)
                    made.spec = dataclasses.replace(made.spec, goal_rewards=made.goal_rewards)
                made.spec = dataclasses.replace(made.spec, equations=equations(cfg, made.actions, made.device))
            else:
                made = cls(venv, seed, device, name=cfg.id, frame_stack=num_frames(cfg), verdict=verdict)
                made.refuses_masks = cfg.action_mask
            return made  # type: ignore[no-any-return]
        return cls.block(cfg, one, examined(one, cfg), seed, device)

    @classmethod
    def block(
        cls,
        cfg: EnvConfig,
        one: Recipe,
        verdict: Verdict,
        seed: np.random.SeedSequence,
        device: torch.device | str,
        first: int = 0,
    ) -> "VectorEnv":
        """Returns single environments whose self-test had this verdict.

        first: index of the first one, if they are a block of the environments of a run. Their tasks, their seeds and
        the messages about them follow from their indices in the run.
        """
        if verdict.masked is not None:
            one = dataclasses.replace(one, masked=verdict.masked)
        source = seed
        if cfg.instance_seed is not None:
            source = np.random.SeedSequence(cfg.instance_seed)
        tasks = Tasks(cfg.task_kwargs, source, cfg.num_envs, first)
        recipes = [one.at(index, **task) for index, task in zip(tasks.indices, tasks.current(), strict=True)]
        with explained(one.spec, one.kwargs, cfg.id):
            pool: VectorPool
            if cfg.backend == "async":
                pool = AsyncPool(recipes, cfg.timeout_s)
            elif cfg.backend == "ray":
                ray = connected(cfg.ray.address, "env.ray.address", "env.backend=ray")
                pool = RayPool(recipes, cfg.timeout_s, ray, cfg.ray, verdict.versions)
            else:
                pool = SyncPool(recipes)
        try:
            made = cls(
                pool,
                seed,
                device,
                name=cfg.id,
                frame_stack=num_frames(cfg),
                recipe=one,
                restart=cfg.on_failure == "restart",
                verdict=verdict,
                first=first,
            )
        except BaseException:
            pool.close(terminate=True)
            raise
        made.tasks = tasks
        made.goal_rewards = GoalRewards(one, not isinstance(pool, SyncPool), cfg.timeout_s)
        made.spec = dataclasses.replace(
            made.spec,
            goal_rewards=made.goal_rewards,
            equations=equations(cfg, made.actions, made.device),
            time_limit=one.time_limit,
            log_info=one.log_info,
        )
        return made

    @property
    def num_envs(self) -> int:
        return self.venv.num_envs

    @property
    def reports_success(self) -> bool:
        """Whether any step so far has reported success."""
        return self.clock.reports_success

    @property
    def obs(self) -> Obs:
        """The observations to act on next: a tensor [num_envs, ...] or a dict of tensors; None before a reset."""
        return self.clock.obs

    def reset(self, seed: np.random.SeedSequence | None = None) -> Obs:
        """Starts new episodes in all environments and returns the observations.

        The first reset is always seeded; later resets are seeded only if `seed` is given.
        """
        if seed is not None:
            self.seeds = self._seeds_from(seed)
        seeds = None
        if seed is not None or self.clock.obs is None:
            seeds = self.seeds
        self.clock = VectorClock(self.num_envs, self.reward_shape, self.clock.steps, self.clock.reports_success)
        with unchanged(self.name):
            obs = self._reset(seeds)
        self.clock.obs = self._tensors(obs, "observation")
        return self.clock.obs

    def draw_tasks(self) -> None:
        """Gives every environment a new task from the ranges of env.task_kwargs. A reset must follow.

        The new environments get new seeds. Does nothing if there are no ranges.
        """
        if not self.tasks.ranges:
            return
        self._set_tasks(self.tasks.number + 1)
        self.seeds = self._next_seeds()
        self.clock.obs = None  # so that the reset is seeded

    def _set_tasks(self, number: int) -> None:
        assert self.pool is not None
        self.tasks.number = number
        self.pool.set_tasks(self.tasks.current())
        self._check_lost()

    def start(self, seeds: dict[int, int]) -> Obs:
        """Starts new episodes in some environments and returns all observations. seeds: index -> seed.

        Their current episodes are dropped: no step reports their returns.
        """
        if self.pool is None:
            raise ConfigError(f"env {self.name}: a vector env cannot start single environments")
        clock = self.clock
        clock.cut = {index: reason for index, reason in clock.cut.items() if index not in seeds}
        for index, seed in seeds.items():
            self.seeds[index] = seed
            self.pool.start(index, seed)
            clock.count_from_here(index)
        self._check_lost()
        clock.obs = self._tensors(self.pool.observations, "observation")
        return clock.obs

    def begin(self, action: Tensor) -> None:
        """Begins a step in the background. `step` must be called next, with the same action, to complete it.

        The results are those of `step` alone. Without workers, single environments are stepped before this returns,
        and for vector envs this does nothing.
        """
        if self.pool is not None:
            self.pool.idle = self.clock.cut
            self.pool.begin(self.actions.to_native(self._executed(action)))

    def step(self, action: Tensor) -> tuple[Step, Events]:
        """Steps every environment. `action` [num_envs, ...] in the units of `spec.action`, on any device.

        Raises RunError if an environment raises, dies, hangs, or returns NaN or infinity. With `restart`, an
        environment that raises, dies or hangs is replaced instead. Its row is then masked: weight 0, truncated,
        `next_obs` is the observation acted on, `following` the first of a new episode. The interrupted episode is not
        counted, and the events report the failure. Other rows are not affected.
        """
        clock = self.clock
        clock.steps += 1
        # in numpy, because a torch operation on a cold cache takes a tenth of the time of a physics step
        actions = self._executed(action)
        if clock.cut:
            if self.pool is None:
                return self._restarted_step(actions)
            self.pool.idle = clock.cut
        try:
            native = self.actions.to_native(actions)
            if self.adapter is None:  # an EnvSlot has checked its own step
                results = self.venv.step(native)
            else:
                results = self.adapter.step(native)
                self._check(results)
        except Exception as error:
            raise self._stopped(error) from error
        finally:
            check_folder(self.name, self.folder)
        obs, rewards, ended, cut, infos = results
        if self.lost or clock.cut or clock.restarts:
            obs, infos = self._without_lost(obs, infos)
        if self.spec.holds and "n_steps" not in infos:  # no environment has finished its step
            infos = infos | {"n_steps": np.ones(self.num_envs, np.float32), "drawn_rewards": np.zeros_like(rewards)}
        reward = rewards.astype(np.float32)
        if not finite(reward):
            raise self._not_finite("reward", reward, actions)
        next_obs = None
        final_obs, weights = infos.get("final_obs"), infos.get("weight")
        if final_obs is not None:
            next_obs = self._tensors(final_obs, "final observation", actions)
        clock.obs = following = self._tensors(obs, "observation", actions)
        if next_obs is None:
            next_obs = following
        weight = self._ones
        if weights is not None:
            weight = self._tensor(weights)
        terminated, truncated, events = self._count(rewards, ended, cut, infos)
        actions = replaced(actions, infos.get("executed"), self.actions)
        step = {
            "following": following,
            "next_obs": next_obs,
            "reward": self._tensor(reward),
            "terminated": terminated,
            "truncated": truncated,
            "weight": weight,
            "executed": self._tensor(actions),
        }
        if self.spec.holds:
            step["n_steps"] = self._tensor(infos["n_steps"])
            step["drawn_reward"] = self._tensor(infos["drawn_rewards"].astype(np.float32))
        if self.read_reports:
            reported = infos.get("reports")
            step |= self._reported({} if reported is None else reported, weights)
        return step, events

    def _check(self, results: Results) -> None:
        """Raises ReturnedError if a vector env returned a step of a wrong form."""
        obs, reward, terminated, truncated, infos = results
        final_obs, successes = infos.get("final_obs"), infos.get("success")
        check_observation(self.batch, obs)
        if final_obs is not None:
            check_observation(self.batch, final_obs)
        check_rows("its reward", reward, (self.num_envs, *self.reward_shape), NUMBERS)
        check_rows("its terminated", terminated, (self.num_envs,), BOOLS)
        check_rows("its truncated", truncated, (self.num_envs,), BOOLS)
        if successes is not None:
            check_rows("success in its infos", successes, (self.num_envs,), NUMBERS)
            for success in successes[~np.isnan(successes)].tolist():
                fraction("success in its infos", success)

    def _reported(self, values: object, weight: np.ndarray | None) -> Step:
        """Returns the reports that somebody reads; masked rows (weight 0) hold 0."""
        masked = None if weight is None else weight == 0
        try:
            found = reports.batch(self.read_reports, values, self.num_envs, masked)
        except ReturnedError as error:
            raise self._stopped(error) from error
        return {name: self._tensor(value) for name, value in found.items()}

    def sample(self, random: Stream) -> Tensor:
        """Returns random actions [num_envs, ...] in the units of `spec.action`; see `random_actions.sampled`."""
        return sampled(self.spec, self.obs, random, self.device)

    def render(self) -> np.ndarray:
        """Returns one image [height, width, 3] of all environments, in rows from left to right.

        Raises ConfigError if they do not draw images, and RunError if one fails.
        """
        if self.pool is None:
            images = self.venv.render()
        else:
            images = self.pool.each("render")
            self._check_lost()
        images = [image for image in images or () if image is not None]
        if not images:
            raise ConfigError(f"env {self.name}: draws no images; set env.kwargs.render_mode=rgb_array")
        try:
            return tiled([*map(rgb, images)])
        except ValueError as error:
            raise ConfigError(f"env {self.name}: draws {error}") from None

    def pending_episodes(self) -> list[Episode]:
        """Returns ended episodes that no step has reported: always none, because every step reports its own."""
        return []

    def set_parameters(self, parameters: dict[str, float]) -> None:
        """Sets attributes of every environment, by name, when its next episode begins. Raises RunError."""
        if self.pool is not None:
            self.pool.set_parameters(parameters)
            self._check_lost()

    def close(self) -> None:
        """Closes all environments and ends their processes. May be called twice."""
        if self.goal_rewards is not None:
            self.goal_rewards.close()
        try:
            self.venv.close()
        except Exception:
            self._kill()

    @property
    def method(self) -> str:
        """How environments are saved: "native", "replay" or "episode end".

        Read this before the first step: for "replay", the first read starts the recording of episodes, and an episode
        can only be saved if it was recorded from its beginning.
        """
        if self.verdict.method == REPLAY and self.pool is not None and not self.pool.recording:
            self.pool.record()
        return self.verdict.method

    @property
    def exactness(self) -> str:
        """Whether a restored environment continues bit for bit: "exact", or "not exact, because ..."."""
        if self.method == EPISODE_END:
            return f"not exact, because episodes of {self.name} end at a restore: {self.verdict.reason}"
        if self._refused:
            which = ", ".join(f"#{self.first + index}" for index in self._refused)
            reasons = "; ".join(dict.fromkeys(self._refused.values()))
            return f"not exact, because episodes of {self.name} ended at this restore ({which}): {reasons}"
        return "exact"

    def get_extra_state(self) -> Tree:
        clock = self.clock
        obs = envs = None
        if clock.obs is not None:
            obs = _numpy(clock.obs)
        if self.pool is not None and clock.obs is not None and self.method != EPISODE_END:
            envs = self.pool.each("save", idle=clock.cut)
            self._check_lost()
            reasons = clock.cut | {index: error.reason for index, error in self.lost.items()}
            for index, reason in reasons.items():
                envs[index] = {LOST: reason}
        elif self.adapter is not None and self.method == NATIVE:
            envs = [self.adapter.save()]
        counts = {"steps": clock.steps, "returns": clock.returns.copy(), "begun": clock.begun.copy()}
        tree = {**counts, "obs": obs, "envs": envs, "seeds": list(self.seeds), "reports_success": clock.reports_success}
        if not np.isnan(clock.successes).all():
            tree["successes"] = clock.successes.copy()
        if self.tasks.number:
            tree["tasks"] = self.tasks.number
        return tree

    def set_extra_state(self, tree: Any) -> None:
        """Restores a state. Environments that were saved without their state start new episodes in the next step.

        Raises an exception of any type for a state that does not fit, because snapshots may be untrusted.
        """
        seeds = np.array(tree["seeds"], np.uint32)
        check_rows("seeds", seeds, (self.num_envs,), WHOLE)
        self.clock = clock = VectorClock(
            self.num_envs, self.reward_shape, tree["steps"], bool(tree.get("reports_success"))
        )
        self.seeds, self._refused = seeds.tolist(), {}
        number = int(tree.get("tasks", 0))
        if number != self.tasks.number:
            self._set_tasks(number)
        if tree["obs"] is None:
            return
        check_stored(self.batch, tree["obs"])
        check_rows("returns", tree["returns"], clock.returns.shape, NUMBERS)
        check_rows("begun", tree["begun"], clock.begun.shape, WHOLE)
        clock.obs = self._tensors(tree["obs"], "observation")
        clock.cut = self._refused = self._restore(tree["envs"])
        clock.returns, clock.begun = tree["returns"].copy(), tree["begun"].copy()
        if "successes" in tree:
            clock.successes = tree["successes"].copy()

    def _restore(self, trees: list[Tree] | None) -> dict[int, str]:
        """Restores every environment. Returns index -> reason for those that could not be restored."""
        if self.adapter is not None and trees is not None and self.method == NATIVE:
            self.adapter.load(trees[0])
            return {}
        if self.pool is None or trees is None:
            return dict.fromkeys(range(self.num_envs), "it was saved without its state")
        lines = self.pool.each("load", trees, [self.pool.replay_limit_s] * self.num_envs)
        self._check_lost()
        for index, error in self.lost.items():
            lines[index] = error.reason
        return {index: line for index, line in enumerate(lines) if line}

    def _check_lost(self) -> None:
        """Raises RunError if an environment has failed, unless failed environments are restarted in the next step."""
        if self.lost and not self.restart:
            error = next(iter(self.lost.values()))
            raise self._stopped(error) from error

    def _without_lost(self, obs: Arrays, infos: Infos) -> tuple[Arrays, Infos]:
        """Starts new episodes in environments that failed or were not restored.

        Returns the results of the step with the new observations in these rows, and with weight 0 for them.
        """
        assert self.pool is not None
        clock = self.clock
        self._check_lost()
        clock.restarts = {index: clock.restarts.get(index, 0) for index in self.lost}
        rows = sorted({*clock.cut, *self.lost})
        if not rows:
            return obs, infos
        before = _numpy(clock.obs)
        weight = np.ones(self.num_envs, np.float32)
        for index in rows:
            self._start(index)
        final_obs = infos.get("final_obs")
        if final_obs is None:
            final = copied(self.pool.observations)
        else:
            final = copied(final_obs)
        for index in rows:
            put(final, index, rows_of(before, index))
            weight[index] = 0.0
        clock.cut = self.pool.idle = {}
        infos["final_obs"], infos["weight"] = final, weight
        return self.pool.observations, infos

    def _start(self, index: int) -> None:
        """Starts a new episode with a new seed in one environment, which is replaced if it has failed.

        The new seed is derived from the last seed and the step, so every resume from one snapshot gets the same seed.
        Raises RunError after too many restarts.
        """
        assert self.pool is not None
        clock = self.clock
        error = self.lost.get(index)
        while True:
            named = self._named(index)
            if error is not None:
                count = clock.restarts.get(index, 0) + 1
                clock.restarts[index] = count
                if count > RESTARTS:
                    self._kill()
                    raise RunError(f"{named}: {error.reason}; {RESTARTS} restarts in a row did not help") from error
            self.seeds[index] = child_seed(np.random.SeedSequence([self.seeds[index], clock.steps]), 0)
            self.pool.start(index, self.seeds[index])
            if error is not None:
                clock.lines.append(f"{named}: {error.reason}; restarted with seed {self.seeds[index]}")
            error = self.lost.get(index)
            if error is None:
                return

    def _seeds_from(self, seed: np.random.SeedSequence) -> list[int]:
        return [child_seed(seed, self.first + index) for index in range(self.num_envs)]

    def _next_seeds(self) -> list[int]:
        """Returns new seeds, derived from the last ones and the step, so that every resume gets the same ones."""
        return [child_seed(np.random.SeedSequence([seed, self.clock.steps]), 0) for seed in self.seeds]

    def _executed(self, action: Tensor) -> np.ndarray:
        return self.actions.clip(action.cpu().numpy())

    def _count(
        self, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, infos: Infos
    ) -> tuple[Tensor, Tensor, Events]:
        """Returns terminated, truncated (False for rows that are also terminated), and what else happened."""
        clock = self.clock
        events = NOTHING
        clock.returns += reward
        successes, continues, weight = infos.get("success"), infos.get("continues"), infos.get("weight")
        if successes is not None:
            self._count_successes(successes, weight)
        measures, logged = infos.get("measures"), infos.get("logged", ())
        if "n_steps" in infos:
            measures = {"frames": infos["n_steps"]}
        if measures or logged or clock.lines:
            events = Events(measures=measures or {}, logged=logged, restarted=clock.lines)
            clock.lines = []
        ended = terminated | truncated
        if not np.count_nonzero(ended):  # ten times faster than any()
            return self._all_false, self._all_false, events
        over = ended  # rows whose environment begins a new episode
        if continues is not None:
            over = ended & ~continues
            if weight is not None:  # a simulator's reset within an episode is not a step of it
                clock.begun[continues & (weight == 0)] += 1
        reported = over  # rows whose episode is reported: not those of masked steps
        if weight is not None:
            reported = over & (weight > 0)
        rows = np.flatnonzero(reported)
        lengths = clock.steps - clock.begun[rows]
        columns = [clock.returns[rows], lengths, rows, terminated[rows]]
        if clock.reports_success:
            success = np.zeros(self.num_envs)
            if successes is not None:
                success = np.nan_to_num(successes)
            columns += [success[rows], np.nan_to_num(clock.successes[rows]) / lengths]
        episodes = list(map(Episode, *(column.tolist() for column in columns)))
        if "last_infos" in infos:
            last = infos["last_infos"]
            episodes = [episode._replace(infos=last[episode.env]) for episode in episodes]
        clock.count_from_here(over)
        events = events._replace(episodes=episodes, own_returns=infos.get("own_returns", {}))
        return self._tensor(terminated.copy()), self._tensor(truncated & ~terminated), events

    def _count_successes(self, found: np.ndarray, weight: np.ndarray | None) -> None:
        """Adds the successes that the steps reported to those of the current episodes."""
        reported = ~np.isnan(found)
        if weight is not None:
            reported &= weight > 0
        successes = self.clock.successes
        successes[reported] = np.nan_to_num(successes[reported]) + found[reported]
        self.clock.reports_success |= bool(reported.any())

    def _restarted_step(self, actions: np.ndarray) -> tuple[Step, Events]:
        """Starts new episodes in all environments, after a restore without saved states.

        Returns a step in which all rows are masked and truncated.
        """
        clock = self.clock
        before = clock.obs
        clock.obs = self._tensors(self._reset(self._next_seeds()), "observation")
        clock.cut = {}
        clock.count_from_here(slice(None))
        weight = torch.zeros_like(self._ones)
        reward = weight.new_zeros(self.num_envs, *self.reward_shape)
        step = {
            "following": clock.obs,
            "next_obs": before,
            "reward": reward,
            "terminated": self._all_false,
            "truncated": ~self._all_false,
            "weight": weight,
            "executed": self._tensor(actions),
        }
        step |= self._reported(dict.fromkeys(self.read_reports, [None] * self.num_envs), None)
        return step, NOTHING

    def _reset(self, seeds: list[int] | None) -> Arrays:
        try:
            obs, infos = self.venv.reset(seed=seeds)
            if self.pool is None:
                check_observation(self.batch, obs)
                if self.refuses_masks and MASK in infos:
                    raise ReturnedError(
                        f"its infos have an {MASK}: a vector env must return it as an entry of its observations; "
                        f"env.{MASK}=false ignores masks"
                    )
        except Exception as error:
            raise self._stopped(error) from error
        if self.adapter is not None:
            self.adapter.after_reset()
            return obs  # type: ignore[no-any-return]
        self._check_lost()
        for index in list(self.lost):
            self._start(index)
        return self.venv.observations  # its memory also holds the observations of restarted environments

    def _tensors(self, obs: Any, what: str, actions: np.ndarray | None = None, space: Any = None) -> Any:
        """Returns observations as tensors, floats as float32. Raises RunError if a number is not finite."""
        if space is None:
            space = self.spec.obs
        if isinstance(space, spaces.Dict):
            return {key: self._tensors(obs[key], f"{what} {key!r}", actions, part) for key, part in space.items()}
        if space.dtype.kind == "f":
            obs = obs.astype(np.float32)  # a copy, because the simulator reuses its memory
            if not finite(obs):
                raise self._not_finite(what, obs, actions)
            return self._tensor(obs)
        return self._tensor(obs.copy())

    def _to_device(self, array: np.ndarray) -> Tensor:
        # the copy may be asynchronous, because torch does not reuse pinned memory before it is done
        return torch.from_numpy(array).pin_memory().to(self.device, non_blocking=True)

    def _not_finite(self, what: str, values: np.ndarray, actions: np.ndarray | None) -> RunError:
        index, *place = np.argwhere(~np.isfinite(values))[0].tolist()
        at = ""
        if place:
            at = f"[{', '.join(map(str, place))}]"
        blame = ""
        if actions is not None and not np.isfinite(actions[index]).all():
            blame = " (its action was not finite either)"
        self._kill()
        return RunError(f"{self._named(index)}: {what}{at} is {values[(index, *place)]}{blame}")

    def _stopped(self, error: Exception) -> RunError:
        """Ends all workers and returns the RunError to raise in place of `error`."""
        self._kill()
        if isinstance(error, EnvError):
            return RunError(f"{self._named(error.index - self.first)}: {error.reason}")
        if isinstance(error, ReturnedError):
            return RunError(f"env {self.name}, step {self.clock.steps}: {error}")
        return RunError(f"env {self.name}, step {self.clock.steps}: {reason(error)}")

    def _named(self, index: int) -> str:
        return f"env {self.name} #{self.first + index}, seed {self.seeds[index]}, step {self.clock.steps}"

    def _kill(self) -> None:
        if self.pool is not None:
            self.pool.close(terminate=True)


def finite(values: np.ndarray) -> bool:
    """Returns whether every number is finite."""
    return np.count_nonzero(np.isfinite(values)) == values.size  # three times faster than all()


def child_seed(seed: np.random.SeedSequence, index: int) -> int:
    """Returns the seed of one environment. It has 31 bits because some simulators accept no more."""
    child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, index))
    return int(child.generate_state(1, np.uint32)[0] >> 1)


def _numpy(obs: Obs) -> Arrays:
    return mapped(lambda tensor: tensor.cpu().numpy().copy(), obs)


def num_frames(cfg: EnvConfig) -> int:
    """Returns how many frames an image observation stacks in its first dimension."""
    frames = cfg.wrappers.get("frame_stack", {})
    if frames.get("axis") is not None or frames.get("fields"):
        return 1
    return int(frames.get("stack", 1))


def check_single(cfg: EnvConfig) -> None:
    """Raises ConfigError for settings that need access to single environments, which a simulator does not give."""
    settings = {"env.schedule": cfg.schedule, "env.log_info": cfg.log_info, "env.executed_action": cfg.executed_action}
    for key, value in settings.items():
        if value:
            raise ConfigError(f"{key}: is not supported by {cfg.id}, which steps all its environments at once")
