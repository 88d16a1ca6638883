"""What changed from format 9 to 10: a run may end after updates, and its periods may be in updates or in episodes.

The default number of updates of an iteration follows its minimums; it was one for each episode. What only the critic of
an on-policy agent reads is in `critic_update`.
"""

from rlrun.formats import format_10_autoencoder

LOOP = "_extra_state"
METRICS = "metrics._extra_state"
TRAINER = "trainer._extra_state"
OF_CRITIC = ("value_coef", "clip_value")


def regroup(values: dict[str, object]) -> None:
    """Names the updates of an iteration that were the default, moves settings of critics of on-policy agents, and adds
    a setting of PPO, in place. The config may have any content."""
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    loop = algo.get("loop")
    if isinstance(loop, dict) and loop.get("name") == "offpolicy_episodes" and "updates_per_iteration" in loop:
        loop["updates_per_iteration"] = loop["updates_per_iteration"] or "episodes"
    format_10_autoencoder.regroup(algo)
    schedule = algo.get("schedule")
    _move_to_critic(algo, schedule)
    _add_to_ppo(algo)
    if isinstance(schedule, dict):
        schedule = schedule.get("particle")
    _move_to_critic(algo.get("particle"), schedule)
    _add_to_ppo(algo.get("particle"))


def _add_to_ppo(agent: object) -> None:
    """Adds PPO's clip of log-probabilities. MAML has a clip range too, but no critic."""
    if isinstance(agent, dict) and "clip_range" in agent and "critic_update" in agent:
        agent.setdefault("log_prob_clip", None)


def _move_to_critic(agent: object, schedule: object) -> None:
    """Moves the settings of the critic, and the schedule of its coefficient. They had no effect without a critic."""
    if not isinstance(agent, dict) or not isinstance(agent.get("critic_update"), dict):
        return
    critic = agent["critic_update"]
    moved = {key: agent.pop(key) for key in OF_CRITIC if key in agent}
    has_critic = critic.get("name") != "none"
    if has_critic:
        critic |= moved
    if isinstance(schedule, dict) and "value_coef" in schedule:
        shape = schedule.pop("value_coef")
        if has_critic:
            schedule["critic_update.value_coef"] = shape


def restate(state: dict[str, object]) -> None:
    """Adds the updates and episodes up to which log rows are complete, schedules over steps alone, and the exponent of
    priorities, which is unknown, in place. Moves the state of autoencoders."""
    format_10_autoencoder.restate(state)
    for name in [*state]:
        if name.endswith((".buffer.highest", ".collected.highest")) or name == "buffer.highest":
            state[f"{name.removesuffix('highest')}alpha"] = state[name] * 0 - 1  # type: ignore[operator]
    loop, metrics, trainer = (state.get(key) for key in (LOOP, METRICS, TRAINER))
    if not isinstance(loop, dict) or not isinstance(metrics, dict) or not isinstance(trainer, dict):
        return
    state[LOOP] = {"update_horizon": 0} | loop
    progress = dict(trainer["progress"])
    if isinstance(progress["settled"], int):
        episodes = progress["episodes"] + len(metrics["episodes"])
        progress["settled"] = {"steps": progress["settled"], "updates": loop["updates"], "episodes": episodes}
    state[TRAINER] = trainer | {"progress": progress}
