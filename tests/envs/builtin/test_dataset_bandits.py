"""Tables are read as published, and observations do not contain the label."""

import gzip
import json
import os
import random

import numpy as np
import pytest
import torch
from lzw import compressed

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.envs.builtin import tables
from rlrun.envs.builtin.dataset_bandits import DatasetBandit
from rlrun.envs.builtin.tables import load
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError

# Format of the published files: env -> (file, lines, features, classes).
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
    "StatlogBandit": ("shuttle.trn.Z", ["50 21 77 0 28 2", "55 0 92 0 0 4", "37 0 103 0 26 4"], 5, ["2", "4"]),
    "WineBandit": ("wine.data", ["1,14.23,1.71,1065", "2,12.37,.94,520", "3,12.86,1.35,630"], 3, ["1", "2", "3"]),
}


def write(folder, env):
    name, lines, *_ = FILES[env]
    path = folder / name
    text = "".join(f"{line}\n" for line in lines)
    pack = {".gz": gzip.compress, ".Z": compressed}.get(path.suffix, bytes)
    path.write_bytes(pack(text.encode()))
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
def test_dataset_bandit_regret_is_0_for_the_label(env, tmp_path):
    made, seen = make(env, write(tmp_path, env)), set()
    made.reset()
    for _ in range(10):
        labels = made.venv.table.labels[made.venv.rows]
        seen.update(labels.tolist())
        best = (labels == 0).astype(int) if env == "MushroomBandit" else labels
        measures = made.step(torch.tensor(best))[1].measures
        assert not measures["regret"].any() and measures["best_arm"].all()
    assert seen == set(range(len(FILES[env][3])))


def test_mushroom_bandit_rewards_are_those_of_the_paper(tmp_path):
    made = make("MushroomBandit", write(tmp_path, "MushroomBandit"), num_envs=4000)
    made.reset()
    edible = made.venv.table.labels[made.venv.rows] == 0
    step, events = made.step(torch.ones(4000, dtype=torch.int64))
    assert step["reward"][edible].unique().tolist() == [5.0]
    poisoned = step["reward"][~edible]
    assert poisoned.unique().tolist() == [-35.0, 5.0] and abs(poisoned.mean() + 15) < 4 * 20 / np.sqrt(len(poisoned))
    assert set(events.measures["regret"].tolist()) == {0.0, 15.0}
    edible = made.venv.table.labels[made.venv.rows] == 0
    step, events = made.step(torch.zeros(4000, dtype=torch.int64))
    assert not step["reward"].any() and events.measures["regret"].tolist() == (5.0 * edible).tolist()


def blobs(path, shuffled):
    """Returns three distant classes in the plane; with shuffled labels nothing can be learned."""
    rng = np.random.default_rng(0)
    label = np.arange(600) % 3
    x = rng.normal(size=(600, 2)) * 0.3 + np.array([[0, 0], [3, 0], [0, 3]])[label]
    labels = rng.permutation(label) if shuffled else label
    rows = [f"{a:.4f},{'abc'[k]},{b:.4f}\n" for (a, b), k in zip(x, labels, strict=True)]
    path.write_text("".join(["first,class,second\n", *rows]))


@pytest.mark.parametrize("shuffled", [False, True])
def test_dataset_bandit_context_excludes_the_label(shuffled, tmp_path):
    blobs(tmp_path / "my.csv", shuffled)
    words = ["algo=linear_posterior", "env=dataset_bandit", f"env.kwargs.path={tmp_path / 'my.csv'}"]
    words += ["env.kwargs.label=class", "env.num_envs=10", "trainer.total_steps=3000", "trainer.log_every=1000"]
    assert main(["train", *words, "logger=[console]", f"run_dir={tmp_path / 'run'}"]) == 0
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    if shuffled:
        assert abs(last["train/best_arm"] - 1 / 3) < 0.09
    else:
        assert last["train/best_arm"] > 0.95


def test_dataset_bandit_draws_each_row_once_per_epoch(tmp_path):
    path = tmp_path / "ten.csv"
    path.write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(10)))
    made, rows = make("dataset_bandit", path, num_envs=3, normalize="false"), []
    obs = made.reset()
    for _ in range(20):
        rows += obs[:, 0].int().tolist()
        obs = made.step(torch.zeros(3, dtype=torch.int64))[0]["following"]
    assert [sorted(rows[i : i + 10]) for i in range(0, 60, 10)] == [list(range(10))] * 6
    assert rows[:10] != rows[10:20]


def test_dataset_bandit_resumes_with_the_same_rows(tmp_path):
    blobs(tmp_path / "my.csv", shuffled=False)
    one, other = (make("dataset_bandit", tmp_path / "my.csv", label="class") for _ in range(2))
    one.reset()
    zeros = torch.zeros(4, dtype=torch.int64)
    for _ in range(7):
        one.step(zeros)
    other.set_extra_state(one.get_extra_state())
    for _ in range(200):
        first, second = one.step(zeros)[0], other.step(zeros)[0]
        assert torch.equal(first["following"], second["following"]) and torch.equal(first["reward"], second["reward"])


def test_columns_of_numbers_are_standardised(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,u,0\n3,v,1\n5,u,1\n")
    table = load(str(tmp_path / "t.csv"), "y")
    assert table.features[:, 0].tolist() == pytest.approx([-1.2247449, 0, 1.2247449])
    assert table.features[:, 1:].tolist() == [[1, 0], [0, 1], [1, 0]] and table.labels.tolist() == [0, 1, 1]


_draw = random.Random(0).randrange
PACKED = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (_draw(10**6), i % 2) for i in range(9000)))


@pytest.mark.parametrize(
    ("content", "given", "line"),
    [
        (None, {}, "no such file"),
        (b"a,b\n", {}, "holds no rows"),
        (b"a,b\n1,2\n1\n", {}, "line 3 has 1 columns, the first line has 2"),
        (b"a,b\n1,2\n\n\n1\n", {}, "line 5 has 1 columns, the first line has 2"),
        (b"a,b\n1,?\n1,2\n1\n", {"missing": "?"}, "line 4 has 1 columns, the first line has 2"),
        (b"a,b\n1,2\n", {"label": "c"}, r"has no column 'c' \(it has a, b\)"),
        (b"a,b\n1,2\n", {"label": 7}, "has no column 7, only 2 columns"),
        (b"a,b\n1,2\nnan,2\n", {}, "line 3: nan in column 'a' is not finite"),
        (b"1,2\n-inf,2\n", {"header": False}, "line 2: -inf in column 0 is not finite"),
        (b"a,b\n1.5,0\n,1\n2.5,1\n", {}, r"line 3: '' in column 'a' is not a number, .*; set missing to this word"),
        (b"a,b\n1.5,0\nNA,1\n", {}, r"line 3: 'NA' in column 'a' is not a number, .*; set missing to this word"),
        (b"a;b\n1,5;0\n2,5;1\n", {"separator": ";"}, "line 2: '1,5' in column 'a' .*; write it as 1234.5 is written"),
        (b'a,b\n"1,234",0\n900,1\n', {}, "line 2: '1,234' in column 'a' .*; write it as 1234.5 is written"),
        (b"a,b\n$5,0\n$6.50,1\n", {}, r"line 2: '\$5' in column 'a' .*; write it as 1234.5 is written"),
        (b"a,b\n1,0\n2,?\n3,1\n", {}, r"line 3: '\?' in column 'b' is not a number"),
        (b"a,b\n1,x\n2,\n", {}, "line 3: the label in column 'b' is empty; set missing to ''"),
        (b"a,b\n1,0\n1e99,1\n", {"normalize": False}, "column 'a' holds numbers that are too large for 32 bits"),
        (b"a,b\n1e308,0\n1.5e308,1\n", {}, "column 'a' holds numbers that are too large for 32 bits"),
        (b"a,b,b\n5,0,0\n6,1,1\n", {"label": "b"}, r"columns 1 and 2 are both named 'b'; leave one out, .*drop=\[2\]"),
        (b",a,b\n0,7,0\n1,8,1\n", {}, r"column 0 has no name; .*drop=\[0\]"),
        (b"a,b\nr1,5,0\nr2,6,1\n", {}, "line 2 has 3 columns, the first line has 2"),
        (b"5,x\n6,y\n7,x\n", {}, "line 3: the label is 'x', which the first line holds .*; set header=false"),
        (b"a,b\n1,0\n2,1\n", {"header": False}, "line 1: 'a' in column 0 is not a number"),
        (b"a,b\n1,x\n2,x\n", {}, "all labels in column 'b' are 'x'"),
        (b"a,b\n" + b"".join(b"0,%d\n" % i for i in range(21)), {}, "column 'b' holds 21 different values in 21 rows"),
        (
            b"a,b\n" + b"".join(b"0,%d.5\n" % (i % 21) for i in range(99)),
            {},
            "column 'b' holds 21 different values in 99",
        ),
        (
            b"a,b\n" + b"".join(b"2024-01-%02d,%d\n" % (i, i % 2) for i in range(21)),
            {},
            "column 'a' holds 21 different",
        ),
        (b"a;b\n1;0\n2;1\n", {}, "has no column besides the label"),
        (b"|0\n3|1\n5|0\n", {"separator": "|", "header": False}, "line 1: '' in column 0 is not a number"),
        (b"a,b\n1,0\n", {"separator": "||"}, r"separator='\|\|': must be one character, \\t for a tab"),
        (b"a,b\n1,0\n", {"label": 1.5}, "1.5 must be the name or the number of a column"),
        (b"a,b\n1,2\n" + b"x" * 140_000 + b",2\n", {}, "line 3: field larger than field limit"),
        (b'a,b\n1,2\n\n"3,4\n5,6\n7,8\n', {}, "line 4: a quote is never closed"),
        (b"a,b\n1,2\n\xe9,3\n", {}, "line 3: byte 0xe9 is not UTF-8"),
        (b"a,b\n1,2\n\0,3\n", {}, "line 3: holds a NUL byte"),
        (bytes(range(1, 256)) * 9, {}, r"line \d+: "),
        (PACKED[:9000], {}, r"line [1-8]\d\d\d: the gzip file is damaged"),
        (PACKED[:9000] + b"garbage!" + PACKED[9008:], {}, r"line \d+: the gzip file is damaged"),
        (compressed(b"a,b\n1,2\n" * 99)[:60] + b"\xff" * 9, {}, r"line \d+: the compress file is damaged"),
        (gzip.compress(b"a,b\n" + b"1,2\n" * 2_000_000), {}, r"line \d+: .* unpack to more than"),
    ],
)
def test_table_errors_name_the_row_and_the_reason(content, given, line, tmp_path):
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^env\.kwargs\.path={path}: {line}") as caught:
        DatasetBandit(4, str(path), **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "given", "features", "classes"),
    [
        ("x,y\n1,0\n3,1.0\n5,0.0\n", {}, [[1], [3], [5]], ["0", "1.0"]),
        (f"x,y\n1,{2**53}\n3,{2**53 + 1}\n", {}, [[1], [3]], [str(2**53), str(2**53 + 1)]),
        ("x\ty\n1\t0\n3\t1\n", {"separator": r"\t"}, [[1], [3]], ["0", "1"]),
        ("3|1\n5|0\n", {"separator": "|", "header": False}, [[3], [5]], ["0", "1"]),
        ("x,y\nNaN,0\n3,1\n5,0\n", {"missing": float("nan")}, [[3], [5]], ["0", "1"]),
        ("x,y\n-9,0\n3,1\n5,0\n", {"missing": -9}, [[3], [5]], ["0", "1"]),
        ("id,x,y\n7,1,0\n8,3,1\n", {"drop": "id"}, [[1], [3]], ["0", "1"]),
        ('x , y\n1, "a, b"\n3, "c"\n', {"label": "y"}, [[1], [3]], ["a, b", "c"]),
        ("\ufeffx,y\r\n1,0\r\n3,1\r\n", {"label": "y"}, [[1], [3]], ["0", "1"]),
        ("x,y\n?,0\na,1\na,0\n", {}, [[1, 0], [0, 1], [0, 1]], ["0", "1"]),
    ],
)
def test_tables_as_people_keep_them_are_read(content, given, features, classes, tmp_path):
    (tmp_path / "t.csv").write_text(content)
    table = DatasetBandit(4, str(tmp_path / "t.csv"), normalize=False, **given).table
    assert table.features.tolist() == features and table.classes == classes


def test_a_table_that_is_no_path_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"^env\.kwargs\.path: must be set to the path of a file$"):
        DatasetBandit(4)
    with pytest.raises(ConfigError, match=r"^env\.kwargs\.path=5: must be the path of a file$"):
        DatasetBandit(4, 5)


def test_only_regular_files_are_opened_and_none_blocks(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, line in {"pipe": "not a regular file", "": "not a regular file", "loop": "not a regular file"}.items():
        with pytest.raises(ConfigError, match=rf"^env\.kwargs\.path={tmp_path / name}: .*{line}"):
            DatasetBandit(4, str(tmp_path / name))
    with pytest.raises(ConfigError, match="path=/dev/zero: not a regular file"):
        DatasetBandit(4, "/dev/zero")
    (tmp_path / "t.csv").write_text("a,b\n1,0\n2,1\n")
    (tmp_path / "link").symlink_to(tmp_path / "t.csv")
    assert DatasetBandit(4, str(tmp_path / "link")).table.classes == ["0", "1"]


def test_a_table_has_a_largest_size(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,0\n" * 100)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "LIMIT", 100)
        with pytest.raises(ConfigError, match="has 404 bytes; a table may have at most 100"):
            DatasetBandit(4, str(path))
    with monkeypatch.context() as patch:
        patch.setattr(tables, "SMALL", 1000)
        (tmp_path / "t.Z").write_bytes(compressed(b"1" * 200_000))
        with pytest.raises(ConfigError, match=r"line 1: .* unpack to more than"):
            DatasetBandit(4, str(tmp_path / "t.Z"))
    with monkeypatch.context() as patch:
        patch.setattr(tables, "LINE", 3)
        with pytest.raises(ConfigError, match="line 1: has more than 3 bytes"):
            DatasetBandit(4, str(path))
    with monkeypatch.context() as patch:
        path.write_text("a,b\n" + "1,0\n2,1\n" * 50)
        patch.setattr(tables, "LINES", 101)
        assert DatasetBandit(4, str(path)).table.features.shape == (100, 1)
        tables.load.cache_clear()
        patch.setattr(tables, "LINES", 100)
        with pytest.raises(ConfigError, match="has more than 100 lines, the limit for a table"):
            DatasetBandit(4, str(path))
    with monkeypatch.context() as patch:
        patch.setattr(tables, "COLUMNS", 2)
        assert DatasetBandit(4, str(path)).table.features.shape == (100, 1)
        patch.setattr(tables, "COLUMNS", 1)
        tables.load.cache_clear()
        with pytest.raises(ConfigError, match="line 1 has 2 columns; a table may have at most 1"):
            DatasetBandit(4, str(path))
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_memory", lambda: 2000)
        with pytest.raises(ConfigError, match=r"line \d+: the table needs more memory than this machine has"):
            DatasetBandit(4, str(path))


def test_a_table_whose_words_become_too_many_columns_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("".join(f"w{row % 25},{row % 2}\n" for row in range(50)))
    monkeypatch.setattr(tables, "_memory", lambda: 2 * 25 * 50 * 4)  # words of the table take less
    monkeypatch.setattr(tables, "_size", lambda row, length: length)
    assert load(str(path), -1, header=False).features.shape == (50, 25)
    tables.load.cache_clear()
    monkeypatch.setattr(tables, "_memory", lambda: 2 * 25 * 50 * 4 - 1)
    with pytest.raises(ValueError, match=r"^the table needs more memory than this machine has$"):
        load(str(path), -1, header=False)


def test_a_table_beyond_the_memory_that_may_be_used_is_one_line(tmp_path, monkeypatch):
    def read(*_):
        raise MemoryError

    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr(tables, "_read", read)
    with pytest.raises(ValueError, match=r"^the table needs more memory than this machine has$"):
        tables.load(str(tmp_path / "t.csv"), -1)


def test_a_bad_table_leaves_no_run_behind(tmp_path, capsys):
    (tmp_path / "t.csv").write_text('a,b\n1,2\n"3,4\n')
    words = ["algo=fixed_policy", "env=dataset_bandit", f"env.kwargs.path={tmp_path / 't.csv'}"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 2
    assert capsys.readouterr().err == f"error: env.kwargs.path={tmp_path / 't.csv'}: line 3: a quote is never closed\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "shape"), [("wine", (178, 13)), ("digits", (1797, 64)), ("breast_cancer", (569, 30))])
def test_table_from_scikit_learn(name, shape):
    pytest.importorskip("sklearn")
    table = load(f"sklearn:{name}", -1)
    assert table.features.shape == shape and len(table.classes) == len(set(table.labels))


def test_measured_targets_of_scikit_learn_are_no_classes():
    with pytest.raises(ValueError, match=r"^must be one of sklearn:wine, "):
        load("sklearn:diabetes", -1)


def test_a_column_that_numbers_the_rows_is_refused(tmp_path):
    rows = [f"{7 + i},{i % 5},{i % 2}\n" for i in range(30)]
    rows[4] = "11,?,0\n"
    path = tmp_path / "t.csv"
    path.write_text("id,x,y\n" + "".join(rows))
    with pytest.raises(ValueError, match=r"^column 'id' only numbers the rows; name it in drop$"):
        load(str(path), "y", missing="?")
    assert load(str(path), "y", missing="?", drop=("id",)).features.shape == (29, 1)
    path.write_text(path.read_text().replace("id,x", "hour,x"))
    assert load(str(path), "y", missing="?").features.shape == (29, 2)


def test_a_column_that_names_every_row_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("id,y\n" + "".join(f"row{i},{i % 2}\n" for i in range(1001)))
    with pytest.raises(ConfigError, match="1,001 different words in 1,001 rows, such as 'row0'; name it in drop"):
        make("dataset_bandit", tmp_path / "t.csv")
    with pytest.raises(ConfigError, match="no column besides the label"):
        make("dataset_bandit", tmp_path / "t.csv", drop="[id]")
