"""The ranges of searched keys."""

import math
from typing import Any

import numpy as np
import pytest

from rlrun.errors import ConfigError
from rlrun.sweep.ranges import Choice, Int, Log, Logit, PowerOfTwo, Range, Uniform, built, typed

RANGES = [
    Uniform(-1.0, 3.0),
    Log(1e-5, 1e-2),
    Logit(0.9, 0.9999),
    Int(1, 5),
    PowerOfTwo(64, 1024),
    Choice((None, [2], "a")),
]


@pytest.mark.parametrize("range", RANGES, ids=lambda range: range.name)
def test_values_keep_to_their_range_and_are_read_back(range: Range) -> None:
    points = np.random.default_rng(0).random(200)
    for u in [0.0, *points, np.nextafter(1, 0)]:
        value = range.value(float(u))
        if isinstance(range, Choice):
            assert value in range.options
        else:
            low, high = range.ends()
            assert low <= value <= high
        assert range.value(range.position(value)) == value
    assert built(range.name, range.arguments) == range
    assert typed(range.text.replace("null", "null")) == range


@pytest.mark.parametrize("range", [Int(1, 5), PowerOfTwo(64, 1024), Choice((1, 2, 3))], ids=lambda range: range.name)
def test_listed_values_are_equally_likely(range: Range) -> None:
    values = [range.value(u) for u in np.linspace(0, 1, 3000, endpoint=False)]
    counts = [values.count(value) for value in sorted(set(values))]
    assert max(counts) - min(counts) <= 2


def test_largest_range_of_whole_numbers_has_every_value() -> None:
    widest = Int(1 - 2**52, 2**52)
    assert widest.value(float(np.nextafter(1, 0))) == 2**52
    for index in (0, 1, 2**51 + 1, 2**53 - 2):
        assert widest.value(index / 2**53) == widest.low + index


def test_middle_of_each_scale() -> None:
    assert Log(1e-4, 1e-2).value(0.5) == 1e-3
    assert Logit(0.9, 0.999).value(0.5) == pytest.approx(
        1 / (1 + math.exp(-(math.log(9) + math.log(999)) / 2)), rel=1e-5
    )
    assert Uniform(0.0, 1.0).value(0.5) == 0.5


@pytest.mark.parametrize(
    ("range", "points", "expected"),
    [
        (Log(1e-4, 1e-2), 3, [1e-4, 1e-3, 1e-2]),
        (Uniform(0.0, 1.0), 1, [0.5]),
        (Int(1, 9), 3, [2, 5, 8]),
        (Int(1, 2), 5, [1, 2]),
        (PowerOfTwo(2, 16), 2, [4, 16]),
        (Choice(("a", "b", "c")), 2, ["a", "b", "c"]),
    ],
)
def test_grid_of_a_range(range: Range, points: int, expected: list[Any]) -> None:
    assert range.grid(points) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log(1e-5, 1e-2)", Log(1e-5, 1e-2)),
        ("choice([256,256],[512,512])", Choice(([256, 256], [512, 512]))),
        ("choice(adam,null,1e-3)", Choice(("adam", None, 1e-3))),
        ("pow2(64,1024)", PowerOfTwo(64, 1024)),
        ("0.5", None),
        ("runs/a(1)", None),
    ],
)
def test_range_that_the_user_types(text: str, expected: Range | None) -> None:
    assert typed(text) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("lgo(1,2)", r"lgo\(1,2\): unknown range; did you mean log\?"),
        ("log(0,1)", r"log\(0,1\): bounds must be above 0"),
        ("log(1e-2,1e-5)", r"log\(0.01,1e-05\): the first bound must be below the second"),
        ("logit(0.9,1)", r"logit\(0.9,1\): bounds must be above 0 and below 1"),
        ("int(1,2.5)", r"int\(1,2.5\): bounds must be whole numbers"),
        ("pow2(3,8)", r"pow2\(3,8\): bounds must be powers of two"),
        ("choice(1)", r"choice\(1\): needs at least two values"),
        ("choice(0.1,a,0.1)", r"choice\(0.1,a,0.1\): has the value 0.1 twice"),
        ("log(1)", r"log\(1\): needs two numbers"),
        ("log(a,b)", r"log\(a,b\): needs two numbers"),
        ("choice([1)", r"choice\(\[1\): cannot be read"),
    ],
)
def test_faulty_range_has_one_line(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=f"^{fault}"):
        typed(text)


HUGE = "9" * 400


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"uniform(0.1,{HUGE})", "cannot be read"),
        (f"pow2(1,{2**2000})", "cannot be read"),
        ("int(1,99999999999999999999999)", r"bounds must be at most 2\^53 in size"),
        (f"int({-(2**52)},{2**52})", r"must have at most 2\^53 values"),
        ("uniform(0.1,0.10000001)", "the bounds are equal to 6 digits"),
        ("uniform(-1.7e308,1.7e308)", "needs two numbers of at most"),
        ("log(1e-2,1", "the closing bracket is missing"),
        ("choice(1,&a [*a])", "cannot be read"),
        ("choice(1," + "[" * 5000 + ")", "cannot be read"),
    ],
)
def test_ranges_that_no_search_can_use_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        typed(text)


@pytest.mark.parametrize(
    ("values", "held", "others"),
    [
        (Int(1, 2**50), [1, 2**50], [0, 2**50 + 1, 2.0, True, "1", None, [1]]),
        (Log(1e-5, 1e-2), [1e-5, 0.001], [0, -1.0, 0.1, math.nan, math.inf, 10**400, "x", None]),
        (Logit(0.9, 0.99), [0.9], [1, 1.0, 0]),
        (Choice((1, "a", [64, 64])), ["a", [64, 64]], ["b", [64], {}, math.nan, 10**400]),
    ],
)
def test_range_holds_its_own_values_alone(values: Range, held: list[Any], others: list[Any]) -> None:
    assert all(map(values.holds, held)) and not any(map(values.holds, others))
