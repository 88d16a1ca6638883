"""Gymnasium's three autoreset modes behind one contract: the reset happens in the step that ends an episode.

Each adapter takes one vector step and returns arrays, batch first: `obs` to act on next, `final_obs` the true
successors (None where no episode ended, so that nothing is copied), and `weight` (None: every row is a transition).
"""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv

from rlrun.envs.state import Tree
from rlrun.nested import mapped

Obs = Any  # array [num_envs, ...], or a dict of them


class Raw(NamedTuple):
    """One vector step in numpy. `obs` and `final_obs` may be the simulator's own memory: copy before the next step."""

    obs: Obs
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_obs: Obs | None
    weight: np.ndarray | None
    measures: dict[str, np.ndarray] | None = None  # reported beside the reward, name -> [num_envs]
    success: np.ndarray | None = None  # [num_envs] 0 or 1 where an episode ended; NaN where it was not reported
    own_returns: dict[int, np.ndarray] | None = None  # of episodes that ended, beneath wrappers that change rewards


class SameStep:
    """The simulator resets within the step and returns the final observations in its infos."""

    def __init__(self, venv: GymVectorEnv):
        self.venv = venv

    def restarted(self) -> None:
        """To be called after all environments were reset."""

    def save(self) -> Tree:
        """The state of the simulator, which must provide it."""
        return self.venv.get_extra_state()  # type: ignore[attr-defined]

    def load(self, tree: Tree) -> None:
        self.venv.set_extra_state(tree)  # type: ignore[attr-defined]

    def step(self, actions: Any) -> Raw:
        obs, reward, terminated, truncated, infos = self.venv.step(actions)
        if not infos:
            return Raw(obs, reward, terminated, truncated, None, None)
        final = infos.get("final_obs")
        if final is not None:
            final = _placed(obs, final)
        return Raw(
            obs,
            reward,
            terminated,
            truncated,
            final,
            weight=None,
            measures=infos.get("measures"),
            success=success(infos),
            own_returns=infos.get("own_returns"),
        )


class Disabled(SameStep):
    """The simulator does not reset: the rows that ended are reset here, before the step returns."""

    def step(self, actions: Any) -> Raw:
        obs, reward, terminated, truncated, infos = self.venv.step(actions)
        ended = terminated | truncated
        if not ended.any():
            return Raw(obs, reward, terminated, truncated, None, None)
        final = copied(obs)
        obs, _ = self.venv.reset(options={"reset_mask": ended})
        return Raw(obs, reward, terminated, truncated, final, None, success=success(infos))


class NextStep(SameStep):
    """The simulator takes a step for a reset: that row is not a transition, so its weight is 0.

    It is marked truncated, so that n-step returns and sequences do not cross it.
    """

    def __init__(self, venv: GymVectorEnv):
        super().__init__(venv)
        self.restarted()

    def restarted(self) -> None:
        self.resetting = np.zeros(self.venv.num_envs, bool)

    def save(self) -> Tree:
        return {"simulator": super().save(), "resetting": self.resetting.copy()}

    def load(self, tree: Tree) -> None:
        super().load(tree["simulator"])
        self.resetting = tree["resetting"].copy()

    def step(self, actions: Any) -> Raw:
        obs, reward, terminated, truncated, infos = self.venv.step(actions)
        was, self.resetting = self.resetting, terminated | truncated
        if not was.any():
            return Raw(obs, reward, terminated, truncated, None, None, success=success(infos))
        weight = (~was).astype(np.float32)
        return Raw(obs, reward, terminated, truncated | was, None, weight, success=success(infos))


ADAPTERS = {
    AutoresetMode.SAME_STEP: SameStep,
    AutoresetMode.DISABLED: Disabled,
    AutoresetMode.NEXT_STEP: NextStep,
}


def adapter(venv: GymVectorEnv) -> SameStep:
    """The adapter for a vector environment, by the mode its metadata declare (Gymnasium's default: next step)."""
    return ADAPTERS[AutoresetMode(venv.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))](venv)


def success(infos: dict[str, Any]) -> np.ndarray | None:
    """Whether episodes were successes, [num_envs], from infos as Gymnasium merges them: `_key` masks the rows."""
    infos = infos.get("final_info", infos)
    for key in ("is_success", "success"):
        if key in infos:
            reported = np.asarray(infos[key], np.float64)
            return np.where(infos.get(f"_{key}", True), reported, np.nan)
    return None


def copied(obs: Obs) -> Obs:
    """An observation in memory of its own."""
    return mapped(np.copy, obs)


def _placed(obs: Obs, final: np.ndarray) -> Obs:
    """`obs` with the final observations (an object array, None where the episode continues) put in their rows."""
    out = copied(obs)
    for index, row in enumerate(final):
        if row is not None:
            put(out, index, row)
    return out


def put(out: Obs, index: int, row: Any) -> None:
    """Write the observation of one environment into its row of a batch, in place."""
    if isinstance(out, dict):
        for key, part in out.items():
            put(part, index, row[key])
    else:
        out[index] = row
