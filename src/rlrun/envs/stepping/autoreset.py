"""Adapts Gymnasium's three autoreset modes to one contract: the reset happens in the step that ends an episode.

Each adapter takes one vector step and returns its `Results`.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv

from rlrun.envs.saving.state import Tree
from rlrun.envs.stepping.returned import SUCCESS, check_observation
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.wrappers.wrapper import CONTINUES
from rlrun.errors import ConfigError
from rlrun.nested import index as rows_of
from rlrun.nested import mapped

Arrays = np.ndarray | dict[str, "Arrays"]  # observations: an array [num_envs, ...], or a dict of such arrays
FINAL = ("final_obs", "final_observation")  # keys of infos; the second one was Gymnasium's before 1.0


class Infos(TypedDict, total=False):
    """What a vector step reports besides, batch first. An entry may be missing or None."""

    final_obs: Arrays | None  # the true successors; None if they equal obs in all rows, so that nothing is copied
    weight: np.ndarray  # [num_envs]: 0 for rows that are not transitions; None: all rows are transitions
    measures: dict[str, np.ndarray] | None  # name -> [num_envs], further results of the step
    success: np.ndarray | None  # [num_envs]: 0 to 1, NaN where the step reported none
    logged: list[tuple[str, float]]  # names and values that environments logged
    continues: np.ndarray | None  # [num_envs] bool: ended for the agent only, as with a lost life; None: no row
    own_returns: dict[int, np.ndarray]  # index -> original return of an ended episode, from OwnReward
    last_infos: dict[int, dict[str, float]]  # index -> entries of the last infos of an ended episode, from env.log_info
    reports: Mapping[str, Sequence[object] | np.ndarray] | None  # name -> a value for each row, or None
    executed: Sequence[object]  # the action that each environment took, if `env.executed_action` names it, else None
    n_steps: np.ndarray  # [num_envs]: steps of the wrapped environment that the step lasted; None: 1
    drawn_rewards: np.ndarray  # [num_envs, ...]: reward of one of these steps, drawn uniformly


Results = tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, Infos]
"""One vector step in numpy, as Gymnasium returns it: observation to act on next, reward, terminated, truncated, infos.

Observations may be memory that the simulator reuses, so they must be copied before the next step.
"""


class SameStep:
    """For simulators that reset within the step and return the final observations in their infos."""

    def __init__(self, venv: GymVectorEnv):
        self.venv = venv

    def after_reset(self) -> None:
        """Must be called after all environments were reset."""

    def save(self) -> Tree:
        """Returns the state of the simulator, which must have the method `get_extra_state`."""
        return self.venv.get_extra_state()  # type: ignore[attr-defined]

    def load(self, tree: Tree) -> None:
        self.venv.set_extra_state(tree)  # type: ignore[attr-defined]

    def step(self, actions: object) -> Results:
        obs, reward, terminated, truncated, infos = self.venv.step(actions)
        if not infos and not np.count_nonzero(truncated):  # terminated episodes need no final observation
            return obs, reward, terminated, truncated, {}
        found: Infos = {
            "final_obs": final_observations(self.venv.single_observation_space, obs, terminated, truncated, infos),
            "measures": infos.get("measures"),
            "success": success(infos),
            "continues": infos.get(CONTINUES),
            "reports": infos.get("reports"),
        }
        return obs, reward, terminated, truncated, found


class Disabled(SameStep):
    """For simulators that never reset by themselves: this adapter resets the ended rows before the step returns."""

    def step(self, actions: object) -> Results:
        obs, reward, terminated, truncated, infos = self.venv.step(actions)
        check_no_final(infos)
        ended = terminated | truncated
        found: Infos = {"success": success(infos), "reports": infos.get("reports")}
        if ended.any():
            found["final_obs"] = copied(obs)
            # the simulator may write the reports of the new episodes to the same memory
            found["reports"] = copy.deepcopy(found["reports"])
            obs, _ = self.venv.reset(options={"reset_mask": ended})
        return obs, reward, terminated, truncated, found


class NextStep(SameStep):
    """For simulators that reset in the step after an episode ended. The row of such a reset step gets weight 0.

    The row is also marked as truncated, so that n-step returns and sequences do not cross it.
    """

    def __init__(self, venv: GymVectorEnv):
        super().__init__(venv)
        self.after_reset()

    def after_reset(self) -> None:
        self.resetting = np.zeros(self.venv.num_envs, bool)

    def save(self) -> Tree:
        return {"simulator": super().save(), "resetting": self.resetting.copy()}

    def load(self, tree: Any) -> None:
        super().load(tree["simulator"])
        self.resetting = tree["resetting"].copy()

    def step(self, actions: object) -> Results:
        obs, reward, terminated, truncated, infos = self.venv.step(actions)
        check_no_final(infos)
        found: Infos = {
            "success": success(infos),
            "continues": infos.get(CONTINUES),
            "reports": infos.get("reports"),
        }
        was_reset = self.resetting
        self.resetting = terminated | truncated
        if was_reset.any():
            found["weight"] = (~was_reset).astype(np.float32)
            truncated = truncated | was_reset
        return obs, reward, terminated, truncated, found


ADAPTERS = {
    AutoresetMode.SAME_STEP: SameStep,
    AutoresetMode.DISABLED: Disabled,
    AutoresetMode.NEXT_STEP: NextStep,
}


def adapter(venv: GymVectorEnv) -> SameStep:
    """Returns the adapter for the autoreset mode in a vector env's metadata. Raises ConfigError if it declares none."""
    declared = venv.metadata.get("autoreset_mode")
    try:
        return ADAPTERS[AutoresetMode(declared)](venv)
    except ValueError:
        modes = ", ".join(mode.name for mode in AutoresetMode)
        raise ConfigError(
            f"env: {type(venv.unwrapped).__name__}.metadata['autoreset_mode'] is {declared}; declare when its "
            f"environments are reset, by a member of gymnasium.vector.AutoresetMode: {modes}"
        ) from None


def final_observations(
    space: gym.Space, obs: Arrays, terminated: np.ndarray, truncated: np.ndarray, infos: dict[str, Any]
) -> Arrays | None:
    """Returns a copy of `obs` with the final observations in the rows of ended episodes; None if infos hold none.

    Infos hold them as an object array [num_envs], or as a batch like `obs`. Raises EnvError if a truncated episode has
    none, because its target bootstraps from it, and ReturnedError if `space`, that of one environment, cannot hold one.
    """
    key = FINAL[0]
    if FINAL[1] in infos and key not in infos:
        key = FINAL[1]
    given = infos.get(key)
    there = infos.get(f"_{key}")  # [num_envs], the rows that hold one; None: all rows
    out: Any = None
    if given is not None:
        out = copied(obs)
    for index in np.flatnonzero(terminated | truncated).tolist():
        row = None
        if given is not None and (there is None or there[index]):
            row = rows_of(given, index)
        if row is not None:
            check_observation(space, row)
            put(out, index, row)
        elif not terminated[index]:
            raise EnvError(
                index,
                "its episode is truncated and its vector env resets within the step, but infos have no "
                f"{FINAL[0]} for it, from which targets bootstrap",
            )
    return out


def check_no_final(infos: dict[str, object]) -> None:
    """Raises EnvError if infos hold final observations, which only a vector env that resets within the step reports."""
    for key in FINAL:
        if key in infos:
            raise EnvError(0, f"infos hold {key}, so its autoreset_mode must be SAME_STEP")


def success(infos: dict[str, Any]) -> np.ndarray | None:
    """Returns the successes [num_envs] that infos report: 0 to 1, NaN for rows without a report. None: no reports.

    In Gymnasium's merged infos the entry `_key` marks the rows that reported `key`. For rows whose episode ended,
    `final_info` holds the infos of the step, and the others are those of the reset.
    """
    found = None
    for key in SUCCESS:
        if key in infos:
            found = np.where(infos.get(f"_{key}", True), np.asarray(infos[key], np.float64), np.nan)
            break
    if "final_info" not in infos:
        return found
    final = success(infos["final_info"])
    if found is None:
        return final
    if final is None:
        final = np.full(len(found), np.nan)
    return np.where(infos.get("_final_info", True), final, found)


def copied(obs: Arrays) -> Arrays:
    """Returns a copy of an observation."""
    return mapped(np.copy, obs)


def put(out: Arrays, index: int, row: Any) -> None:
    """Writes the observation of one environment into its row of a batch, in place."""
    if isinstance(out, dict):
        for key, part in out.items():
            put(part, index, row[key])
    else:
        out[index] = row
