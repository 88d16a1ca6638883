"""Files are downloaded only on request, once, over HTTPS, and only with the published content."""

import gzip
import hashlib
import http.client
import http.server
import os
import re
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from lzw import compressed

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.config.sources import CONF
from rlrun.envs.making import downloads
from rlrun.envs.making.downloads import cached, fetched
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError

TEXT = b"a,b,class\n1,2,x\n3,5,y\n"
DIGEST = hashlib.sha256(TEXT).hexdigest()


class Site:
    """A web site. `pages` maps paths to bytes, or to the URL of a redirect; `requests` lists the requested paths."""

    def __init__(self):
        self.pages, self.requests = {"/table.csv": TEXT}, []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                site.requests.append(self.path)
                page = site.pages.get(self.path)
                self.send_response(404 if page is None else 302 if isinstance(page, str) else 200)
                if isinstance(page, str):
                    self.send_header("Location", page)
                self.end_headers()
                if isinstance(page, bytes):
                    self.wfile.write(page)

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, path, scheme="https"):
        return f"{scheme}://127.0.0.1:{self.server.server_port}{path}"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site that serves https URLs without TLS; downloads go to a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        urllib.request.HTTPSHandler,
        "https_open",
        lambda self, request: self.do_open(http.client.HTTPConnection, request),
    )
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_file_is_fetched_once_and_named_by_its_whole_digest(site, tmp_path):
    first = fetched(site.url("/table.csv"), DIGEST)
    assert first.read_bytes() == TEXT and fetched(site.url("/table.csv"), DIGEST) == first
    assert site.requests == ["/table.csv"]
    assert [path.relative_to(tmp_path / "cache").as_posix() for path in (tmp_path / "cache").rglob("*")] == [
        "rlrun", f"rlrun/{DIGEST}"
    ]  # fmt: skip


def test_another_file_than_the_published_one_is_refused_and_not_kept(site, tmp_path):
    site.pages["/table.csv"] = TEXT + b"7,7,x\n"
    with pytest.raises(ValueError, match=rf"not what was published .*not {DIGEST}"):
        fetched(site.url("/table.csv"), DIGEST)
    assert not list((tmp_path / "cache" / "rlrun").iterdir())


def test_a_kept_file_that_was_changed_is_refused_until_it_is_downloaded_again(site):
    kept = fetched(site.url("/table.csv"), DIGEST)
    kept.write_bytes(b"")
    with pytest.raises(ValueError, match=f"{kept}: is not what was published"):
        fetched(site.url("/table.csv"), DIGEST)
    downloads._downloaded.clear()  # as in another process
    for _ in range(3):
        assert fetched(site.url("/table.csv"), DIGEST, force=True).read_bytes() == TEXT
    assert site.requests == ["/table.csv"] * 2


def test_a_forced_download_that_fails_keeps_the_file(site):
    kept = fetched(site.url("/table.csv"), DIGEST)
    downloads._downloaded.clear()
    site.pages["/table.csv"] = TEXT + b"7,7,x\n"
    with pytest.raises(ValueError, match="not what was published"):
        fetched(site.url("/table.csv"), DIGEST, force=True)
    assert kept.read_bytes() == TEXT and list(kept.parent.iterdir()) == [kept]
    assert fetched(site.url("/table.csv"), DIGEST) == kept


def test_a_compress_file_is_kept_unpacked_with_the_digest_of_its_content(site):
    site.pages["/table.Z"] = compressed(TEXT)
    assert fetched(site.url("/table.Z"), DIGEST).read_bytes() == TEXT
    site.pages["/other.Z"] = TEXT
    with pytest.raises(ValueError, match=r"other\.Z: cannot be downloaded .*header is not that of compress"):
        fetched(site.url("/other.Z"), hashlib.sha256(b"other").hexdigest())


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_a_regular_file_in_the_cache_is_read(kind, site, tmp_path):
    cached(DIGEST).parent.mkdir(parents=True)
    (tmp_path / "elsewhere").write_bytes(TEXT)
    if kind == "link":
        cached(DIGEST).symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(cached(DIGEST))
    else:
        cached(DIGEST).mkdir()
    with pytest.raises(ValueError, match=f"{DIGEST}: cannot be read"):
        fetched(site.url("/table.csv"), DIGEST)
    assert not site.requests


@pytest.mark.parametrize(
    ("url", "digest", "line"),
    [
        ("http://{host}/table.csv", DIGEST, "must begin with https://"),
        ("file:///etc/passwd", DIGEST, "must begin with https://"),
        ("ftp://{host}/table.csv", DIGEST, "must begin with https://"),
        ("data:text/csv,a", DIGEST, "must begin with https://"),
        ("https:///table.csv", DIGEST, "must begin with https://"),
        ("https://[", DIGEST, "must begin with https://"),
        ("https://{host}/table.csv\r\nX: 1", DIGEST, "must begin with https://"),
        (5, DIGEST, "must begin with https://"),
        ("https://{host}/table.csv", "x", "sha256=x: must be 64 hex digits"),
        ("https://{host}/table.csv", "../../../" + DIGEST, "must be 64 hex digits"),
        ("https://{host}/table.csv", DIGEST.upper(), "must be 64 hex digits"),
        ("https://{host}/table.csv", None, "must be 64 hex digits"),
    ],
)
def test_other_schemes_and_what_is_no_digest_are_refused_before_any_request(url, digest, line, site, tmp_path):
    if isinstance(url, str):
        url = url.replace("{host}", f"127.0.0.1:{site.server.server_port}")
    with pytest.raises(ValueError, match=line):
        fetched(url, digest)
    assert not site.requests and not (tmp_path / "cache").exists()


def test_redirects_lead_to_https_only(site, tmp_path):
    site.pages |= {"/moved": site.url("/table.csv"), "/plain": site.url("/table.csv", "http")}
    site.pages |= {"/local": "file:///etc/passwd", "/endless": site.url("/endless")}
    lines = {"/plain": "redirects to .*, which is not https", "/local": "not allowed", "/endless": "infinite loop"}
    for path, line in lines.items():
        with pytest.raises(ValueError, match=f"cannot be downloaded .*{line}"):
            fetched(site.url(path), DIGEST)
    assert "/table.csv" not in site.requests and not list((tmp_path / "cache" / "rlrun").iterdir())
    assert fetched(site.url("/moved"), DIGEST).read_bytes() == TEXT


def test_a_download_has_a_largest_size(site, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "LIMIT", len(TEXT) - 1)
    with pytest.raises(ValueError, match=f"more than {len(TEXT) - 1} bytes"):
        fetched(site.url("/table.csv"), DIGEST)
    assert not list((tmp_path / "cache" / "rlrun").iterdir())


def make(url, sha256, *more):
    words = ["algo=fixed_policy", "env=dataset_bandit", f"env.kwargs.source={{url:'{url}',sha256:'{sha256}'}}", *more]
    return VectorEnv.make(run_config(jobs(words)[0].values).env, np.random.SeedSequence(0))


def test_a_table_is_fetched_where_that_is_asked_for(site, tmp_path):
    url, sha256 = site.url("/table.csv"), DIGEST
    with pytest.raises(
        ConfigError, match=re.escape("path: must be set to the path of a file, or set env.kwargs.download=true")
    ):
        make(url, sha256)
    assert not (tmp_path / "cache").exists()
    assert make(url, sha256, "env.kwargs.download=true").venv.table.classes == ["x", "y"]


ROWS = {
    "CensusBandit": ("USCensus1990.data.txt", b"caseid,dAge,dOccup,iYearsch\n10000,5,1,3\n10001,6,7,2\n"),
    "CovertypeBandit": ("covtype.data.gz", b"2596,51,3,0,5\n2590,56,2,1,2\n"),
    "StatlogBandit": ("shuttle.trn.Z", b"50 21 77 0 28 2\n55 0 92 0 0 4\n"),
}


@pytest.mark.parametrize("env", ROWS)
def test_tables_in_their_published_format_are_downloaded_kept_and_verified(env, site):
    name, content = ROWS[env]
    pack = {".gz": gzip.compress, ".Z": compressed}.get(Path(name).suffix, bytes)
    published = pack(content)
    verified = content if name.endswith(".Z") else published
    site.pages[f"/{name}"] = published
    source = f"{{url:'{site.url('/' + name)}',sha256:'{hashlib.sha256(verified).hexdigest()}'}}"
    words = ["algo=fixed_policy", f"env={env}", "env.kwargs.download=true", f"env.kwargs.source={source}"]
    for _ in range(2):
        made = VectorEnv.make(run_config(jobs(words)[0].values).env, np.random.SeedSequence(0))
        assert made.venv.table.features.shape[0] == len(made.venv.table.classes) == 2
    assert site.requests == [f"/{name}"]
    site.pages[f"/{name}"] = pack(content + content)
    downloads._downloaded.clear()
    with pytest.raises(ConfigError, match=r"^env\.kwargs\.source: .*: is not what was published"):
        VectorEnv.make(
            run_config(jobs([*words, "env.kwargs.force_download=true"])[0].values).env, np.random.SeedSequence(0)
        )


def test_without_a_network_one_line_says_so(site):
    with pytest.raises(ConfigError, match=r"^env\.kwargs\.source: .*cannot be downloaded .*give the path") as caught:
        make(site.url("/nowhere.csv"), DIGEST, "env.kwargs.download=true")
    assert len(caught.value.faults) == 1 and "\n" not in caught.value.faults[0]


def test_a_source_of_another_form_is_one_line(site):
    for source in ("5", "[1]", f"{{url: '{site.url('/table.csv')}'}}"):
        words = ["algo=fixed_policy", "env=dataset_bandit", f"env.kwargs.source={source}", "env.kwargs.download=true"]
        with pytest.raises(ConfigError, match=r"^env\.kwargs\.source=.*: must be \{url: \.\.\., sha256: \.\.\.\}$"):
            VectorEnv.make(run_config(jobs(words)[0].values).env, np.random.SeedSequence(0))


def test_what_is_fetched_is_named_with_its_checksum():
    files = [path for path in sorted((CONF / "env").glob("*Bandit.yaml")) if "source:" in path.read_text()]
    assert len(files) == 7
    for path in files:
        text = path.read_text()
        assert re.search(r"url: https://archive\.ics\.uci\.edu/\S+ #", text), path
        assert re.search(r"sha256: [0-9a-f]{64} #", text), path
