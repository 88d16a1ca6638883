"""What changed from format 9 to 10: a run may end after updates, and its periods may be in updates or in episodes.

The default number of updates of an iteration follows its minimums; it was one for each episode.
"""

LOOP = "_extra_state"
METRICS = "metrics._extra_state"
TRAINER = "trainer._extra_state"


def regroup(values: dict[str, object]) -> None:
    """Names the updates of an iteration that were the default, in place. The config may have any content."""
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    loop = algo.get("loop")
    if isinstance(loop, dict) and loop.get("name") == "offpolicy_episodes" and "updates_per_iteration" in loop:
        loop["updates_per_iteration"] = loop["updates_per_iteration"] or "episodes"


def restate(state: dict[str, object]) -> None:
    """Adds the updates and episodes up to which log rows are complete, and schedules over steps alone, in place."""
    loop, metrics, trainer = (state.get(key) for key in (LOOP, METRICS, TRAINER))
    if not isinstance(loop, dict) or not isinstance(metrics, dict) or not isinstance(trainer, dict):
        return
    state[LOOP] = {"update_horizon": 0} | loop
    progress = dict(trainer["progress"])
    if isinstance(progress["settled"], int):
        episodes = progress["episodes"] + len(metrics["episodes"])
        progress["settled"] = {"steps": progress["settled"], "updates": loop["updates"], "episodes": episodes}
    state[TRAINER] = trainer | {"progress": progress}
