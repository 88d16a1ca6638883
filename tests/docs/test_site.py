"""The documentation site builds without a warning, its links lead somewhere, and it needs no other site."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from once import filled_once

DOCS = Path(__file__).parents[2] / "docs"
COLUMN = 120  # letters of code that fit beside the table of contents in a window of 1400 px, with docs/_static/wide.css
CODE = re.compile(r'<div class="([^"]*)"><div class="highlight"><pre>(.*?)</pre>', re.DOTALL)


class Page(HTMLParser):
    """The anchors, links and loaded files of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script", "source") and "src" in values:
            self.loads.append(values["src"])
        if tag == "link" and values.get("rel") not in ("search", "index", "next", "prev", "author", "canonical"):
            self.loads.append(values.get("href", ""))


def build(folder: Path, theme: str = "basic") -> None:
    """Builds the site, in Sphinx's plainest theme, which takes two thirds of the time of the published one."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-D",
        f"html_theme={theme}",
    ]
    built = subprocess.run([*command, DOCS, folder], capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh build of the site."""
    return filled_once(tmp_path_factory, "site", build)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return pages_of(site)


def pages_of(site: Path) -> dict[Path, Page]:
    return {file: Page(file.read_text("utf-8")) for file in site.rglob("*.html") if "_static" not in file.parts}


def local(pages: dict[Path, Page], which: str) -> Iterator[tuple[Path, Path, str]]:
    """Yields page, file and fragment of every link into the site."""
    for page, content in pages.items():
        for link in getattr(content, which):
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc:
                yield page, (page.parent / unquote(parts.path) if parts.path else page).resolve(), parts.fragment


def test_site_has_no_broken_link(pages: dict[Path, Page]) -> None:
    found = list(local(pages, "links"))
    assert len(found) > 1000
    for page, file, fragment in found:
        assert file.exists(), f"{page.name}: {file}"
        if fragment and file in pages:
            assert unquote(fragment) in pages[file].anchors, f"{page.name}: {file.name}#{fragment}"


def test_site_is_readable_offline(pages: dict[Path, Page]) -> None:
    assert_offline(pages)


@pytest.mark.slow
def test_published_site_is_readable_offline(tmp_path: Path) -> None:
    build(tmp_path, "furo")
    assert_offline(pages_of(tmp_path))


def assert_offline(pages: dict[Path, Page]) -> None:
    loads = [load for page in pages.values() for load in page.loads]
    assert loads and not [load for load in loads if urlsplit(load).netloc]
    assert all(file.exists() for _, file, _ in local(pages, "loads"))


def test_code_blocks_of_site_fit_in_the_column(pages: dict[Path, Page]) -> None:
    blocks = [(page.name, *block) for page in pages for block in CODE.findall(page.read_text("utf-8"))]
    assert len(blocks) > 300
    for page, classes, block in blocks:
        if "help" not in classes.split():  # wrapped
            for line in unescape(re.sub("<[^>]*>", "", block)).splitlines():
                assert len(line) <= COLUMN, f"{page}: {line}"


def test_site_shows_what_a_reader_looks_for(site: Path) -> None:
    sac = (site / "algorithms/sac.html").read_text()
    assert "<svg" in sac and "target entropy" in sac and "arxiv.org/abs/1812.05905" in sac and "algo.tau" in sac
    assert "usage: rlrun sweep" in (site / "commands/sweep.html").read_text()
    assert (site / "searchindex.js").stat().st_size > 100_000
