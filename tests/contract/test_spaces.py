"""Every pair of algorithm and space trains, or is refused with a one-line error, as the page about spaces says."""

import re

import pytest
from spaces_table import ALGOS, INTRODUCTION, KINDS, PAGE, cells, heading, refusal, row
from toys import BY_LOOP, OF_FAMILIES, OF_LOOPS, by_default

WRITER = "python tests/contract/spaces_table.py writes it anew"
TEXT = PAGE.read_text()


def section(kind: str) -> str:
    """Returns the table of the page for a kind of space."""
    _, _, rest = TEXT.partition(f"\n## {kind.title()}s\n")
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("algo", BY_LOOP)
@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_trains_or_is_refused_in_one_line(algo: str, kind: str) -> None:
    reasons = {name: refusal(values, updates=1) for name, values in cells(algo, kind, KINDS[kind])}
    assert None in reasons.values()
    for name, reason in reasons.items():
        assert reason is None or ("not supported" in reason and "\n" not in reason), f"{name}: {reason}"
    assert f"| {row(algo, [*reasons.values()])} |" in section(kind), WRITER


@pytest.mark.parametrize("algo", by_default({*OF_FAMILIES} - {*OF_LOOPS}))
def test_the_page_about_spaces_has_the_row_of_an_algorithm(algo: str) -> None:
    for kind, names in KINDS.items():
        reasons = [refusal(values) for _, values in cells(algo, kind, names)]
        assert f"| {row(algo, reasons)} |" in section(kind), WRITER


def test_the_page_about_spaces_has_every_algorithm_once() -> None:
    assert TEXT.startswith(INTRODUCTION), WRITER
    for kind, names in KINDS.items():
        assert f"| {heading(names)} |" in section(kind), WRITER
        assert re.findall(r"^\| `(\w+)` ", section(kind), re.MULTILINE) == [*ALGOS], WRITER
