"""The commands on all pages exist, and links have targets."""

import re

from pages import PAGES, commands

from rlrun.cli import COMMANDS


def test_pages_show_commands_that_exist() -> None:
    found = [words for page in PAGES for words in commands(page)]
    assert len(found) > 40
    assert not {words[0] for words in found} - {*COMMANDS}


def test_links_between_pages_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text())]
    local = [(page, link) for page, link in links if "://" not in link]
    assert len(local) > 40
    assert not [(page.name, link) for page, link in local if not (page.parent / link).exists()]
