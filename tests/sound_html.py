"""A parser of reports that raises if tags are not nested correctly."""

from collections import Counter
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Sound(HTMLParser):
    """Raises if tags are not nested correctly; collects ids, links and table sizes."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        self.ids.update([given["id"]] if "id" in given else [])
        self.links += [given["href"]] if tag == "a" else []
        self.loads += [given[key] for key in ("src", "srcset", "data", "xlink:href") if key in given]
        self.loads += [given["href"]] if tag == "link" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
