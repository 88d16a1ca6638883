"""Runs whose rollouts or replay store observations with 16 bits resume bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest
from toys import toy, train

from rlrun.core.loop import Loop
from rlrun.testing import check_resuming

Build = Callable[..., Loop]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("algo", "changes"),
    [
        ("vtrace", {"algo.loop.lag": 2, "algo.loop.dtypes": None}),
        ("vpg", {"algo.loop.dtypes": None}),
        ("sac", {"algo.buffer.dtypes": None}),
    ],
)
def test_runs_with_observations_of_16_bits_resume_exactly(
    algo: str, changes: dict[str, Any], dtype: str, build: Build
) -> None:
    values = toy(algo, **{key: {"obs": dtype} if value is None else value for key, value in changes.items()})
    check_resuming(train(build(values), 2), build(values, begin=False))
