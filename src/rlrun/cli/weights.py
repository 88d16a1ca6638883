"""Prints the weights of an algorithm in an environment, for `rlrun show weights=true`."""

import json
import math
from collections.abc import Sequence

from rlrun.cli.columns import print_columns
from rlrun.config.jobs import jobs


def print_weights(words: Sequence[str], as_json: bool) -> int:
    """Prints name, shape, number of values and optimisers of every weight. Returns the exit code.

    words: the settings of a run.
    """
    from rlrun.config.schema import run_config
    from rlrun.core import ownership
    from rlrun.run.assemble import build_loop
    from rlrun.settings import registry

    (job,) = jobs(words, several=lambda word: "rlrun show prints one config")
    registry.load(job.values["plugins"])
    loop = build_loop(run_config(job.values))
    try:
        found = ownership.weights(loop.agent, loop.addons)
    finally:
        loop.env.close()
    if as_json:
        print(json.dumps([weight._asdict() for weight in found]))
        return 0
    rows = [("weight", "shape", "numbers", "optimiser")]
    total = 0
    for weight in found:
        numbers = math.prod(weight.shape)
        total += numbers
        optimisers = ", ".join(weight.optimisers)
        if not weight.is_trained:
            optimisers = "not trained"
        rows.append((", ".join(weight.names), str([*weight.shape]), f"{numbers:,}", optimisers or "none"))
    print_columns([*rows, ("all", "", f"{total:,}", "")])
    return 0
