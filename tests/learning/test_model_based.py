"""Planning swings Pendulum up: in its own equations beside dynamic programming, and in dynamics that it learns."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.envs.simulators.suite.pendulum import MAX_SPEED, TorchPendulum
from rlrun.run.assemble import build_loop
from rlrun.types import carried

pytestmark = pytest.mark.slow
STEPS = 200
ANGLES, SPEEDS, TORQUES = 201, 161, 21


class Interpolation:
    """Values on a grid of angles in [-pi, pi) and speeds, read between its points; angles are periodic."""

    def __init__(self, theta: Tensor, omega: Tensor):
        angle = torch.remainder(theta + math.pi, 2 * math.pi) / (2 * math.pi) * ANGLES
        speed = (omega + MAX_SPEED) / (2 * MAX_SPEED) * (SPEEDS - 1)
        low_angle, low_speed = angle.floor().long(), speed.floor().long().clamp(max=SPEEDS - 2)
        self.angle, self.speed = angle - low_angle, speed - low_speed
        self.corners = [((low_angle + i) % ANGLES) * SPEEDS + low_speed + j for i in (0, 1) for j in (0, 1)]

    def __call__(self, values: Tensor) -> Tensor:
        a, b, c, d = (values[corner] for corner in self.corners)
        low = torch.lerp(a, b, self.speed)
        return torch.lerp(low, torch.lerp(c, d, self.speed), self.angle)


def optimal_returns(state: dict[str, Tensor]) -> Tensor:
    """Returns the largest sums of the rewards of 200 steps from these states, by dynamic programming on a grid."""
    angles = torch.arange(ANGLES, dtype=torch.float64) * 2 * math.pi / ANGLES - math.pi
    speeds = torch.linspace(-MAX_SPEED, MAX_SPEED, SPEEDS, dtype=torch.float64)
    grid = {"theta": angles.repeat_interleave(SPEEDS), "omega": speeds.repeat(ANGLES)}
    env = TorchPendulum(1)

    def options(at: dict[str, Tensor]) -> list[tuple[Interpolation, Tensor]]:
        found = []
        for torque in torch.linspace(-2.0, 2.0, TORQUES):
            after, reward, _ = env.move(at, torque.expand(len(at["theta"]), 1))
            found.append((Interpolation(after["theta"], after["omega"]), reward))
        return found

    from_grid, value = options(grid), torch.zeros(ANGLES * SPEEDS, dtype=torch.float64)
    for _ in range(STEPS - 1):
        value = torch.stack([reward + read(value) for read, reward in from_grid]).amax(0)
    return torch.stack([reward + read(value) for read, reward in options(state)]).amax(0)


def run(*words: str) -> Any:
    return build_loop(run_config(jobs(["env=Pendulum", "preset=none", *words])[0].values))


def test_mpc_in_the_equations_of_pendulum_is_near_the_optimum() -> None:
    kept = ["algo.planner.keep=3", "algo.planner.correlation=0.8", "algo.planner.horizon=40"]
    loop = run("algo=mpc", "env.backend=torch", "env.num_envs=8", *kept, "algo.planner.candidates=200",
               "algo.planner.iterations=5", "algo.planner.elites=50")  # fmt: skip
    loop.begin()
    best = optimal_returns(loop.env.simulator.state)
    obs, carry, total = loop.obs, {"first": torch.ones(8, dtype=torch.bool)}, torch.zeros(8)
    for _ in range(STEPS):
        action, extras = loop.agent.act(obs, carry, False)
        step, _ = loop.env.step(action)
        total += step["reward"]
        obs, carry = step["following"], carried(extras, step["terminated"] | step["truncated"])
    print("returns", total.tolist(), "optima", best.tolist())
    assert total.mean() >= 1.05 * best.mean(), "returns are negative"


def test_mbrl_swings_pendulum_up_within_2000_steps(tmp_path: Path) -> None:
    words = ["algo=mbrl", "env=Pendulum", "algo.reward_model=given", "logger=[console]"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    returns = [row["eval/return_mean"] for row in rows if "eval/return_mean" in row]
    print(f"returns {returns}")
    assert returns[-1] >= -200


@pytest.mark.parametrize("seed", [0, 1])
def test_latent_mbrl_swings_a_lifted_pendulum_up(seed: int, tmp_path: Path) -> None:
    """The observation is multiplied by a fixed random 3 x 20 matrix. Random actions return about -1,200."""
    lifted = [f"plugins=[{Path(__file__).parent / 'lifted.py'}]", "env.wrappers.lifted.size=20", f"seed={seed}"]
    words = ["algo=latent_mbrl", "env=Pendulum", "trainer.total_steps=5000", "trainer.eval_every=1000", *lifted]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    returns = [row["eval/return_mean"] for row in rows if "eval/return_mean" in row]
    print(f"returns {returns}")
    assert returns[-1] >= -600
