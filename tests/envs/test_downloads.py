"""Files are fetched only when that is asked for, once, and only as they were published."""

import hashlib
import re

import numpy as np
import pytest

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.config.sources import CONF
from rlrun.envs.downloads import fetched
from rlrun.envs.vector import VectorEnv
from rlrun.errors import ConfigError

TEXT = b"a,b,class\n1,2,x\n3,5,y\n"


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Where a file is published, its address and its checksum; what is fetched goes to a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "table.csv"
    path.write_bytes(TEXT)
    return path, path.as_uri(), hashlib.sha256(TEXT).hexdigest()


def test_a_file_is_fetched_once(published):
    path, url, sha256 = published
    first = fetched(url, sha256)
    path.unlink()
    assert first.read_bytes() == TEXT and fetched(url, sha256) == first != path


def test_another_file_than_the_published_one_is_refused_and_not_kept(published, tmp_path):
    path, url, sha256 = published
    path.write_bytes(TEXT + b"7,7,x\n")
    with pytest.raises(ValueError, match=rf"not what was published .*not {sha256}"):
        fetched(url, sha256)
    assert not list((tmp_path / "cache" / "rlrun").iterdir())


def test_a_kept_file_that_was_changed_is_refused(published):
    _, url, sha256 = published
    kept = fetched(url, sha256)
    kept.write_bytes(b"")
    with pytest.raises(ValueError, match=f"{kept}: is not what was published"):
        fetched(url, sha256)


def make(url, sha256, *more):
    words = ["algo=fixed_policy", "env=dataset_bandit", f"env.kwargs.source={{url:'{url}',sha256:'{sha256}'}}", *more]
    return VectorEnv.make(run_config(jobs(words)[0].values).env, np.random.SeedSequence(0))


def test_a_table_is_fetched_where_that_is_asked_for(published, tmp_path):
    _, url, sha256 = published
    with pytest.raises(ConfigError, match=re.escape("path: which file is to be read? (download=true fetches it)")):
        make(url, sha256)
    assert not (tmp_path / "cache").exists()
    assert make(url, sha256, "env.kwargs.download=true").venv.table.classes == ["x", "y"]


def test_without_a_network_one_line_says_so(published):
    path, url, sha256 = published
    path.unlink()
    with pytest.raises(ConfigError, match=r"cannot be fetched .*give its path") as caught:
        make(url, sha256, "env.kwargs.download=true")
    assert len(caught.value.faults) == 1 and "\n" not in caught.value.faults[0]


def test_what_is_fetched_is_named_with_its_checksum():
    files = [path for path in sorted((CONF / "env").glob("*Bandit.yaml")) if "source:" in path.read_text()]
    assert len(files) == 6
    for path in files:
        text = path.read_text()
        assert re.search(r"url: https://archive\.ics\.uci\.edu/\S+ #", text), path
        assert re.search(r"sha256: [0-9a-f]{64} #", text), path
