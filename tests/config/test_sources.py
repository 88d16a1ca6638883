"""`rlrun list` and `rlrun show` print the comments of the YAML files."""

from pathlib import Path

import pytest

from rlrun.config import declared, sources
from rlrun.errors import ConfigError

TEXT = """\
# @package _global_
# What it is, in one line.
# More about it.
defaults: # not a key
  - _self_

algo:
  # a line of its own is no meaning
  gamma: 0.99 # discount
  url: "a # b" # quoted hash
  bare: a#b
  hidden: [1, # first
    2] # units
  loop: # how data flows
    batch_size: 3 # rows
nothing: # null
"""


def test_notes_hold_the_headline_and_every_trailing_comment(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text(TEXT)
    assert sources.notes(file) == (
        "What it is, in one line.",
        {
            "algo": "",
            "algo.gamma": "discount",
            "algo.url": "quoted hash",
            "algo.bare": "",
            "algo.hidden": "units",
            "algo.loop": "how data flows",
            "algo.loop.batch_size": "rows",
            "nothing": "null",
        },
    )


def test_a_file_without_a_comment_has_no_headline(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("a: 1 # one\n# late\n")
    assert sources.notes(file).headline == ""


def test_rlruns_own_files_come_before_a_users(tmp_path):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "default.yaml").touch()
    (tmp_path / "trainer" / "mine.yaml").touch()
    (tmp_path / "trainer" / "_base.yaml").touch()
    found = sources.options("trainer", sources.folders(extra=[str(tmp_path)]))
    assert found["default"].is_relative_to(sources.CONF)
    assert found["mine"] == tmp_path / "trainer" / "mine.yaml"
    assert "_base" not in found


@pytest.mark.parametrize(
    ("words", "plugins"),
    [
        (["seed=1"], []),
        (["plugins=[a,b.c]"], ["a", "b.c"]),
        (["plugins=['a', \"b\"]"], ["a", "b"]),
        (["++plugins=[]"], []),
        (["plugins=a"], ["a"]),
    ],
)
def test_plugins_are_read_from_the_words(words, plugins):
    assert sources.named_plugins(words) == plugins


def test_every_key_that_can_be_set_says_what_it_means():
    """Every key has a comment in some file, except names and learning rates."""
    notes = [
        sources.notes(file).meanings
        for file in sources.CONF.rglob("*.yaml")
        if file.parent.name not in ("preset", "space")
    ]
    explained = {key.rpartition(".")[2] for meanings in notes for key, meaning in meanings.items() if meaning}
    sections = {key.rpartition(".")[0] for meanings in notes for key in meanings}
    leaves = {key for meanings in notes for key in meanings if key not in sections}
    silent = [key for key in leaves if key.rpartition(".")[2] not in explained]
    assert [key for key in silent if not key.endswith(("name", "learning_rate"))] == []


@pytest.mark.parametrize("text", ["x = " + "-" * 300_000 + "1", "x = 1  #" + "x" * (1 << 20), "x = (", "\0"])
def test_python_file_that_cannot_be_parsed_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ConfigError) as refused:
        declared.declared(tmp_path / "mine.py")
    assert str(tmp_path / "mine.py") in str(refused.value) and "\n" not in str(refused.value)
