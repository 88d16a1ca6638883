"""Collects whole episodes that do not depend on the number of environments.

The episodes of a collection are numbered from 0 in the order in which they start. Run seed, name of the collection and
episode number determine the environment seed and the action noise. The episodes with the lowest numbers are kept.
The result therefore does not depend on num_envs or on which environment finishes first, and is not biased towards short
episodes. Later episodes are discarded, but step counts and normaliser statistics include them.
"""

from collections.abc import Callable, Iterable

from rlrun.buffers.rollout import Rollout
from rlrun.core.collector import Acts, check_ends
from rlrun.core.loop import Loop
from rlrun.loops.episode_spans import EpisodeSpan
from rlrun.loops.rounds import numbers_of_round

Enough = Callable[[int, int], bool]
"""Returns whether a number of transitions in a number of episodes is enough."""


def whole_episodes(
    loop: Loop, rollout: Rollout, name: str, enough: Enough, policy: Acts | None = None
) -> list[EpisodeSpan]:
    """Collects new episodes until the first of them are enough.

    Adds all timesteps to an empty rollout, and returns where the kept episodes lie among them. name: of the collection;
    each has another. policy: acts instead of the agent.
    """
    time = last_end = 0
    episodes: list[EpisodeSpan] = []
    kept: list[EpisodeSpan] = []
    start(loop, name, range(loop.spec.num_envs), episodes, 0)
    while not kept:
        running = [episode for episode in episodes if not episode.done]
        (step,) = loop.collect(policy=policy)
        rollout.add(step)
        time += 1
        ended = (step["terminated"] | step["truncated"]).tolist()
        for episode in running:
            episode.end = time
            episode.done = ended[episode.slot]
        free = [episode.slot for episode in running if episode.done]
        check_ends(time - last_end, loop.spec)
        if free:
            last_end = time
            kept = complete(episodes, enough)
            if not enough(transitions(episodes), len(episodes)):
                start(loop, name, free, episodes, time)
    loop.join()
    return kept


def episodes_in_rounds(loop: Loop, rollout: Rollout, name: str, enough: Enough, shards: int) -> list[EpisodeSpan]:
    """Collects new episodes as `whole_episodes` does, in rounds of one episode per environment."""
    time = 0
    episodes: list[EpisodeSpan] = []
    kept: list[EpisodeSpan] = []
    num_envs = loop.spec.num_envs
    while not kept:
        numbers = numbers_of_round(len(episodes), num_envs, shards)
        by_number = sorted(range(num_envs), key=numbers.__getitem__)
        running = [EpisodeSpan(slot, time, time) for slot in by_number]
        episodes += running
        names = {slot: f"{name}.{number}" for slot, number in enumerate(numbers)}
        for step in loop.collect_episodes([1] * num_envs, names):
            rollout.add(step)
            time += 1
            ended = (step["terminated"] | step["truncated"]).tolist()
            for episode in running:
                if not episode.done:
                    episode.end = time
                    episode.done = ended[episode.slot]
        kept = complete(episodes, enough)
    return kept


def transitions(episodes: list[EpisodeSpan]) -> int:
    """Returns the number of transitions of these episodes so far."""
    return sum(episode.end - episode.begin for episode in episodes)


def complete(episodes: list[EpisodeSpan], enough: Enough) -> list[EpisodeSpan]:
    """Returns the first of these episodes, as few as are enough; [] as long as one of them runs."""
    for count, episode in enumerate(episodes, 1):
        if not episode.done:
            break
        if enough(transitions(episodes[:count]), count):
            return episodes[:count]
    return []


def start(loop: Loop, name: str, slots: Iterable[int], episodes: list[EpisodeSpan], begin: int) -> None:
    """Starts a new episode in each of the environments `slots`, and appends the new episodes to `episodes`.

    begin: timestep of the collection at which the episodes start.
    """
    names: dict[int, str] = {}
    for slot in slots:
        names[slot] = f"{name}.{len(episodes)}"
        episodes.append(EpisodeSpan(slot, begin, begin))
    loop.start(names)
