"""The environments that rlrun ships. Importing this package registers their ids, `rlrun/<Name>-v0`, with Gymnasium."""

import gymnasium

from rlrun.envs.builtin import (
    bandits,
    boards,
    contextual,
    dataset_bandits,
    deep_sea,
    functions,
    goal_tasks,
    key_door,
    maze,
    multimodal_bandit,
    platform,
    point,
    recall,
)
from rlrun.envs.simulators.suite import ENTRY_POINTS

__all__ = [
    "bandits",
    "boards",
    "contextual",
    "dataset_bandits",
    "deep_sea",
    "functions",
    "goal_tasks",
    "key_door",
    "maze",
    "multimodal_bandit",
    "platform",
    "point",
    "recall",
]

for _id in ("rlrun/GridMaze-v0", "rlrun/PointMass-v0"):  # these have no single environments
    if _id not in gymnasium.registry:
        gymnasium.register(_id, vector_entry_point=ENTRY_POINTS[_id], max_episode_steps=100)
