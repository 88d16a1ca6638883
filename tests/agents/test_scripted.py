"""Controllers that are written by hand: what they reach, data sets from them, and where they are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import toy

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.run.evaluation import evaluate

Build = Callable[..., Loop]
DRIVING = ["algo=scripted", "algo.controller=drive", "env=PointCar"]


def play(build: Build, *words: str) -> dict[str, Any]:
    """Returns the results of 20 episodes."""
    loop = build(jobs(words)[0].values, begin=False)
    return evaluate(loop.agent, loop.addons, loop.env, 20)


def test_cartpole_stands_in_20_of_20_episodes(build: Build) -> None:
    found = play(build, "algo=scripted", "env=CartPole")
    assert found["eval/return_mean"] == 500 and found["eval/return_std"] == 0


def test_car_stops_at_its_goal_from_20_random_starts(build: Build) -> None:
    """A success is within 1 m of the goal and slower than 0.1 m/s; the return is the way to it."""
    found = play(build, *DRIVING)
    assert found["eval/success_rate"] == 1.0 and 60 < found["eval/return_mean"] < 150


def test_car_slows_down_and_brakes_at_its_distances(build: Build) -> None:
    distances = ["algo.controller.distance_to_decelerate=20", "algo.controller.distance_to_stop=2"]
    agent = build(jobs([*DRIVING, *distances, "algo.controller.speed=10"])[0].values, begin=False).agent
    obs = torch.tensor([[30.0, 0.0, 10.0], [10.0, 0.0, 5.0], [0.0, -10.0, 5.2], [1.9, 0.0, 0.3], [-9.0, 0.1, 4.0]])
    actions, _ = agent.act(obs, {}, explore=True)
    torch.testing.assert_close(actions[:4], torch.tensor([[0.0, 0.0], [0.0, 0.0], [-1.0, -0.4], [0.0, -0.6]]))
    assert actions[4, 0] == 1.0, "behind: turn at the smallest radius"


def test_cart_is_pushed_where_the_weighted_sum_is_positive(build: Build) -> None:
    agent = build(toy("scripted", **{"algo.controller.gains": [1.0, 0.0, 0.0, -2.0]})).agent
    obs = torch.tensor([[1.0, 9.0, 9.0, 0.4], [1.0, 9.0, 9.0, 0.6]])
    assert agent.act(obs, {}, explore=False)[0].tolist() == [1, 0]


def test_episodes_of_a_controller_are_recorded_and_cloned(tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "controller-v0"
    assert main(["train", "algo=scripted", "env=CartPole", "total_steps=128", f"run_dir={run}"]) == 0
    assert main(["eval", str(run), "episodes=2", f"record={data}"]) == 0
    cloning = ["algo=bc", "env=CartPole", f"algo.loop.data={data}", "total_steps=200", "trainer.eval_episodes=2"]
    assert main(["train", *cloning, f"run_dir={tmp_path / 'clone'}"]) == 0


@pytest.mark.parametrize(
    "words, message",
    [
        (["env=Acrobot"], "algo.controller=balance: needs env=CartPole; this environment has Discrete(3) and Box("),
        (["env=PointCar"], "algo.controller=balance: needs env=CartPole; this environment has Box("),
        (["env=Pendulum", "algo.controller=drive"], "algo.controller=drive: needs env=PointCar; this envir"),
        (["env=CartPole", "algo.controller.gains=[1,2]"], "algo.controller.gains=[1.0, 2.0]: needs 4 numbers"),
        (
            ["env=PointCar", "algo.controller=drive", "algo.controller.speed=0"],
            "algo.controller.speed=0.0: must be",
        ),
        (["env=CartPole", "algo.controller=balanc"], "algo.controller=balanc"),
    ],
)
def test_controllers_are_refused_in_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "algo=scripted", *words, f"run_dir={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "run").exists()
