"""Environments written in torch, for env.backend=torch: the class that steps the environments of each id."""

_ENVS = {
    "CartPole-v1": "cart_pole:TorchCartPole",
    "Pendulum-v1": "pendulum:TorchPendulum",
    "rlrun/BitFlip-v0": "bit_flip:TorchBitFlip",
    "rlrun/DeepSea-v0": "deep_sea:TorchDeepSea",
    "rlrun/DynaMaze-v0": "tables:TorchDynaMaze",
    "rlrun/GridMaze-v0": "grid_maze:TorchGridMaze",
    "rlrun/KeyDoor-v0": "tables:TorchKeyDoor",
    "rlrun/PointMass-v0": "point_mass:TorchPointMass",
    "rlrun/ProbeRecall-v0": "recall:TorchRecall",
}
ENTRY_POINTS = {id: f"{__name__}.{entry}" for id, entry in _ENVS.items()}
