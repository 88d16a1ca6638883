"""The classifier learns labels that a table reports, and is evaluated on rows that are held out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from toys import put, toy, train

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.envs.builtin.dataset_bandits import DatasetBandit
from rlrun.envs.builtin.tables import DataTable, load, part_of, rows_in_both_parts
from rlrun.errors import ConfigError
from rlrun.run.assemble import eval_env
from rlrun.run.evaluation import play

Build = Callable[..., Loop]
TABLE = Path(__file__).parents[1] / "three_classes.csv"
NO_ROWS = "env.kwargs.part=test: has no rows with env.kwargs.held_out=0.0"
WORDS = ["algo=classifier", "env=dataset_bandit", f"env.kwargs.path={TABLE}", "preset=none", "env.num_envs=12"]


def test_a_step_is_that_of_the_cross_entropy_to_smoothed_labels(build: Build) -> None:
    loop: Any = build(put(jobs(WORDS)[0].values, {"algo.label_smoothing": 0.3}))
    rows = {"obs": torch.randn(12, 2), "label": torch.arange(12) % 3, "weight": torch.ones(12)}
    rows["weight"][4:] = 0
    targets = 0.7 * F.one_hot(rows["label"][:4], 3) + 0.1
    expected = -(targets * loop.agent.logits(rows["obs"][:4]).log_softmax(-1)).sum(-1).mean()
    metrics = loop.agent.fit(rows)
    torch.testing.assert_close(metrics["loss/cross_entropy"], expected.detach())


def test_every_row_is_learned_from_with_its_own_label_once_in_a_pass(build: Build) -> None:
    loop: Any = build(jobs(WORDS)[0].values)
    table = load(str(TABLE), -1)
    seen: list[tuple[float, ...]] = []
    for _ in range(5):
        loop.tick()
        for obs, label in zip(loop.batch["obs"][0], loop.batch["label"][0], strict=True):
            (row,) = np.flatnonzero((table.features == obs.numpy()).all(1))
            assert table.labels[row] == label
            seen.append(tuple(obs.tolist()))
    assert len(seen) == len(set(seen)) == 60


def test_all_rows_of_a_longer_rollout_are_learned_from_together(build: Build) -> None:
    loop: Any = build(put(jobs(WORDS)[0].values, {"algo.loop.rollout_steps": 3}))
    sizes: list[int] = []
    loop.agent.fit = lambda rows: sizes.append(len(rows["label"])) or {}
    loop.tick()
    assert sizes == [36]


def test_classes_that_a_mask_forbids_are_not_predicted(build: Build) -> None:
    values = toy("classifier", **{"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"masks": "info"}})
    loop: Any = build(values)
    loop.agent.logits.forward = lambda obs: torch.tensor([[0.0, 1.0, 2.0]]).expand(2, -1)
    obs = {"features": torch.zeros(2, 2), "action_mask": torch.tensor([[1, 1, 0], [1, 0, 0]])}
    assert loop.agent.act(obs, {}, False)[0].tolist() == [1, 0]


def test_without_held_out_rows_the_table_is_shared() -> None:
    table = load(str(TABLE), -1)
    assert part_of(table, 0.0, "train") is table


def test_held_out_rows_are_those_of_the_table_and_never_trained_on() -> None:
    table = load(str(TABLE), -1)
    train_part, test_part = part_of(table, 0.25, "train"), part_of(table, 0.25, "test")
    parts = [{*map(tuple, part.features.tolist())} for part in (table, train_part, test_part)]
    assert [len(part) for part in parts] == [60, 45, 15]
    assert parts[1] | parts[2] == parts[0] and not parts[1] & parts[2]


def test_held_out_rows_that_training_has_too_are_counted_in_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = TABLE.read_text().splitlines()
    twice = tmp_path / "twice.csv"
    twice.write_text("\n".join([*lines, *lines[1:21]]) + "\n")
    table = load(str(twice), -1)
    parts = [part_of(table, 0.25, part) for part in ("train", "test")]
    trained, held = (
        [(*obs, label) for obs, label in zip(part.features.tolist(), part.labels, strict=True)] for part in parts
    )
    count = sum(row in trained for row in held)
    assert 5 < count < len(held) == 20
    for part in ("train", "test", "train"):
        DatasetBandit(2, str(twice), held_out=0.25, part=part)
    DatasetBandit(2, str(TABLE), held_out=0.25)
    line = (
        f"env.kwargs.path={twice}: {count} of the rows that env.kwargs.held_out=0.25 holds out equal rows for training"
    )
    assert [record.getMessage() for record in caplog.records] == [line]


def test_equal_features_with_another_label_are_another_row() -> None:
    table = DataTable(np.zeros((2, 3), np.float32), np.array([0, 1]), ["a", "b"], None)
    assert rows_in_both_parts(table, 0.5) == 0
    assert rows_in_both_parts(table._replace(labels=np.array([1, 1])), 0.5) == 1
    signs = np.array([[0.0], [-0.0]], np.float32)
    assert rows_in_both_parts(DataTable(signs, np.array([1, 1]), ["a", "b"], None), 0.5) == 1


def test_an_evaluation_has_every_held_out_row_once(build: Build) -> None:
    words = [*WORDS, "env.kwargs.held_out=0.25", "env.eval_kwargs.part=test", "trainer.eval_episodes=15"]
    config = run_config(jobs(words)[0].values)
    loop = train(build(jobs(words)[0].values), 150)
    env = eval_env(config, 0, "eval", 15, torch.device("cpu"))
    shown: list[np.ndarray] = []
    plain = env.step

    def step(action: torch.Tensor) -> Any:
        shown.extend(env.obs.numpy().copy())  # type: ignore[union-attr]
        return plain(action)

    env.step = step  # type: ignore[method-assign]
    results = play(loop.agent, loop.addons, env, 15)
    assert {tuple(row) for row in shown[:15]} == {*map(tuple, part_of(load(str(TABLE), -1), 0.25, "test").features)}
    assert np.mean([result.episode_return for result in results]) >= 0.9


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["env=CartPole"], "algo=classifier: reads 'label', but this environment reports nothing"),
        (["env.kwargs.held_out=1.5"], "env.kwargs.held_out=1.5: must be at least 0 and less than 1"),
        (["env.kwargs.part=half"], "env.kwargs.part=half: must be train or test"),
        (["env.eval_kwargs.part=test"], f"env.eval_kwargs: {NO_ROWS}"),
    ],
)  # fmt: skip
def test_bad_settings_are_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*WORDS[:1], *words] if words[0] == "env=CartPole" else [*WORDS, *words]
    assert main(["train", *given, "logger=[]"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {line}"


def test_labels_that_are_no_actions_are_refused(build: Build) -> None:
    mushrooms = {"env.id": "rlrun/MushroomBandit-v0"}
    with pytest.raises(ConfigError, match=r"the labels are Discrete\(3\), but the actions are Discrete\(2\)"):
        build(toy("classifier", **mushrooms))


@pytest.mark.slow
def test_digits_that_were_held_out_are_recognised(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    words = ["algo=classifier", "env=Digits", "total_steps=60000", "trainer.eval_episodes=359"]
    assert main(["train", *words, f"run_dir={tmp_path}", "seed=1"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("final return")]
    assert float(line.split()[-1]) >= 0.95
