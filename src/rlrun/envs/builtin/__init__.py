"""The environments that rlrun ships. Importing this package registers their ids, `rlrun/<Name>-v0`, with Gymnasium."""

from functools import partial

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
    point_car,
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
    "point_car",
    "recall",
]


def _in_gymnasium(simulator: str, num_envs: int = 1, **arguments: object) -> gymnasium.vector.VectorEnv:
    """Returns a vector env for `gymnasium.make_vec`. simulator: `module:class` of a TorchEnv."""
    from rlrun.envs.making.make import entry_point
    from rlrun.envs.simulators.in_gymnasium import InGymnasium  # imports torch

    return InGymnasium(entry_point(simulator)(num_envs=num_envs, **arguments))


for _id, _entry in (
    ("rlrun/GridMaze-v0", None),  # it has no single environments
    ("rlrun/PointMass-v0", f"{__name__}.point_mass:PointMass"),
):
    if _id not in gymnasium.registry:
        _make = partial(_in_gymnasium, ENTRY_POINTS[_id])
        gymnasium.register(_id, _entry, vector_entry_point=_make, max_episode_steps=100)
