"""Finds the algorithms that can learn in an environment, for `rlrun list algo env=...`."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError


def fitting(algos: Iterable[str], words: Sequence[str]) -> Iterator[str]:
    """Yields the algorithms that have the settings, and whose agent can be built for the environment.

    words: settings as for `rlrun train`, without an algorithm. Raises ConfigError if no algorithm has the settings, if
    the environment cannot be made, or if its observations do not fit into the memory.
    """
    import torch

    from rlrun.config.schema import EnvConfig, run_config
    from rlrun.core.random import sequence
    from rlrun.envs.stepping.vector import VectorEnv
    from rlrun.run.assemble import build_agent, check_requirements, check_sizes, reported
    from rlrun.settings import registry
    from rlrun.types import Spec

    cpu = torch.device("cpu")
    specs: dict[str, Spec] = {}  # algorithms may have settings of the environment, such as wrappers
    faults: list[ConfigError] = []

    def spec_of(env: EnvConfig) -> Spec:
        one = dataclasses.replace(env, num_envs=1, selftest="off")
        if str(one) not in specs:
            made = VectorEnv.make(one, sequence(0, "env"), cpu)
            made.close()
            specs[str(one)] = made.spec
        return dataclasses.replace(specs[str(one)], num_envs=env.num_envs)

    for algo in algos:
        try:
            config = run_config(jobs([f"algo={algo}", *words])[0].values)
            registry.load(config.plugins)
            spec = spec_of(config.env)
        except ConfigError as error:
            faults.append(error)
            continue
        check_sizes(spec)
        try:
            check_requirements(config)
            agent, addons = build_agent(config, spec, cpu)
            reported(config, agent, addons, spec)
        except ConfigError:
            continue
        yield algo
    if not specs:
        raise faults[0]
