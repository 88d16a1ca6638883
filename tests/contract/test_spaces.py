"""Every pair of algorithm and space trains, or is refused with a one-line error."""

import pytest
from spaces_table import KINDS, PAGE, cells, page, refusal
from toys import BY_CLASS


@pytest.mark.parametrize("algo", BY_CLASS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_trains_or_is_refused_in_one_line(algo: str, kind: str) -> None:
    reasons = {name: refusal(values, updates=1) for name, values in cells(algo, kind, KINDS[kind])}
    assert None in reasons.values()
    for name, reason in reasons.items():
        assert reason is None or ("not supported" in reason and "\n" not in reason), f"{name}: {reason}"


def test_the_page_about_spaces_is_current() -> None:
    assert PAGE.read_text() == page(), "python tests/contract/spaces_table.py writes it anew"
