"""What a part of a run requires of the other parts, before any of them is built."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Around(NamedTuple):
    """The parts of a run, and the settings that matter to several of them. A default means: no such part."""

    algo: str  # names of parts
    loop: str
    network: str = ""
    buffer: str | None = None  # the name in the section algo.buffer, whether or not the loop uses it
    addons: tuple[str, ...] = ()  # names of their sections of `algo`, such as "representation"
    shards: int | None = None  # number of shards that act, if they do
    keeps_replay: bool = False  # whether the run has a replay buffer
    reads_data: bool = False  # whether the loop reads data sets
    recurrent: bool = False  # whether the network is recurrent
    remembers: bool = False  # whether the algorithm supports recurrent networks
    gamma: object = None  # discount of the algorithm, if it has one
    discounts: object = None  # discount of each component of a reward vector, if they are set
    executed_action: str | None = None  # entry of infos that replaces the agent's action in replay
    draws_tasks: bool = False  # whether the environment has `task_kwargs`
    instance_seed: int | None = None
    eval_episodes: int = 0
    snapshot_replay: bool = True


class Requires:
    """Base of parts that do not go together with every other part."""

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        """Yields a fault for each other part, and each setting of it, with which this part is not supported.

        own: the settings of this part, as in the config.
        """
        yield from ()
