"""Finds the algorithms that can learn in an environment, for `rlrun list algo env=...`."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from rlrun.config.jobs import jobs
from rlrun.errors import ConfigError


def fitting(algos: Iterable[str], words: Sequence[str]) -> Iterator[str]:
    """Yields the algorithms whose agent can be built for the environment that the words choose.

    words: settings as for `rlrun train`, without an algorithm. Raises ConfigError if the environment cannot be made.
    """
    import torch

    from rlrun.config.schema import RunConfig, run_config
    from rlrun.run.assemble import build_agent, build_env, check_requirements, reported
    from rlrun.settings import registry

    def config_of(algo: str) -> RunConfig:
        return run_config(jobs([f"algo={algo}", *words])[0].values)

    cpu = torch.device("cpu")
    base = config_of("nop")
    registry.load(base.plugins)
    env = build_env(dataclasses.replace(base, env=dataclasses.replace(base.env, num_envs=1)), cpu)
    try:
        for algo in algos:
            try:
                config = config_of(algo)
                check_requirements(config)
                spec = dataclasses.replace(env.spec, num_envs=config.env.num_envs)
                agent, addons = build_agent(config, spec, cpu)
                reported(config, agent, addons, spec)
            except ConfigError:
                continue
            yield algo
    finally:
        env.close()
