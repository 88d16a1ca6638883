"""Returns of reward vectors: one number for comparisons, with thresholds first, and every component."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_evaluation import Lengths, Player
from toys import Values, put, toy, train

from rlrun.cli import main
from rlrun.core.addon import Addon, Addons
from rlrun.core.loop import Loop
from rlrun.run.evaluation import evaluate
from rlrun.run.returns import components, score, shortfall
from rlrun.run.trainer import Progress, Trainer
from rlrun.types import Events, Objective, Spec, Step

OBJECTIVE = Objective((1.0, 0.5, 0.0), (None, 2.0, -1.0))
COUNTER = {
    "env.id": "rlrun/Counter-v0",
    "env.kwargs": {"length": 3, "factors": [1.0, -2.0]},
    "env.max_episode_steps": None,
}


def test_score_weighs_a_reward_vector() -> None:
    assert score([3.0, -4.0, 100.0], OBJECTIVE) == 1.0
    assert score(7.0, None) == 7.0


def test_components_of_reward_vector_returns() -> None:
    means = components("eval", [[1.0, 2.0], [3.0, -2.0]])
    assert means == {"eval/return_mean_0": 2.0, "eval/return_mean_1": 0.0}
    assert components("eval", [1.0, 2.0]) == {}


def test_shortfall_is_the_largest_gap_below_a_floor() -> None:
    returned, lengths = [[0.0, 2.0, -9.0], [0.0, 10.0, -9.0]], [2, 4]  # a step: 2 and -3
    assert shortfall(returned, lengths, OBJECTIVE) == {"eval/shortfall": 2.0}
    assert shortfall([[0.0, 20.0, -2.0]], [4], OBJECTIVE) == {"eval/shortfall": 0.0}
    assert shortfall(returned, lengths, Objective((1.0,) * 3, (None,) * 3)) == {}
    assert shortfall([1.0], [1], None) == {}


def test_evaluation_reports_every_reward_component() -> None:
    class RewardVectors(Lengths):
        def __init__(self, lengths: list[int], idle: bool):
            super().__init__(lengths, idle)
            self.spec = replace(self.spec, reward_dim=2)

        def step(self, action: torch.Tensor) -> tuple[Step, Events]:
            step, events = super().step(action)
            return step | {"reward": step["reward"][:, None] * torch.tensor([1.0, -2.0])}, events

    class WithObjective(Addon):
        def spec_after(self, spec: Spec) -> Spec:
            return replace(spec, objective=Objective((1.0, 0.25), (None, -1.5)))

    values = evaluate(Player(), Addons([WithObjective()]), RewardVectors([2, 50], idle=True), 4)  # type: ignore[arg-type]
    assert values["eval/return_mean"] == 13 and values["eval/length_mean"] == 26
    assert (values["eval/return_mean_0"], values["eval/return_mean_1"]) == (26, -52)
    assert values["eval/shortfall"] == 0.5


@pytest.mark.parametrize(
    ("seen", "best"),
    [
        ([(1.0, 0.0), (3.0, 0.0), (2.0, 0.0)], 2),
        ([(9.0, 0.5), (1.0, 0.0), (2.0, 0.1)], 2),  # returns that meet their thresholds are better than all others
        ([(9.0, 0.5), (1.0, 0.4), (2.0, 0.4)], 3),
    ],
)
def test_best_evaluation_has_the_smallest_shortfall(seen: list[tuple[float, float]], best: int) -> None:
    trainer: Any = SimpleNamespace(progress=Progress())
    for step, (returned, missing) in enumerate(seen, start=1):
        Trainer.update_best(trainer, step, {"eval/return_mean": returned, "eval/shortfall": missing})
    assert trainer.progress.best_step == best


def vectors(algo: str, **changes: Any) -> Values:
    return put(toy(algo), COUNTER | changes)


@pytest.mark.parametrize("algo", ["cem", "muzero", "q_learning", "maml", "svpg", "ppo_demos"])
def test_scalar_algorithms_refuse_reward_vectors(algo: str, build: Callable[..., Loop]) -> None:
    kwargs: Values = {"env.kwargs": COUNTER["env.kwargs"] | {"length": 5}}
    wraps = {"discretize": {"bins": 3, "low": [0.0, 0.0], "high": [9.0, 9.0]}} if algo == "q_learning" else {}
    values = vectors(algo, **kwargs, **{"env.wrappers": wraps, "env.task_kwargs": {}})
    with pytest.raises(Exception, match=rf"^algo={values['algo']['name']} needs one reward a step .*has 2 of them"):
        build(values)
    build(put(values, {"env.wrappers": {**wraps, "linear_reward": {"weights": [1.0, 0.5]}}}))


@pytest.mark.parametrize("algo", ["discrete_sac", "ppo", "ppo_rnd", "vtrace"])
def test_an_agent_learns_from_vectors_and_its_episodes_are_weighed(algo: str, build: Callable[..., Loop]) -> None:
    loop: Any = build(vectors(algo, **{"algo.reward_weights.weights": [2.0, 0.25], "env.normalize.kind": "reward"}))
    train(loop, 2)
    assert loop.metrics.episodes[0][:2] == ([6.0, -12.0], 3)
    assert loop.objective == Objective((2.0, 0.25), (None, None))
    assert loop.batch["reward"].shape[:-1] == loop.batch["weight"].shape


def test_run_logs_every_reward_component(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    words = ["algo=discrete_sac", "env=rlrun/Counter-v0", "env.kwargs={factors: [1.0, -2.0]}", "logger=[console]"]
    words += ["algo.reward_weights.weights=[1, 0.25]", "trainer.total_steps=60", "trainer.eval_episodes=2"]
    assert main(["train", *words, "algo.loop.warmup_steps=50", "trainer.log_every=30", f"run_dir={run}"]) == 0
    for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        assert (row["train/return_mean"], row["train/return_mean_0"], row["train/return_mean_1"]) == (3, 6, -12)
    assert (row["eval/return_mean"], row["eval/return_mean_1"]) == (3, -12)
    assert main(["eval", str(run), "episodes=2"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["returns"], result["returns_0"], result["returns_1"]) == ([3, 3], [6, 6], [-12, -12])
