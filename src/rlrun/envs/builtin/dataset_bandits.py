"""Classification as a bandit: the observation is a row of a table, the action a class, with its reward alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from rlrun.envs.builtin.bandits import OneStep
from rlrun.envs.builtin.tables import load
from rlrun.envs.downloads import fetched
from rlrun.envs.state import Tree
from rlrun.errors import ConfigError


class DatasetBandit(OneStep):
    """Reward 1 for the row's class, else 0. Rows come in a new random order every time all have been seen."""

    def __init__(
        self,
        num_envs: int,
        path: str | None = None,
        download: bool = False,
        source: Mapping[str, str] | None = None,
        label: str | int = -1,
        header: bool = True,
        separator: str | None = ",",
        drop: Sequence[str | int] = (),
        missing: str | None = None,
        normalize: bool = True,
    ):
        named, file = _file(path, download, source)
        try:
            self.table = load(
                file, label, header=header, separator=separator, drop=tuple(drop), missing=missing, normalize=normalize
            )
        except ValueError as error:
            raise ConfigError(f"{named}: {error}") from None
        self.digests: dict[str, str] = {}  # as in VectorEnv.digests
        if self.table.sha256:
            self.digests[named] = self.table.sha256
        self.order, self.order_seed, self.next = np.zeros(0, np.int64), 0, 0
        self.rows = np.zeros(num_envs, np.int64)  # the current observations
        super().__init__(
            num_envs, Box(-np.inf, np.inf, self.table.features.shape[1:], np.float32), self.count_actions()
        )

    def count_actions(self) -> int:
        return len(self.table.classes)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.next = len(self.order)  # a new order
        return super().reset(seed=seed, options=options)

    def draw(self) -> np.ndarray:
        taken: list[np.ndarray] = []
        while (short := self.num_envs - sum(map(len, taken))) > 0:
            if self.next >= len(self.order):
                self.shuffle(int(self.rng.integers(2**62)))
            taken.append(self.order[self.next : self.next + short])
            self.next += len(taken[-1])
        self.rows = np.concatenate(taken)
        return self.table.features[self.rows]

    def shuffle(self, seed: int) -> None:
        self.order_seed, self.next = seed, 0
        self.order = np.random.default_rng(seed).permutation(len(self.table.labels))

    def draw_reward(self, actions: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        right = actions == self.table.labels[self.rows]
        return right.astype(np.float64), {"regret": 1.0 - right, "best_arm": right}

    def get_extra_state(self) -> Tree:
        return {"bandit": super().get_extra_state(), "order": self.order_seed, "next": self.next, "rows": self.rows}

    def set_extra_state(self, tree: Tree) -> None:
        super().set_extra_state(tree["bandit"])
        self.shuffle(tree["order"])
        self.next, self.rows = tree["next"], tree["rows"].copy()


class MushroomBandit(DatasetBandit):
    """Pass (0) or eat (1): passing has reward 0, an edible one 5, a poisonous one 5 or -35 with equal probability.

    From arXiv 1505.05424. The optimal policy, to which regret refers, eats the edible and passes the poisonous.
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


def _file(path: str | None, download: bool, source: Mapping[str, str] | None) -> tuple[str, str]:
    """`key=value` of the key that names the table, and the path of its file, downloaded if requested. Raises
    ConfigError."""
    if path is not None and not isinstance(path, str):
        raise ConfigError(f"env.kwargs.path={path}: must be the path of a file")
    if path is not None:
        return f"env.kwargs.path={path}", path
    if not source:
        raise ConfigError("env.kwargs.path: which file is to be read?")
    if not download:
        raise ConfigError("env.kwargs.path: which file is to be read? (download=true fetches it)")
    if not isinstance(source, Mapping) or set(source) != {"url", "sha256"}:
        raise ConfigError(f"env.kwargs.source={source}: must be {{url: ..., sha256: ...}}")
    try:
        return f"env.kwargs.source={source['url']}", str(fetched(**source))
    except ValueError as error:
        raise ConfigError(f"env.kwargs.source: {error}") from None


for _bandit in (DatasetBandit, MushroomBandit):
    gym.register(f"rlrun/{_bandit.__name__}-v0", vector_entry_point=f"{__name__}:{_bandit.__name__}")
