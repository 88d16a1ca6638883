"""Steps single environments as one batch, with resets within the step. An error affects only its environment's row."""

import contextlib
import math
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array

from rlrun.envs.making.make import Recipe
from rlrun.envs.stepping.actions import single
from rlrun.envs.stepping.autoreset import Arrays, Infos, Results, copied, put
from rlrun.envs.stepping.slot import EnvError, EnvSlot, Form, Kept, fault
from rlrun.types import Info


class VectorPool(VectorEnv):
    """A batch of EnvSlots. Subclasses implement `call`, which starts a method of one slot, `result` and `replace`.

    An environment that raises, dies or hangs is lost: `lost` holds the error, and the environment is not called again
    until `start` replaces it. Until then its row has reward 0, is truncated, and keeps the last observation.
    """

    observations: Arrays  # the current observations, [num_envs, ...], in memory that every step overwrites
    replay_limit_s = math.inf  # time limit for replaying a stored episode

    def __init__(self, recipes: list[Recipe], form: Form):
        """form: the spaces and reward shape of the first environment, which all others must have too."""
        self.recipes, self.num_envs, self.form = recipes, len(recipes), form
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space, self.reward_shape, self.holds, self.reports = form
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.recording = False
        self.parameters: dict[str, float] = {}  # attributes that environments set when their next episode begins
        self.lost: dict[int, EnvError] = {}
        self.idle: Container[int] = ()  # rows that the next step skips
        self.begun: list[int] | None = None  # rows whose step `begin` has started; None: no step was begun

    def call(self, index: int, method: str, *given: object) -> None:
        """Starts a call of `EnvSlot.method(*given)` in one row. Raises EnvError."""
        raise NotImplementedError

    def result(self, index: int) -> Any:
        """Returns the result of the last call in this row. Raises EnvError if the call failed.

        The observation that `advance` and `start` return is in `observations`; the result may hold None in its place.
        """
        raise NotImplementedError

    def replace(self, index: int) -> None:
        """Makes a new environment in this row. Raises EnvError."""
        raise NotImplementedError

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[object, Info]:
        """Starts new episodes. seed: a list with one seed per environment, or None."""
        self.each("start", seed or [None] * self.num_envs, [options] * self.num_envs)
        return self.observations, {}

    def begin(self, actions: object) -> None:
        """Starts a step of every environment, to be completed by `step`. actions: [num_envs, ...]."""
        if not isinstance(actions, np.ndarray):
            actions = [single(self.single_action_space, actions, index) for index in range(self.num_envs)]
        self.begun = self._call_each("advance", actions, idle=self.idle)

    def step(self, actions: object) -> Results:  # type: ignore[override]  # its infos are typed
        """Steps all environments, or completes the step that `begin` started."""
        if self.begun is None:
            self.begin(actions)
        begun = self.begun or []
        self.begun = None
        rewards = np.zeros((self.num_envs, *self.reward_shape))
        terminated = np.zeros(self.num_envs, bool)
        truncated = np.zeros(self.num_envs, bool)
        infos: Infos = {}
        if self.reports:
            infos["reports"] = {name: [None] * self.num_envs for name in self.reports}
        for index, result in enumerate(self._results(begun)):
            if result is None:
                truncated[index] = True
                continue
            _, rewards[index], terminated[index], truncated[index], kept = result
            if kept:
                self._merge(infos, index, kept)
        return self.observations, rewards, terminated, truncated, infos

    def _merge(self, infos: Any, index: int, kept: Kept) -> None:
        """Adds what is kept of the infos of one row to the infos of the step."""
        if "reports" in kept:
            for name, value in zip(self.reports, kept["reports"], strict=True):
                infos["reports"][name][index] = value
        if "executed" in kept:
            infos.setdefault("executed", [None] * self.num_envs)[index] = kept["executed"]
        if "held" in kept:
            infos.setdefault("n_steps", np.ones(self.num_envs, np.float32))[index] = kept["held"].n_steps
            drawn = infos.setdefault("drawn_rewards", np.zeros((self.num_envs, *self.reward_shape)))
            drawn[index] = kept["held"].reward
        if "final_obs" in kept:
            if "final_obs" not in infos:
                infos["final_obs"] = copied(self.observations)
            put(infos["final_obs"], index, kept["final_obs"])
        if "success" in kept:
            infos.setdefault("success", np.full(self.num_envs, np.nan))[index] = kept["success"]
        if "own_return" in kept:
            infos.setdefault("own_returns", {})[index] = kept["own_return"]
        if "infos" in kept:
            infos.setdefault("last_infos", {})[index] = kept["infos"]
        if "continues" in kept:
            infos.setdefault("continues", np.zeros(self.num_envs, bool))[index] = True
        if "logged" in kept:
            infos.setdefault("logged", []).extend(kept["logged"])

    def check_form(self, index: int, form: Form) -> None:
        """Raises EnvError if an environment's form differs from that of the first environment."""
        if form != self.form:
            what = "its spaces, its reward shape or its reports"
            raise EnvError(self.recipes[index].index, f"{what} differ from those of the first environment")

    def each(self, method: str, *columns: Sequence[object] | np.ndarray, idle: Container[int] = ()) -> list[Any]:
        """Calls `EnvSlot.method` in all rows. Row i gets item i of every column as arguments.

        Returns one result per row, None for lost and idle rows.
        """
        return self._results(self._call_each(method, *columns, idle=idle))

    def _call_each(self, method: str, *columns: Sequence[object] | np.ndarray, idle: Container[int]) -> list[int]:
        """Starts the calls of `each`. Returns the rows that were called."""
        called = [index for index in range(self.num_envs) if index not in self.lost and index not in idle]
        for index in called:
            try:
                self.call(index, method, *[column[index] for column in columns])
            except EnvError as error:
                self.lost[index] = error
        return called

    def _results(self, called: list[int]) -> list[Any]:
        """Returns one result per row, None for rows that were not called or are lost."""
        results: list[Any] = [None] * self.num_envs
        for index in called:
            if index in self.lost:
                continue
            try:
                results[index] = self.result(index)
            except EnvError as error:
                self.lost[index] = error
        return results

    def start(self, index: int, seed: int) -> None:
        """Starts a new episode in one row, after replacing the environment if it was lost.

        If this fails, the row is lost again; nothing is raised.
        """
        try:
            if index in self.lost:
                self.replace(index)
                del self.lost[index]
                if self.parameters:
                    self.call(index, "set_parameters", self.parameters)
                    self.result(index)
            self.call(index, "start", seed, None)
            self.result(index)
        except EnvError as error:
            self.lost[index] = error

    def set_tasks(self, tasks: Sequence[dict[str, float]]) -> None:
        """Makes every environment again with the constructor arguments of its task. A reset must follow."""
        self.recipes = [recipe.at(recipe.index, **task) for recipe, task in zip(self.recipes, tasks, strict=True)]
        self.each("set_task", tasks)

    def set_parameters(self, parameters: dict[str, float]) -> None:
        """Sets attributes of every environment, by name, when its next episode begins."""
        if parameters != self.parameters:
            self.parameters = parameters
            self.each("set_parameters", [parameters] * self.num_envs)

    def record(self) -> None:
        """Records all episodes that begin from now on, including those of replaced environments."""
        self.recording = True
        self.each("record")


class SyncPool(VectorPool):
    """Runs environments in this process, one after the other. An environment that hangs also hangs the run."""

    def __init__(self, recipes: list[Recipe]):
        self.slots: list[EnvSlot] = []
        try:
            for recipe in recipes:
                self.slots.append(recipe())
            super().__init__(recipes, self.slots[0].form)
            for index, slot in enumerate(self.slots):
                self.check_form(index, slot.form)
        except BaseException:
            self.close_extras()
            raise
        self.results: list[object] = [None] * self.num_envs
        self.observations: Any = create_empty_array(self.single_observation_space, self.num_envs)

    def call(self, index: int, method: str, *given: object) -> None:
        slot = self.slots[index]
        try:
            result = getattr(slot, method)(*given)
            if method in EnvSlot.RETURN_OBS:
                put(self.observations, index, result[0])
        except EnvError:
            raise
        except Exception as error:
            raise fault(self.recipes[index].index, error) from error
        self.results[index] = result

    def result(self, index: int) -> Any:
        return self.results[index]

    def replace(self, index: int) -> None:
        with contextlib.suppress(Exception):
            self.slots[index].close()
        try:
            self.slots[index] = self.recipes[index]()
        except Exception as error:
            raise fault(self.recipes[index].index, error) from error
        self.slots[index].recording = self.recording

    def close_extras(self, **_: object) -> None:
        for slot in self.slots:
            with contextlib.suppress(Exception):
                slot.close()
