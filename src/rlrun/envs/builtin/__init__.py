"""The environments that rlrun ships. Importing this package registers their ids, `rlrun/<Name>-v0`, with Gymnasium."""

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
    probes,
)

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
    "probes",
]
