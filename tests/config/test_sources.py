"""`rlrun list` and `rlrun show` print the comments of the YAML files."""

from pathlib import Path

import pytest

from rlrun.cli import main
from rlrun.config import declared, sources
from rlrun.config.contents import Contents
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


def test_file_of_a_part_becomes_its_name_and_the_last_plug_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text('@register("algo", "mine")\nclass Mine:\n    pass\n')
    words = ["+plugins=[a, b]", "algo='./mine.py',ppo", "env=./mine.py:Id", "run_dir=./mine.py"]
    assert sources.by_name(words) == ["algo=mine,ppo", *words[2:], "plugins=[a,b,./mine.py]"]
    (tmp_path / "a b.py").write_text((tmp_path / "mine.py").read_text())
    assert sources.by_name(["algo=./a b.py"]) == ["algo=mine", "plugins=['./a b.py']"]


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ("# @package\n", "Expected header format: KEY VALUE, got '@package'"),
        ("# @package algo net\n", "Too many components in '@package algo net'"),
    ],
)
def test_package_line_in_another_form_is_refused(header, fault, tmp_path):
    (tmp_path / "x.yaml").write_text(f"\n{header}a: 1\n")
    with pytest.raises(ConfigError, match=f": {fault}$"):
        sources.package(tmp_path / "x.yaml")


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


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"x = '\xe9'\n", ", line 1: byte 0xe9 is not UTF-8; convert the file"),
        (b"import os\n\n# caf\xe9", ", line 3: byte 0xe9 is not UTF-8; convert the file"),
        (b"# coding: ascii\n\nx = 'caf\xc3\xa9'", ", line 3: byte 0xc3 is not ASCII; convert the file"),
        (b"# coding: unheard\nx = 1\n", ": unknown encoding: unheard"),
        (b"x = 1\n\0\n", ": source code string cannot contain null bytes"),
    ],
)
def test_python_file_of_another_encoding_is_refused_with_its_line(content: bytes, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        declared.declared(file)
    assert str(refused.value) == f"{file}{fault}"


ENCODED = """\
# coding: latin-1
@register("network", "mine")
class Mine:
    text = "\f"  # a form feed ends no line

    class Config:
        café: int = 1  # à la carte
"""


def test_comments_of_a_python_file_are_read_in_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(ENCODED.encode("latin-1"))
    assert declared.meanings(tmp_path / "mine.py") == {"café": "à la carte"}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"id: CartPole-v1\n# \xe9\n", "line 2: byte 0xe9 is not UTF-8; convert the file"),
        (b"id: CartPole-v1\nkwargs: [\n", "line 3: expected the node content, but found '<stream end>'"),
    ],
)
@pytest.mark.parametrize("words", [["list", "env"], ["train", "algo=ppo", "env=Mine"]])
def test_yaml_file_that_cannot_be_read_is_one_line_in_every_command(
    content: bytes, fault: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plug/conf/env").mkdir(parents=True)
    (tmp_path / "plug/__init__.py").write_text("")
    (tmp_path / "plug/conf/env/Mine.yaml").write_bytes(content)
    assert main([*words, f"plugins=[{tmp_path}/plug]"]) == 2
    assert capsys.readouterr().err == f"error: plug/conf/env/Mine.yaml, {fault}\n"


def test_environment_is_named_by_its_id_only_if_every_yaml_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/Mine.yaml").write_bytes(b"id: Mine-v0\n# \xe9\n")
    with pytest.raises(ConfigError, match=r"line 2: byte 0xe9 is not UTF-8; convert the file$"):
        Contents([tmp_path, sources.CONF]).preset_file("ppo-Taxi-v3")
