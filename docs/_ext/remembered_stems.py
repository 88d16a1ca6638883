"""The search in English, which stems each word once. Sphinx would do it again for every page of the site."""

from functools import cache
from typing import Any

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish


class English(SearchEnglish):
    """English whose stems are remembered."""

    def __init__(self, options: dict[str, str]):
        super().__init__(options)
        self.stem = cache(self.stem)  # type: ignore[method-assign]


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the language."""
    app.add_search_language(English)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
