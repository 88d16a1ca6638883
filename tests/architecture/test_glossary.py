"""docs/glossary.md is sorted, and every path that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/glossary.md").read_text()
TERMS = PAGE.partition("| term |")[2].partition("\n\n")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TERMS.splitlines()[2:]]


def test_every_term_of_the_glossary_has_a_meaning() -> None:
    assert len(ROWS) > 60
    assert not [row for row in ROWS if len(row) != 3 or not row[0] or not row[1]]


def test_terms_of_the_glossary_are_alphabetical() -> None:
    terms = [row[0].lower() for row in ROWS]
    assert terms == sorted(set(terms))


def test_every_place_in_the_glossary_exists() -> None:
    places = [place for row in ROWS for place in re.findall(r"`([^`]+)`", row[2])]
    assert len(places) > 60
    assert not [place for place in places if not (ROOT / "src/rlrun" / place).exists() and not (ROOT / place).exists()]
