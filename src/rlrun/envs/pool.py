"""Environments stepped together, resets within the step. What goes wrong in one of them stays in its row."""

import contextlib
import math
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array

from rlrun.envs.autoreset import put
from rlrun.envs.make import Recipe
from rlrun.envs.slot import EnvError, Form, Slot, fault


class Pool(VectorEnv):
    """Slots in one batch. Subclasses say where they live: `ask` calls a method of one, `answer` has the result.

    An environment that raises, dies or hangs is lost: it stands in `lost` with the reason, and is asked nothing more
    until `start` makes another in its place. Its rows are reward 0, truncated, observation as it was.
    """

    observations: Any  # what the environments show now, [num_envs, ...]: memory of the pool
    patience_s = math.inf  # how long an environment may take to get back to where it was

    def __init__(self, recipes: list[Recipe], form: Form):
        """`form`: of the first environment."""
        self.recipes, self.num_envs, self.form = recipes, len(recipes), form
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space, self.reward_shape = form
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.recording = False
        self.lost: dict[int, EnvError] = {}
        self.idle: Container[int] = ()  # rows that the next step leaves alone
        self.begun: list[int] | None = None  # rows that are at their next step already

    def ask(self, index: int, method: str, *given: Any) -> None:
        """Begin to call `Slot.method(*given)`. Raises EnvError."""
        raise NotImplementedError

    def answer(self, index: int) -> Any:
        """The result of what was asked; of `advance` and `start` without the observation. Raises EnvError."""
        raise NotImplementedError

    def replace(self, index: int) -> None:
        """Make an environment anew. Raises EnvError."""
        raise NotImplementedError

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """`seed`: one for each environment, or None."""
        self.each("start", seed or [None] * self.num_envs, [options] * self.num_envs)
        return self.observations, {}

    def begin(self, actions: np.ndarray) -> None:
        """Let every environment do its next step; `step` has the answers, whatever happens in between."""
        self.begun = self._ask("advance", actions, idle=self.idle)

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """A step, or the end of the one that was begun."""
        if self.begun is None:
            self.begin(actions)
        begun, self.begun = self.begun, None
        rewards = np.zeros((self.num_envs, *self.reward_shape))
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        infos: dict[str, Any] = {}
        for index, answer in enumerate(self._answers(begun or [])):
            if answer is None:
                truncated[index] = True
                continue
            reward, terminated[index], truncated[index], final, success, own_return = answer
            if self.reward_shape or type(reward) is np.ndarray:
                self._check_reward(index, np.shape(reward))
            rewards[index] = reward
            if final is not None:
                infos.setdefault("final_obs", np.full(self.num_envs, None))[index] = final
            if success is not None:
                infos.setdefault("success", np.full(self.num_envs, np.nan))[index] = success
            if own_return is not None:
                infos.setdefault("own_returns", {})[index] = own_return
        return self.observations, rewards, terminated, truncated, infos

    def check_form(self, index: int, form: Form) -> None:
        """Raises EnvError where an environment has other spaces than the first."""
        if form != self.form:
            raise EnvError(index, "its observation or action space is not that of the first environment")

    def _check_reward(self, index: int, shape: tuple[int, ...]) -> None:
        """Raises EnvError where a reward is another than the environment announced."""
        if math.prod(shape) != math.prod(self.reward_shape):
            says = f"its reward_space says {self.reward_shape}" if self.reward_shape else "it has no reward_space"
            raise EnvError(index, f"its reward has shape {shape}, and {says}")

    def each(self, method: str, *columns: Sequence[Any] | np.ndarray, idle: Container[int] = ()) -> list[Any]:
        """`Slot.method` of all, each with its item of every column. None for rows that are lost or idle."""
        return self._answers(self._ask(method, *columns, idle=idle))

    def _ask(self, method: str, *columns: Sequence[Any] | np.ndarray, idle: Container[int]) -> list[int]:
        """Returns the rows that will answer, unless they are lost by then."""
        asked = [index for index in range(self.num_envs) if index not in self.lost and index not in idle]
        for index in asked:
            try:
                self.ask(index, method, *[column[index] for column in columns])
            except EnvError as error:
                self.lost[index] = error
        return asked

    def _answers(self, asked: list[int]) -> list[Any]:
        answers: list[Any] = [None] * self.num_envs
        for index in asked:
            try:
                answers[index] = None if index in self.lost else self.answer(index)
            except EnvError as error:
                self.lost[index] = error
        return answers

    def start(self, index: int, seed: int) -> None:
        """A new episode in one row, in a new environment where it was lost. Where this fails, it is lost again."""
        try:
            if index in self.lost:
                self.replace(index)
                del self.lost[index]
            self.ask(index, "start", seed, None)
            self.answer(index)
        except EnvError as error:
            self.lost[index] = error

    def record(self) -> None:
        """From now on every episode, also of environments that are made anew."""
        self.recording = True
        self.each("record")


class Local(Pool):
    """Environments in this process, one after the other. One that hangs cannot be helped here."""

    def __init__(self, recipes: list[Recipe]):
        self.slots: list[Slot] = []
        try:
            for recipe in recipes:
                self.slots.append(recipe())
            super().__init__(recipes, self.slots[0].form)
            for index, slot in enumerate(self.slots):
                self.check_form(index, slot.form)
        except BaseException:
            self.close_extras()
            raise
        self.answers: list[Any] = [None] * self.num_envs
        self.observations: Any = create_empty_array(self.single_observation_space, self.num_envs)

    def ask(self, index: int, method: str, *given: Any) -> None:
        slot = self.slots[index]
        try:
            answer = getattr(slot, method)(*given)
            if method in Slot.SHOWS:
                obs, answer = answer
                put(self.observations, index, obs)
        except EnvError:
            raise
        except Exception as error:
            raise fault(index, error) from error
        self.answers[index] = answer

    def answer(self, index: int) -> Any:
        return self.answers[index]

    def replace(self, index: int) -> None:
        with contextlib.suppress(Exception):
            self.slots[index].close()
        try:
            self.slots[index] = self.recipes[index]()
        except Exception as error:
            raise fault(index, error) from error
        self.slots[index].recording = self.recording

    def close_extras(self, **_: Any) -> None:
        for slot in self.slots:
            with contextlib.suppress(Exception):
                slot.close()
