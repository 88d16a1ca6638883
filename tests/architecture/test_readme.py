"""The commands on all pages compose, and links have targets."""

import re

from pages import PAGES, commands

from rlrun.cli import COMMANDS
from rlrun.cluster.submission import chosen
from rlrun.config.jobs import jobs

ELSEWHERE = (
    "runs/sweeps",
    "my_",
    "./munchausen_sac.py",
    "./small_dqn.py",
    "minigrid:",
    "<",
    "...",
    "$",
)  # modules, runs and variables that stand for those of the reader


def test_pages_show_commands_that_exist_and_compose() -> None:
    found = [words for page in PAGES for words in commands(page)]
    assert len(found) > 40
    assert not {words[0] for words in found} - {*COMMANDS}
    trained = [
        words[1:] for words in found if words[0] == "train" and not any(part in str(words) for part in ELSEWHERE)
    ]
    assert len(trained) > 15
    for words in trained:
        _, own = chosen([word for word in words if not word.startswith("-")], {})
        jobs(own, multirun="-m" in words)


def test_links_between_pages_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text())]
    local = [(page, link) for page, link in links if "://" not in link]
    assert len(local) > 40
    assert not [(page.name, link) for page, link in local if not (page.parent / link).exists()]
