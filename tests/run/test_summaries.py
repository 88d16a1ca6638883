"""The callback `summaries` stores histograms of weights, gradients, actions and outputs, and changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from callback_runs import rows, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlrun.callbacks.summaries import Summaries
from rlrun.core.callback import Callback
from rlrun.errors import RunError
from rlrun.python import Run
from rlrun.settings import register, registry

SAC = ["algo=sac", "env=Pendulum", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8", "network.hidden=[8]"]
PPO = ["algo=ppo", "env=CartPole", "env.num_envs=4", "algo.loop.rollout_steps=5", "algo.minibatch_size=10",
       "network.hidden=[8]"]  # fmt: skip
HERE = Path(__file__).parent
REGRESSION = [f"algo={HERE}/regression.py", f"env={HERE}/regression.py:Line", "algo.loop.warmup_steps=20"]
ALL = ["weights", "gradients", "actions", "outputs"]
SEEN: list[dict[str, Any]] = []
SHOWN: dict[str, np.ndarray] = {}


class Witness(Callback):
    """Keeps the batches of all updates."""

    def on_update(self, batch: Any, ctx: Any) -> None:
        SEEN.append(batch)


@pytest.fixture(autouse=True)
def witness() -> Iterator[None]:
    SEEN.clear()
    SHOWN.clear()
    register("callback", "witness")(Witness)
    yield
    registry._registry["callback"].pop("witness")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """The values of the latest histogram of each name."""
    monkeypatch.setattr(Summaries, "show", lambda self, name, value: SHOWN.update({name: value.values}))
    return SHOWN


def media(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run.path / "media").iterdir()}


@pytest.mark.parametrize(("words", "what"), [(SAC, ["actions", "outputs"]), (PPO, ALL)])
def test_summaries_change_nothing_and_are_resumed(words: list[str], what: list[str], tmp_path: Path) -> None:
    callback = f"callbacks=[{{name: summaries, what: [{','.join(what)}], every: 2, rms: true}}]"
    plain = train(tmp_path / "plain", *words)
    whole = train(tmp_path / "whole", *words, callback, "logger=[tensorboard]")
    half = train(tmp_path / "half", *words, callback, "trainer.stop_at=25")
    half.resume()
    assert rows(half) == rows(whole) and media(half) == media(whole)
    names = {name.partition("-")[2].removesuffix(".json").replace("%2F", "/") for name in media(whole)}
    logged = {key for row in whole.rows for key in row if key.startswith("custom/")}
    assert logged == {f"custom/rms/{name}" for name in names}
    others = [{key: value for key, value in row.items() if key not in logged} for row in rows(whole)]
    assert others == rows(plain)
    board = EventAccumulator(str(whole.path / "tb")).Reload()
    assert {*board.Tags()["histograms"]} == names
    kinds = {name.partition("/")[0] for name in names}
    assert kinds == {*what}


def test_histograms_hold_weights_and_gradients_of_the_update(tmp_path: Path, shown: dict[str, np.ndarray]) -> None:
    words = [*REGRESSION, "callbacks=[witness, {name: summaries, every: 1, rms: true}]", "trainer.total_steps=32"]
    run = train(tmp_path / "run", *words)
    batch = SEEN[0]
    weights = torch.full((8,), 0.5)
    error = batch["obs"] @ weights - batch["reward"]
    gradient = (batch["obs"] * error.unsqueeze(1)).mean(0)
    assert {*shown} == {"weights/w", "gradients/w"}
    assert shown["weights/w"].tolist() == weights.tolist()
    assert shown["gradients/w"] == pytest.approx(gradient.numpy(), abs=1e-6)
    assert run.rows[-1]["custom/rms/gradients/w"] == pytest.approx(gradient.square().mean().sqrt().item(), abs=1e-6)


def test_actions_are_those_at_the_observations_of_the_update(tmp_path: Path, shown: dict[str, np.ndarray]) -> None:
    actions = "callbacks=[{name: summaries, what: [actions]}]"
    train(tmp_path / "ppo", *PPO, actions, "trainer.total_steps=20")
    assert {name: values.shape for name, values in shown.items()} == {"actions/logits": (5 * 4, 2)}
    shown.clear()
    train(tmp_path / "sac", *SAC, actions)
    assert {name: values.shape for name, values in shown.items()} == {"actions/mean": (8, 1), "actions/log_std": (8, 1)}
    shown.clear()
    kl_sac = [word.replace("algo=sac", "algo=kl_sac") for word in SAC]
    train(tmp_path / "kl_sac", *kl_sac, actions, "env.num_envs=2")
    assert {values.shape for values in shown.values()} == {(2, 1)}, "those of the environments, which hold the past"


def test_outputs_are_those_of_the_chosen_networks(tmp_path: Path, shown: dict[str, np.ndarray]) -> None:
    words = [*PPO, "trainer.total_steps=20", "algo.epochs=1"]
    run = train(tmp_path / "run", *words, "callbacks=[{name: summaries, what: [outputs]}]")
    assert not any(key.startswith("custom/") for key in run.rows[-1])
    assert {*shown} == {"outputs/policy.logits", "outputs/critic.network"}, "those that the update itself calls"
    assert shown["outputs/policy.logits"].shape == (20 * 2,), "of both minibatches"
    shown.clear()
    chosen = "callbacks=[{name: summaries, what: [outputs], networks: [policy, policy.torso]}]"
    train(tmp_path / "other", *words, chosen)
    assert {*shown} == {"outputs/policy.logits", "outputs/policy.torso"}
    assert shown["outputs/policy.torso"].shape == (20 * 8,)


def test_every_is_in_rows(tmp_path: Path, shown: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    monkeypatch.setattr(Summaries, "measure", lambda self, batch, ctx: measured.append(ctx.updates))
    words = [*REGRESSION, "algo.loop.updates_per_step=1"]
    train(tmp_path / "run", *words, "callbacks=[{name: summaries, every: 2}]", "trainer.total_steps=120")
    assert measured == [0, 16, 56], "after the rows at steps 40 and 80"


@pytest.mark.parametrize(
    ("words", "settings", "why"),
    [
        (["algo=q_learning", "env=FrozenLake"], "", "algo=q_learning does not learn by gradients of its own losses"),
        (PPO, ", what: [outputs], networks: [actor]", "no network of the agent is 'actor'; it has policy, critic"),
    ],
)
def test_what_cannot_be_summarised_is_refused_in_one_line(
    words: list[str], settings: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=f"exit code 2: callbacks: summaries: .*{why}"):
        train(tmp_path / "run", *words, f"callbacks=[{{name: summaries{settings}}}]")
