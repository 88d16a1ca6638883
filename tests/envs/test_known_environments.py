"""Environments of Gymnasium and other packages, as a new user types them, train or are refused in one line.

Packages that are not installed are skipped. `pytest -m slow tests/envs/test_known_environments.py`
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rlrun

SRC = Path(rlrun.__file__).parents[1]
SHORT = ["trainer.total_steps=300", "trainer.eval_episodes=1", "trainer.eval_max_steps=50", "logger=[]"]  # fmt: skip
SOON = "algo.loop.warmup_steps=100"
DM_CONTROL = "; dm_control needs mujoco>=3.17,<4, but"

# (typed words, required packages, error message, or "" if the environment trains).
ROWS = [
    ("algo=ppo env=Acrobot-v1", "", ""),
    (f"algo=dqn env=MountainCar-v0 {SOON}", "", ""),
    (f"algo=sac env=MountainCarContinuous-v0 {SOON}", "", ""),
    ("algo=q_learning env=Taxi-v4", "", "has Discrete(500) with action masks (env.action_mask=false leaves these out)"),
    ("algo=q_learning env=Taxi-v4 env.action_mask=false", "", ""),
    ("algo=ppo env=Taxi-v4", "", ""),
    ("algo=ppo env=Blackjack-v1", "", ""),
    ("algo=sarsa env=Blackjack-v1", "", "this environment has Tuple(Discrete(32), Discrete(11), Discrete(2)), which"),
    ("algo=ppo env=CliffWalkingSlippery-v1", "", ""),
    ("algo=q_learning env=FrozenLake8x8-v1", "", ""),
    (f"algo=rainbow env=LunarLander-v3 {SOON}", "Box2D", ""),
    (f"algo=sac env=LunarLander-v3 env.kwargs.continuous=true {SOON}", "Box2D", ""),
    ("algo=ppo env=BipedalWalkerHardcore-v3", "Box2D", ""),
    (f"algo=dqn env=CarRacing-v3 env.kwargs.continuous=false algo.buffer.capacity=1000 {SOON}", "Box2D", ""),
    (f"algo=dqn env=ALE/Breakout-v5 {SOON}", "ale_py cv2", ""),
    (f"algo=dqn env=ALE/SpaceInvaders-v5 env.kwargs.obs_type=ram {SOON}", "ale_py cv2", ""),
    (f"algo=td3 env=Swimmer-v5 {SOON}", "mujoco", ""),
    (f"algo=sac env=HumanoidStandup-v5 {SOON}", "mujoco", ""),
    (f"algo=sac env=Walker2d-v4 {SOON}", "mujoco", ""),
    ("algo=ppo env=tabular/Blackjack-v0", "!jax", "pip install 'rlrun[jax]'"),
    ("algo=ppo env=minigrid:MiniGrid-Empty-5x5-v0", "minigrid", "; env.wrappers.hide.entries=[mission] leaves this"),
    ("algo=ppo env=minigrid:MiniGrid-Empty-5x5-v0 env.wrappers.hide.entries=[mission]", "minigrid", ""),
    ("algo=ppo env=highway_env:highway-fast-v0 env.num_envs=1 algo.loop.rollout_steps=32", "highway_env", ""),
    ("algo=ppo env=highway_env:highway-v0 env.num_envs=1 algo.loop.rollout_steps=16 trainer.total_steps=32",
     "highway_env", ""),
    (f"algo=sac env=highway_env:parking-v0 {SOON}", "highway_env", ""),
    ("algo=ppo env=flappy_bird_gymnasium:FlappyBird-v0", "flappy_bird_gymnasium", ""),
    (f"algo=dqn env=minatar:MinAtar/Breakout-v1 {SOON}", "minatar", ""),
    ("algo=ppo env=minatar:MinAtar/Freeway-v1", "minatar", ""),
    (f"algo=sac env=gymnasium_robotics:FetchReach-v4 {SOON}", "gymnasium_robotics mujoco<3.12", ""),
    (f"algo=sac env=gymnasium_robotics:FetchReach-v4 {SOON}", "gymnasium_robotics mujoco>=3.12",
     "; gymnasium_robotics needs mujoco<3.12, but"),
    ("algo=ppo env=gymnasium_robotics:FrankaKitchen-v1", "gymnasium_robotics mujoco<3.12", ""),
    ("algo=ppo env=gymnasium_robotics:FrankaKitchen-v1", "gymnasium_robotics mujoco>=3.12",
     ".venv-robotics/bin/pip install 'rlrun[robotics]'"),
    (f"algo=sac env=gymnasium_robotics:PointMaze_UMaze-v3 {SOON}", "gymnasium_robotics", ""),
    (f"algo=ddpg env=FetchPush algo.buffer=hindsight {SOON}", "gymnasium_robotics mujoco<3.12", ""),
    (f"algo=td3 env=PointMaze_UMaze algo.buffer=hindsight {SOON}", "gymnasium_robotics", ""),
    (f"algo=sac env=PointMaze_Large algo.buffer=prioritized_hindsight {SOON}", "gymnasium_robotics", ""),
    (f"algo=sac env=gymnasium_robotics:AdroitHandDoor-v1 {SOON}", "gymnasium_robotics", ""),
    ("algo=dqn env=mo_gymnasium:deep-sea-treasure-v0", "mo_gymnasium", "env.wrappers.linear_reward makes one of"),
    ("algo=ppo env=mo_gymnasium:mo-halfcheetah-v5 algo.reward_weights.weights=[1,0.1]", "mo_gymnasium mujoco", ""),
    ("algo=ppo env=dm_control/cartpole-balance-v0 plugins=[shimmy]", "shimmy dm_control mujoco>=3.17,<4", ""),
    ("algo=ppo env=shimmy:dm_control/cartpole-balance-v0", "shimmy dm_control mujoco>=4", DM_CONTROL),
    ("algo=ppo env=dm_control/cartpole-balance-v0 plugins=[shimmy]", "shimmy dm_control mujoco>=4", DM_CONTROL),
    (f"algo=dqn env=shimmy:bsuite/catch-v0 {SOON}", "shimmy bsuite", ""),
    ("algo=ppo env=pettingzoo:tictactoe_v3", "", "environments are for several agents, which rlrun does not train"),
]  # fmt: skip


def is_here(need: str) -> bool:
    """Whether a requirement holds: `module`, `!module` for a missing one, or `mujoco` with a version."""
    from packaging.requirements import Requirement

    if need.startswith("!"):
        return importlib.util.find_spec(need[1:]) is None
    needed = Requirement(need)
    if importlib.util.find_spec(needed.name) is None:
        return False
    return not needed.specifier or importlib.metadata.version(needed.name) in needed.specifier


@pytest.mark.slow
@pytest.mark.parametrize(("words", "needs", "line"), ROWS, ids=[f"{words} {needs}" for words, needs, _ in ROWS])
def test_an_environment_trains_or_one_line_says_what_to_do(words: str, needs: str, line: str, tmp_path: Path) -> None:
    missing = [need for need in needs.split() if not is_here(need)]
    if missing:
        pytest.skip(f"needs {' '.join(missing)}")
    path = os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "ignore", "-m", "rlrun", "train", *SHORT, *words.split()]
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    errors = [said for said in done.stderr.splitlines() if said.startswith("error:")]
    assert done.returncode == (2 if line else 0), done.stderr
    assert len(errors) == (1 if line else 0) and "Traceback" not in done.stderr
    assert line in done.stderr
    assert (tmp_path / "runs").exists() is not bool(line), "a folder, where there is a run"
