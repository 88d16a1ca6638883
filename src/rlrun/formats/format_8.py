"""What changed from format 7 to 8: all numbers that change during a run, learning rates too, are in `algo.schedule`."""

import copy
from collections.abc import Iterator

from rlrun.errors import ConfigError
from rlrun.formats.format_7 import put

GOES_ON = "a056961b"  # the last commit that resumes runs which `regroup` refuses
LINEAR: dict[str, object] = {"linear": {}}
# state of the optimiser or agent that had a schedule: key of its learning rate in the state of `algo.schedule`
RATES = {
    "agent.optim": "learning_rate",
    "agent.actor_optim": "actor_learning_rate",
    "agent.critic_optim": "critic_learning_rate",
    "agent.critic.optim": "critic_update/learning_rate",
    "agent.particles.0.optim.optim": "particle/learning_rate",
    "agent.particles.0.critic.optim": "particle/critic_update/learning_rate",
}


def regroup(values: dict[str, object]) -> None:
    """Turns `lr_schedule` of an agent and its critic into schedules, in place. The config may have any content.

    Raises ConfigError for runs whose schedule has changed its meaning.
    """
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    loop = algo.get("loop")
    if isinstance(loop, dict) and loop.get("name") == "annealed":
        raise ConfigError(f"algo.loop=annealed: commit {GOES_ON} is the last that has it; algo.schedule replaces it")
    for prefix, agent in (((), algo), (("particle",), algo.get("particle"))):
        if isinstance(agent, dict) and "lr_schedule" in agent:
            for key, schedule in _schedules(agent):
                put(algo, ("schedule", *prefix, *key.split(".")), schedule)


def _schedules(agent: dict[str, object]) -> Iterator[tuple[str, object]]:
    """Removes `lr_schedule` from the section of an agent and of its critic, and yields what takes its place."""
    critic = agent.get("critic_update")
    if not isinstance(critic, dict):
        critic = {}
    shared, own = agent.pop("lr_schedule"), critic.pop("lr_schedule", None)
    if own is None:
        own = shared
    if critic.get("learning_rate") is None and own != shared:
        critic["learning_rate"] = agent.get("learning_rate")
    rates = {"learning_rate": shared, "actor_learning_rate": shared, "critic_learning_rate": shared}
    if agent.get("name") == "iql":
        del rates["critic_learning_rate"]
    if critic.get("learning_rate") is not None:
        rates["critic_update.learning_rate"] = own
    in_epochs = any(section.get("epochs", 1) != 1 for section in (agent, critic))
    for key, schedule in rates.items():
        if not schedule or key.partition(".")[0] not in agent:
            continue
        if schedule == LINEAR:
            schedule = {"linear": {"end": 0.0}}
        elif in_epochs:
            raise ConfigError(
                f"lr_schedule={schedule}: torch's schedulers take one step per update, no longer one per epoch; "
                f"commit {GOES_ON} is the last that resumes this run"
            )
        yield key, copy.deepcopy(schedule)


def restate(state: dict[str, object]) -> None:
    """Moves learning rates that have a schedule, and the state of torch's schedulers, in place."""
    for path in [key for key in state if key.endswith("schedule._extra_state") and key.startswith("agent.")]:
        scheduler = state.pop(path)
        optim = path.removesuffix(".schedule._extra_state")
        rate = state.get(f"{optim}.learning_rate")
        if path == "agent.lr_schedule._extra_state":
            optim, rate = "agent.optim", state.get("agent.rate")
        if optim in RATES:
            key = f"schedules.{RATES[optim]}"
            state[key] = rate
            if scheduler:  # not linear
                state[f"{key}_scheduler._extra_state"] = scheduler
