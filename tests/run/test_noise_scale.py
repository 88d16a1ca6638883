"""The callback `noise_scale` estimates the gradient noise scale and changes nothing in the run."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from callback_runs import rows, train

from rlrun.callbacks.gradients import HeldSteps
from rlrun.callbacks.noise_scale import Averages
from rlrun.errors import RunError
from rlrun.types import Batch, Context

SAC = ["algo=sac", "env=Pendulum", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8", "network.hidden=[8]"]
PPO = ["algo=ppo", "env=CartPole", "env.num_envs=4", "algo.loop.rollout_steps=5", "algo.minibatch_size=4"]
REGRESSION = [f"algo={Path(__file__).parent}/regression.py", f"env={Path(__file__).parent}/regression.py:Line"]
MINE = "callbacks=[noise_scale]"


def noise_scale() -> float:
    """Returns tr(Sigma) / |G|^2 of the regression: 8 inputs from N(0, I), weights w of 0.5, targets from N(0, 1).

    The gradient of a row is x (x w - y), so G = w and Sigma = (|w|^2 + 1) I + w w^T.
    """
    square = 8 * 0.5**2
    return (8 * (square + 1) + square) / square


@pytest.mark.parametrize("size", [32, pytest.param(256, marks=pytest.mark.slow)])
def test_noise_scale_of_a_linear_regression_does_not_depend_on_the_batch(size: int, tmp_path: Path) -> None:
    words = [*REGRESSION, f"algo.loop.batch_size={size}", "env.num_envs=8", "trainer.snapshot_every=null", MINE]
    run = train(tmp_path / "run", *words, "trainer.log_every=8", f"trainer.total_steps={2000 + 8 * 300}")
    assert run.rows[-1]["custom/noise_scale"] == pytest.approx(noise_scale(), rel=0.2)


def test_averages_are_plain_means_at_first_and_follow_later_values_at_their_rate() -> None:
    averages = Averages()
    one = torch.tensor([1.0, 2.0])
    averages.add(one, one, 0.5)
    assert averages.noise_scale(10) == pytest.approx(0)
    averages.add(one, torch.tensor([3.0, 0.0]), 0.5)
    assert averages.weight == 0.75
    inner, square = (0.25 * 5 + 0.5 * 3) / 0.75, (0.25 * 5 + 0.5 * 7) / 0.75
    assert averages.noise_scale(10) == pytest.approx((square / inner - 1) * 10)
    averages.add(one, -9 * one, 0.5)
    assert averages.noise_scale(10) is None


@pytest.mark.parametrize(("words", "names"), [(SAC, ["", "_actor", "_critic", "_entropy"][1:]), (PPO, [""])])
def test_noise_scale_changes_nothing_and_is_resumed(words: list[str], names: list[str], tmp_path: Path) -> None:
    plain = train(tmp_path / "plain", *words)
    whole = train(tmp_path / "whole", *words, MINE)
    half = train(tmp_path / "half", *words, MINE, "trainer.stop_at=50")
    assert half.summary["status"] == "paused"
    half.resume()
    assert rows(half) == rows(whole)
    metrics = {f"custom/noise_scale{name}" for name in names}
    assert metrics == {key for row in whole.rows for key in row if key.startswith("custom/")}
    others = [{key: value for key, value in row.items() if key not in metrics} for row in rows(whole)]
    assert others == rows(plain)
    weights = [safetensors.torch.load_file(folder.path / "snapshots" / "step_000000080" / "agent.safetensors")
               for folder in (plain, whole, half)]  # fmt: skip
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]) and torch.equal(tensor, weights[2][name]), name
    assert json.loads((half.path / "meta.json").read_text())["resumed"][0]["verdict"] == "exact"


def test_gradients_of_halves_are_clipped_to_the_norm(tmp_path: Path) -> None:
    words = [*REGRESSION, "algo.loop.warmup_steps=20", "trainer.total_steps=60"]
    last = []
    for limit in ("null", "1e6", "1e-6"):
        callback = f"callbacks=[{{name: noise_scale, rate: 1.0, max_grad_norm: {limit}}}]"
        last.append(train(tmp_path / limit, *words, callback).rows[-1]["custom/noise_scale"])
    assert last[0] == last[1] != last[2]


def test_updates_of_the_copy_log_no_numbers(tmp_path: Path) -> None:
    words = [*REGRESSION, "algo.loop.warmup_steps=20", "algo.loop.updates_per_step=1"]
    logged = []
    for index, callbacks in enumerate(("[]", "[noise_scale]")):
        found = train(tmp_path / str(index), *words, f"callbacks={callbacks}").rows
        logged.append([row.get("custom/updates") for row in found])
    assert logged[0] == logged[1]


def test_one_update_after_every_row_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    drawn: set[float] = set()

    def of(self: HeldSteps, batch: Batch, ctx: Context) -> dict[str, torch.Tensor]:
        measured.append(ctx.updates)
        drawn.add(float(self.agent.noise.normal(1)))
        return {"optim": torch.ones(2)}

    monkeypatch.setattr(HeldSteps, "of", of)
    train(tmp_path / "run", *REGRESSION, "algo.loop.warmup_steps=20", "algo.loop.updates_per_step=1", MINE)
    assert measured == [0, 0, 16, 16, 40, 40]
    assert len(drawn) == 6, "the losses of all halves have noise of their own"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["algo=q_learning", "env=FrozenLake"], "algo=q_learning does not learn by gradients of its own losses"),
        (["algo=svpg", "env=CartPole"], "algo=svpg does not learn by gradients of its own losses"),
        (["algo=ppo", "env=CartPole", "env.num_envs=1"], "a rollout is halved by its environments; set env.num_envs=2"),
        (["algo=r2d2", "env=CartPole"], "algo=dqn learns from sequences"),
        (["algo=openai_es", "env=CartPole"], "needs an agent that learns from transitions or rollouts"),
        (["algo=parameter_noise_bandit", "env=LinearBandit"], "reads the replay buffer in its updates"),
    ],
)
def test_agents_without_two_halves_are_refused_in_one_line(words: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"exit code 2: callbacks: noise_scale: .*{why}"):
        train(tmp_path / "run", *words, MINE, "trainer.total_steps=100000")
