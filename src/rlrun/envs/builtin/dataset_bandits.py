"""Contextual bandits from classification data: the observation is a row of a table, the action is a class."""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from rlrun.envs.builtin.bandits import OneStep
from rlrun.envs.builtin.tables import load, part_of, rows_in_both_parts
from rlrun.envs.making.downloads import fetched
from rlrun.envs.saving.state import Tree
from rlrun.errors import ConfigError, printable
from rlrun.types import Info


class DatasetBandit(OneStep):
    """The reward is 1 if the action is the class of the row, else 0. Rows are shuffled for each pass over the table.

    Reports the class of the row as `label`.
    """

    def __init__(
        self,
        num_envs: int,
        path: str | None = None,
        download: bool = False,
        force_download: bool = False,
        source: Mapping[str, str] | None = None,
        label: str | int = -1,
        header: bool = True,
        separator: str | None = ",",
        drop: Sequence[str | int] | str | int = (),
        missing: str | float | None = None,
        held_out: float = 0.0,
        part: str = "train",
        normalize: bool = True,
    ):
        named, file = _file(path, download, force_download, source)
        if isinstance(drop, str | int):
            drop = [drop]
        try:
            table = load(
                file, label, header=header, separator=separator, drop=tuple(drop), missing=missing, normalize=normalize
            )
        except ValueError as error:
            raise ConfigError(f"{named}: {error}") from None
        self.table = part_of(table, held_out, part)
        if part == "train" and held_out:
            count = rows_in_both_parts(table, held_out)
            if count:
                held = f"env.kwargs.held_out={held_out}"
                _warn_once(f"{named}: {count:,} of the rows that {held} holds out equal rows for training")
        self.reports = {"label": Discrete(len(table.classes))}
        self.digests: dict[str, str] = {}  # `key=value` -> SHA-256 of that file, for VectorEnv
        if self.table.sha256:
            self.digests[named] = self.table.sha256
        self.order, self.order_seed, self.next = np.zeros(0, np.int64), 0, 0
        self.rows = np.zeros(num_envs, np.int64)  # the indices of the current observations
        super().__init__(
            num_envs, Box(-np.inf, np.inf, self.table.features.shape[1:], np.float32), self.count_actions()
        )

    def count_actions(self) -> int:
        return len(self.table.classes)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        self.next = len(self.order)  # shuffles at the next draw
        return super().reset(seed=seed, options=options)

    def draw(self) -> np.ndarray:
        drawn: list[np.ndarray] = []
        while (short := self.num_envs - sum(map(len, drawn))) > 0:
            if self.next >= len(self.order):
                self.shuffle(int(self.rng.integers(2**62)))
            drawn.append(self.order[self.next : self.next + short])
            self.next += len(drawn[-1])
        self.rows = np.concatenate(drawn)
        return self.table.features[self.rows]

    def shuffle(self, seed: int) -> None:
        self.order_seed, self.next = seed, 0
        self.order = np.random.default_rng(seed).permutation(len(self.table.labels))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Info]:
        label = self.table.labels[self.rows]
        obs, reward, terminated, truncated, info = super().step(actions)
        return obs, reward, terminated, truncated, info | {"reports": {"label": label}}

    def draw_reward(self, actions: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        right = actions == self.table.labels[self.rows]
        return right.astype(np.float64), {"regret": 1.0 - right, "best_arm": right}

    def get_extra_state(self) -> Tree:
        return {"bandit": super().get_extra_state(), "order": self.order_seed, "next": self.next, "rows": self.rows}

    def set_extra_state(self, tree: Any) -> None:
        super().set_extra_state(tree["bandit"])
        self.shuffle(tree["order"])
        self.next, self.rows = tree["next"], tree["rows"].copy()


class MushroomBandit(DatasetBandit):
    """The mushroom bandit of arXiv 1505.05424: the actions are to pass (0) or to eat (1) a mushroom.

    Passing has reward 0. Eating an edible mushroom has reward 5; eating a poisonous mushroom has reward 5 or -35 with
    equal probability. Regret is relative to the optimal policy, which eats edible mushrooms and passes poisonous ones.
    """

    EDIBLE, POISONOUS, CHANCE = 5.0, -35.0, 0.5

    def count_actions(self) -> int:
        return 2

    def draw_reward(self, actions: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        edible = self.table.labels[self.rows] == self.table.classes.index("e")
        lucky = self.rng.random(self.num_envs) < self.CHANCE
        eaten = np.where(edible | lucky, self.EDIBLE, self.POISONOUS)
        mean = np.where(edible, self.EDIBLE, self.CHANCE * (self.EDIBLE + self.POISONOUS))
        regret = np.maximum(mean, 0.0) - np.where(actions == 1, mean, 0.0)
        return np.where(actions == 1, eaten, 0.0), {"regret": regret, "best_arm": regret == 0}


@cache
def _warn_once(line: str) -> None:
    """Logs a warning, but not again when an evaluation makes the environment again."""
    logging.getLogger(__name__).warning("%s", printable(line))


def _file(path: str | None, download: bool, force_download: bool, source: Mapping[str, str] | None) -> tuple[str, str]:
    """Returns the config entry (`key=value`) that names the table, and the path of its file, downloaded if needed.

    Raises ConfigError if no file is named, if the settings are invalid, or if the download fails.
    """
    if path is not None and not isinstance(path, str):
        raise ConfigError(f"env.kwargs.path={path}: must be the path of a file")
    if path is not None:
        return f"env.kwargs.path={path}", path
    if not source:
        raise ConfigError("env.kwargs.path: must be set to the path of a file")
    if not (download or force_download):
        raise ConfigError("env.kwargs.path: must be set to the path of a file, or set env.kwargs.download=true")
    if not isinstance(source, Mapping) or set(source) != {"url", "sha256"}:
        raise ConfigError(f"env.kwargs.source={source}: must be {{url: ..., sha256: ...}}")
    try:
        return f"env.kwargs.source={source['url']}", str(fetched(**source, force=force_download))
    except ValueError as error:
        raise ConfigError(f"env.kwargs.source: {error}") from None


for _bandit in (DatasetBandit, MushroomBandit):
    gym.register(f"rlrun/{_bandit.__name__}-v0", vector_entry_point=f"{__name__}:{_bandit.__name__}")
