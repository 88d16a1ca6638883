"""Environments written in torch, for env.backend=torch: the class that steps the environments of each id."""

_ENVS = {
    "CartPole-v1": "cart_pole:CartPole",
    "Pendulum-v1": "pendulum:Pendulum",
    "rlrun/BitFlip-v0": "bit_flip:BitFlip",
    "rlrun/DeepSea-v0": "deep_sea:DeepSea",
    "rlrun/DynaMaze-v0": "tables:DynaMaze",
    "rlrun/GridMaze-v0": "grid_maze:GridMaze",
    "rlrun/KeyDoor-v0": "tables:KeyDoor",
    "rlrun/PointMass-v0": "point_mass:PointMass",
    "rlrun/ProbeRecall-v0": "recall:Recall",
}
ENTRY_POINTS = {id: f"{__name__}.{entry}" for id, entry in _ENVS.items()}
