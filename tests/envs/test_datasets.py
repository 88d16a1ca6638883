"""Tables are read as they are published, and what must be guessed is nowhere in what is seen."""

import gzip
import json

import numpy as np
import pytest
import torch

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.envs.tables import load
from rlrun.envs.vector import VectorEnv
from rlrun.errors import ConfigError

# What the published files look like: env -> (file, lines, features, classes).
FILES = {
    "AdultBandit": (
        "adult.data",
        [
            "39, State-gov, 77516, Bachelors, <=50K",
            "50, Private, 83311, HS-grad, >50K",
            "38, ?, 21, HS-grad, <=50K",
            "",
        ],
        2 + 2 + 2,
        ["<=50K", ">50K"],
    ),
    "CensusBandit": (
        "USCensus1990.data.txt",
        ["caseid,dAge,dAncstry1,dOccup,iYearsch", "10000,5,0,1,3", "10001,6,1,7,2", "10002,3,1,0,11"],
        3,
        ["0", "1", "7"],
    ),
    "CovertypeBandit": ("covtype.data.gz", ["2596,51,3,0,5", "2590,56,2,1,2", "2804,139,9,0,2"], 4, ["2", "5"]),
    "MagicBandit": ("magic04.data", ["28.7967,16.0021,2.6449,g", "31.6036,11.7235,2.5185,h"], 3, ["g", "h"]),
    "MushroomBandit": ("agaricus-lepiota.data", ["p,x,s,?", "e,x,s,y", "e,b,s,w", "p,x,y,w"], 2 + 2 + 3, ["e", "p"]),
    "StatlogBandit": ("shuttle.trn", ["50 21 77 0 28 2", "55 0 92 0 0 4", "37 0 103 0 26 4"], 5, ["2", "4"]),
    "WineBandit": ("wine.data", ["1,14.23,1.71,1065", "2,12.37,.94,520", "3,12.86,1.35,630"], 3, ["1", "2", "3"]),
}


def write(folder, env):
    name, lines, *_ = FILES[env]
    path = folder / name
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def make(env, path, num_envs=4, **kwargs):
    words = ["algo=fixed_policy", f"env={env}", f"env.kwargs.path={path}", f"env.num_envs={num_envs}"]
    words += [f"env.kwargs.{key}={value}" for key, value in kwargs.items()]
    return VectorEnv.make(run_config(jobs(words)[0].values).env, np.random.SeedSequence(0))


@pytest.mark.parametrize("env", FILES)
def test_published_formats_are_read(env, tmp_path):
    made = make(env, write(tmp_path, env))
    _, _, features, classes = FILES[env]
    assert made.spec.obs.shape == (features,) and made.venv.table.classes == classes
    assert made.spec.action.n == 2 if env == "MushroomBandit" else len(classes)


@pytest.mark.parametrize("env", FILES)
def test_who_knows_the_label_regrets_nothing_and_every_class_comes(env, tmp_path):
    made, seen = make(env, write(tmp_path, env)), set()
    made.reset()
    for _ in range(10):
        labels = made.venv.table.labels[made.venv.rows]
        seen.update(labels.tolist())
        best = (labels == 0).astype(int) if env == "MushroomBandit" else labels
        measures = made.step(torch.tensor(best)).info["measures"]
        assert not measures["regret"].any() and measures["best_arm"].all()
    assert seen == set(range(len(FILES[env][3])))


def test_mushrooms_pay_by_the_table_of_the_paper(tmp_path):
    made = make("MushroomBandit", write(tmp_path, "MushroomBandit"), num_envs=4000)
    made.reset()
    edible = made.venv.table.labels[made.venv.rows] == 0
    step = made.step(torch.ones(4000, dtype=torch.int64))
    assert step.reward[edible].unique().tolist() == [5.0]
    poisoned = step.reward[~edible]
    assert poisoned.unique().tolist() == [-35.0, 5.0] and abs(poisoned.mean() + 15) < 4 * 20 / np.sqrt(len(poisoned))
    assert set(step.info["measures"]["regret"].tolist()) == {0.0, 15.0}
    edible = made.venv.table.labels[made.venv.rows] == 0
    passed = made.step(torch.zeros(4000, dtype=torch.int64))
    assert not passed.reward.any() and passed.info["measures"]["regret"].tolist() == (5.0 * edible).tolist()


def blobs(path, shuffled):
    """Three classes in the plane, far apart; with the labels shuffled there is nothing to know."""
    rng = np.random.default_rng(0)
    label = np.arange(600) % 3
    x = rng.normal(size=(600, 2)) * 0.3 + np.array([[0, 0], [3, 0], [0, 3]])[label]
    told = rng.permutation(label) if shuffled else label
    rows = [f"{a:.4f},{'abc'[k]},{b:.4f}\n" for (a, b), k in zip(x, told, strict=True)]
    path.write_text("".join(["first,class,second\n", *rows]))


@pytest.mark.parametrize("shuffled", [False, True])
def test_labels_do_not_leak_into_the_context(shuffled, tmp_path):
    blobs(tmp_path / "my.csv", shuffled)
    words = ["algo=linear_posterior", "env=dataset_bandit", f"env.kwargs.path={tmp_path / 'my.csv'}"]
    words += ["env.kwargs.label=class", "env.num_envs=10", "trainer.total_steps=3000", "trainer.log_every=1000"]
    assert main(["train", *words, "logger.tensorboard=false", f"run_dir={tmp_path / 'run'}"]) == 0
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    if shuffled:
        assert abs(last["train/best_arm"] - 1 / 3) < 0.09
    else:
        assert last["train/best_arm"] > 0.95


def test_every_row_comes_once_before_any_comes_again(tmp_path):
    path = tmp_path / "ten.csv"
    path.write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(10)))
    made, rows = make("dataset_bandit", path, num_envs=3, normalize="false"), []
    obs = made.reset()
    for _ in range(20):
        rows += obs[:, 0].int().tolist()
        obs = made.step(torch.zeros(3, dtype=torch.int64)).obs
    assert [sorted(rows[i : i + 10]) for i in range(0, 60, 10)] == [list(range(10))] * 6
    assert rows[:10] != rows[10:20]


def test_a_restored_table_goes_on_with_the_same_rows(tmp_path):
    blobs(tmp_path / "my.csv", shuffled=False)
    one, other = (make("dataset_bandit", tmp_path / "my.csv", label="class") for _ in range(2))
    one.reset()
    zeros = torch.zeros(4, dtype=torch.int64)
    for _ in range(7):
        one.step(zeros)
    other.set_extra_state(one.get_extra_state())
    for _ in range(200):
        first, second = one.step(zeros), other.step(zeros)
        assert torch.equal(first.obs, second.obs) and torch.equal(first.reward, second.reward)


def test_columns_of_numbers_are_standardised(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,u,0\n3,v,1\n5,u,1\n")
    table = load(str(tmp_path / "t.csv"), "y")
    assert table.features[:, 0].tolist() == pytest.approx([-1.2247449, 0, 1.2247449])
    assert table.features[:, 1:].tolist() == [[1, 0], [0, 1], [1, 0]] and table.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("text", "given", "line"),
    [
        (None, {}, "no such file"),
        ("a,b\n", {}, "holds no rows"),
        ("a,b\n1,2\n1\n", {}, "row 3 has 1 columns, others 2"),
        ("a,b\n1,2\n", {"label": "c"}, r"no column 'c' \(it has: a, b\)"),
        ("a,b\n1,2\n", {"label": 7}, "no column 7, there are 2"),
        ("a,b\nnan,2\n", {}, "not finite"),
    ],
)
def test_what_cannot_be_read_says_why(text, given, line, tmp_path):
    path = tmp_path / "t.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=line):
        make("dataset_bandit", path, **given)
    with pytest.raises(ConfigError, match="which file"):
        make("dataset_bandit", "null")


@pytest.mark.parametrize(("name", "shape"), [("wine", (178, 13)), ("digits", (1797, 64)), ("breast_cancer", (569, 30))])
def test_what_scikit_learn_brings(name, shape):
    pytest.importorskip("sklearn")
    table = load(f"sklearn:{name}", -1)
    assert table.features.shape == shape and len(table.classes) == len(set(table.labels))


def test_a_column_that_names_every_row_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("id,y\n" + "".join(f"row{i},{i % 2}\n" for i in range(1001)))
    with pytest.raises(ConfigError, match="1,001 different words, such as 'row0'; name it in drop"):
        make("dataset_bandit", tmp_path / "t.csv")
    with pytest.raises(ConfigError, match="no column besides the label"):
        make("dataset_bandit", tmp_path / "t.csv", drop="[id]")
