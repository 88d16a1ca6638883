"""What a file of a `conf` folder holds, with the files on which it is based."""

import pytest

from rlrun.config import sources
from rlrun.config.contents import Contents
from rlrun.errors import ConfigError


@pytest.fixture
def contents(tmp_path):
    files = {
        "preset/mine": "defaults: [sac-Pendulum, _self_, override /algo/buffer@algo.buffer: replay]\nalgo: {a: 1}",
        "network/mine": "defaults: [_self_, {norm@norm: layer}, mlp]\nwidth: 3",
        "network/wrong": "defaults: [{norm: layer, head: x}]\nwidth: 3",
        "algo/mine": "defaults: [sac]\nalgo: {gamma: 0.5}",
    }
    for path, text in files.items():
        file = tmp_path / f"{path}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return Contents([sources.CONF, tmp_path])


def based(contents, path, **options):
    return [(f"{file.file.parent.name}/{file.file.stem}", file.package) for file in contents.based(path, **options)]


def test_files_come_in_the_order_in_which_they_are_merged(contents):
    assert based(contents, "preset/mine") == [("preset/sac-Pendulum", ""), ("preset/mine", "")]
    assert based(contents, "network/mine", package="network")[:2] == [
        ("network/mine", "network"),
        ("norm/layer", "network.norm"),
    ]


def test_chosen_name_takes_the_place_of_the_one_in_the_file(contents):
    found = based(contents, "algo/mine", chosen={"algo.buffer": "hindsight"})
    assert ("buffer/hindsight", "algo.buffer") in found and found[-1] == ("algo/mine", "")


def test_own_keys_are_those_of_the_file_and_its_bases_and_its_parts(contents):
    assert contents.own_keys("network/mine") == {"width"} | contents.own_keys("network/mlp")
    assert "norm" in contents.own_keys("network/mlp")


def test_registered_name_is_that_of_the_base(contents):
    assert contents.registered_name("mine") == "sac"


def test_entry_of_defaults_with_two_names_is_refused(contents):
    with pytest.raises(ConfigError, match=r"{norm: layer, head: x}: must be a name, or a group: name"):
        list(contents.based("network/wrong"))
