"""Every algorithm has a test of what it learns, and a test that tells it apart from its parent."""

from pathlib import Path

import pytest
import yaml
from catalogue import APART, ELSEWHERE, NOT_IN_CATALOGUE, OF_TESTED_PARTS
from test_thresholds import PROMISES
from toys import ALGOS

from rlrun.config.sources import CONF

TESTS = Path(__file__).parents[1]


def test_every_name_of_the_catalogue_is_held_to_what_it_learns() -> None:
    promised = {pair.split()[0] for pair in PROMISES}
    assert not promised & ELSEWHERE.keys()
    assert promised | ELSEWHERE.keys() | NOT_IN_CATALOGUE == {*ALGOS}


def test_every_name_made_of_another_is_told_apart_from_it() -> None:
    defaults = {algo: yaml.safe_load((CONF / "algo" / f"{algo}.yaml").read_text())["defaults"] for algo in ALGOS}
    assert {algo for algo, given in defaults.items() if given[0] in ALGOS} == APART.keys() | OF_TESTED_PARTS


@pytest.mark.parametrize(("algo", "place"), [*ELSEWHERE.items(), *APART.items()])
def test_what_is_said_of_a_name_stands_in_a_test_that_knows_it(algo: str, place: str) -> None:
    file, _, test = place.partition("::")
    text = (TESTS / file).read_text()
    assert f"def {test}(" in text and algo in text
