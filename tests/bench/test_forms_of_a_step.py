"""The forms that the result of a step takes on its way to an update, which decision 13 limits."""

from collections.abc import Callable

import pytest
from forms import PPO, RUN, SAC, Trace
from toys import Values

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop


def learn(loop: Loop) -> None:
    while not loop.updates:
        loop.tick()


@pytest.mark.parametrize(("words", "functions"), [(SAC, 27), (PPO, 19)], ids=["sac", "ppo"])
def test_a_step_has_one_form_from_the_simulator_to_the_batch(
    words: str, functions: int, build: Callable[[Values], Loop]
) -> None:
    _, *run = RUN.split()  # without `train`
    (job,) = jobs([*run, *words.split()])
    loop = build(job.values)
    trace = Trace(lambda: learn(loop))
    assert sorted(form.type for form in trace.forms()) == ["dict", "dict of several steps"]
    assert trace.renamed() == []
    assert 10 < len(trace.functions) <= functions, trace.functions
