"""A scripted expert for KeyDoor: finds the shortest way to the goal, and writes it as a data set of one episode.

./scripts/key_door key-door-v0
"""

import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch

from rlrun.buffers.demos import Demo
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.random import sequence
from rlrun.datasets.demonstrations import write
from rlrun.envs.stepping.vector import VectorEnv


def shortest_way(env: Any) -> Demo:
    """Returns an episode from the current state to the goal, found by breadth-first search in `env.P`.

    env: an environment with dynamics `P` in the form of Gymnasium's toy-text environments.
    """
    ways: dict[int, list[tuple[int, int]]] = {env.state: []}  # state -> states and actions on the way to it
    waiting = deque([env.state])
    while waiting:
        state = waiting.popleft()
        for action, ((_, next_state, _, terminated),) in env.P[state].items():
            if next_state in ways:
                continue
            ways[next_state] = [*ways[state], (state, action)]
            waiting.append(next_state)
            if terminated:
                return episode(ways[next_state], next_state)
    raise ValueError("no way leads to the goal")


def episode(way: list[tuple[int, int]], goal: int) -> Demo:
    """Returns the steps along a way as a demonstration with reward 1 in the last step."""
    states, actions = zip(*way, strict=True)
    reward = torch.zeros(len(way))
    reward[-1] = 1.0
    obs = torch.tensor([*states, goal])
    return {"obs": obs, "action": torch.tensor(actions), "reward": reward, "terminated": True, "worth": 1.0}


def main(folder: str) -> None:
    config = run_config(jobs(["algo=ppo_demos", "env=KeyDoor", "env.num_envs=1"])[0].values)
    env = VectorEnv.make(config.env, sequence(0, "demonstration"))
    env.reset()
    assert env.pool is not None
    way = shortest_way(env.pool.slots[0].unwrapped)  # type: ignore[attr-defined]
    write(Path(folder), [way], env)
    env.close()
    print(f"{folder}: {len(way['reward'])} steps")


if __name__ == "__main__":
    main(*sys.argv[1:])
