"""Changes between the formats of runs: renamed config keys, metrics and state, and keys that a later format added.

`config.yaml` begins with its format, and every snapshot records it. A key that a stored config lacks gets a value only
if a later format added it; any other missing key is an error, because the file may be truncated.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlrun.errors import ConfigError
from rlrun.formats import format_6, format_7, format_8, format_10


class Renamed(NamedTuple):
    """A path whose name changed between two formats."""

    old: str
    new: str
    algos: tuple[str, ...] = ()  # values of `algo.name` for which it was renamed; empty: all


class Added(NamedTuple):
    """A config key that a format added."""

    key: str  # dotted path
    value: Any  # value with which a run behaves as it did before the key existed
    beside: str  # a key of the same section; the new key is only added to sections that have this key
    part: str | None = None  # the new key is only added to the section of the part with this name


@dataclass(frozen=True)
class FormatChange:
    """The changes from one format to the next."""

    keys: tuple[Renamed, ...] = ()  # keys of config.yaml
    metrics: tuple[Renamed, ...] = ()  # keys of a log row, like loss/critic
    state: tuple[Renamed, ...] = ()  # paths in a snapshot's state, or prefixes of paths; `*` matches one name
    added: tuple[Added, ...] = ()
    regroup: Callable[[dict[str, object]], None] | None = None  # changes the whole config in place, after the renames
    restate: Callable[[dict[str, object]], None] | None = None  # changes the whole state in place, after the renames


FIRST = 5  # the earliest format that this version reads
WITH_SHARDS = ("onpolicy", "demonstrations", "offpolicy", "hybrid")  # loops with algo.loop.shards, since format 9
OF_ROLLOUTS = ("onpolicy", "demonstrations", "episodes")  # loops with algo.loop.dtypes, since format 10
# loops of whole episodes with algo.loop.shards, since format 10, and a key of each
OF_EPISODES = (("evolution", "episodes"), ("episodes", "lag"), ("meta", "new_tasks"))
OF_IMAGES = ("auto", "cnn", "impala", "gru", "lstm")  # networks with network.pixel_range, since format 10
WITH_VECTORS = ("continuous_sarsa", "dqn", "iql", "soft_q")  # algorithms with algo.reward_weights, since format 10
OF_NUMBERS = ("min", "mean", "rescaled")  # critics with algo.critic.normalize_target, since format 10
AGENTS = ("", "particle.")  # prefixes of the keys of an on-policy agent
CONVERTS = "b674a714"  # the last commit that converts earlier formats
CHANGES: tuple[FormatChange, ...] = (
    FormatChange(restate=format_6.restate),  # from format 5 to 6
    FormatChange(
        regroup=format_7.regroup,
        state=(
            Renamed("agent.epsilon.value", "schedules.epsilon"),
            Renamed("agent.epsilon", "schedules.epsilon", ("parameter_noise_bandit",)),
            Renamed("agent.search.temperature", "schedules.search/temperature"),
            Renamed("agent.target_q", "agent.target_network"),
        ),
    ),
    FormatChange(regroup=format_8.regroup, restate=format_8.restate),
    FormatChange(
        added=(
            Added("cluster", {"name": "none"}, beside="network"),
            *(Added("algo.loop.shards", None, "lag", loop) for loop in WITH_SHARDS),
        )
    ),
    FormatChange(
        added=(
            Added("env.index_kwarg", None, beside="task_kwargs"),
            Added("env.executed_action", None, beside="log_info"),
            Added("env.ray", {"address": "auto", "workers": None, "cpus": 1}, beside="task_kwargs"),
            Added("trainer.total_updates", None, beside="total_steps"),
            Added("trainer.period_unit", "steps", beside="eval_every"),
            Added("trainer.measure_after", 0, beside="eval_every"),
            Added("trainer.eval_envs", None, beside="eval_every"),
            Added("trainer.eval_sampled", 0.0, beside="eval_every"),
            Added("trainer.eval_beside", False, beside="eval_every"),
            Added("trainer.num_evals", None, beside="eval_every"),
            Added("trainer.num_rows", None, beside="eval_every"),
            Added("trainer.min_episodes", 1, beside="eval_every"),
            Added("trainer.num_snapshots", None, beside="eval_every"),
            Added("trainer.snapshot_at_crash", "never", beside="eval_every"),
            Added("algo.loop.complete", False, "min_rollouts", "offpolicy_episodes"),
            *(Added("algo.loop.shards", None, beside, loop) for loop, beside in OF_EPISODES),
            *(Added("algo.loop.shard_steps", None, "shards", loop) for loop in ("offpolicy", "hybrid")),
            *(Added("algo.loop.dtypes", {"obs": "float32"}, "lag", loop) for loop in OF_ROLLOUTS),
            *(
                Added("algo.reward_weights", {"name": "fixed", "weights": None, "gamma": None}, "gamma", algo)
                for algo in WITH_VECTORS
            ),
            Added("algo.intrinsic.network", None, beside="hidden"),
            Added("algo.intrinsic.frames", 1, "embedding", "rnd"),
            Added("algo.buffer.divide_weights", True, "beta", "prioritized"),
            Added("algo.buffer.dtypes", {"obs": "float32"}, beside="reward_clip"),
            *(Added(f"algo.{of}advantage.clip", None, beside="normalize") for of in AGENTS),
            *(Added(f"algo.{of}critic_update.huber_delta", None, beside="clip_value") for of in AGENTS),
            Added("algo.reward_weights.gamma", None, beside="name"),
            Added("algo.critic.sum_over_quantiles", True, beside="num_quantiles"),
            Added("algo.loss_after", False, beside="target_kl"),
            Added("algo.particle.loss_after", False, beside="target_kl"),
            *(Added(f"algo.{of}trust_region", {"name": "none"}, beside="target_kl") for of in AGENTS),
            Added("cluster.on_lost", "fail", "workers", "local"),
            Added("cluster.state_every", 100, "workers", "local"),
            *(Added("algo.epsilon.end_step", None, "fraction", part) for part in ("linear", "random_start")),
            Added("algo.representation.learning_rates", {}, "unroll_steps"),
            *(Added(f"algo.representation.{of}network", None, "unroll_steps") for of in ("", "dynamics_")),
            *(Added(f"network.{of}previous", [], beside="burn_in") for of in ("", "actor.", "critic.")),
            Added("env.transforms", [], beside="normalize"),
            Added("algo.buffer.reward", "environment", beside="her_ratio"),
            Added("algo.buffer.distance", 0.05, beside="her_ratio"),
            *(Added("network.pixel_range", [0.0, 1.0], "hidden", network) for network in OF_IMAGES),
            Added("env.normalize.statistics", {"name": "all"}, beside="reward_by"),
            Added("env.normalize.fields", [], beside="reward_by"),
            Added("env.normalize.zero_mean", True, beside="reward_by"),
            Added("env.normalize.update_on", "rollout", beside="reward_by"),
            Added("env.normalize.max_updates", None, beside="reward_by"),
            Added("algo.intrinsic.statistics", {"name": "none"}, "reward_coef", "diayn"),
            Added("algo.intrinsic.statistics", {"name": "all"}, beside="reward_coef"),
            Added("algo.intrinsic.obs_statistics", {"name": "all"}, "reward_coef", "rnd"),
            Added("algo.intrinsic.obs_statistics", {"name": "none"}, beside="reward_coef"),
            Added("algo.intrinsic.obs_clip", 5.0, beside="reward_coef"),
            *(Added("algo.critic.normalize_target", False, "members", part) for part in OF_NUMBERS),
            *(Added(f"algo.{of}critic_update.normalize_target", False, beside="clip_value") for of in AGENTS),
        ),
        regroup=format_10.regroup,
        restate=format_10.restate,
        metrics=(
            Renamed("train/value_coef", "train/critic_update.value_coef"),
            Renamed("train/particle.value_coef", "train/particle.critic_update.value_coef"),
        ),
        state=(
            Renamed("schedules.value_coef", "schedules.critic_update/value_coef"),
            Renamed("schedules.particle/value_coef", "schedules.particle/critic_update/value_coef"),
            *(Renamed(f"addons.*.decoders.*.{of}", f"addons.*.decoders.*.network.{of}") for of in ("torso", "output")),
        ),
    ),
)
FORMAT = FIRST + len(CHANGES)
KEY = "format"  # key of config.yaml and of a snapshot's manifest
METRICS_KEY = "metrics_format"  # key of config.yaml: the run's first format, if a later version rewrote the file


def format_fault(stored: object) -> str:
    """Returns why this version cannot read a config or snapshot, or "". stored: its format, None if it names none."""
    if stored is None or (type(stored) is int and stored < FIRST):
        found = "no format"
        if stored is not None:
            found = f"format {stored!r:.40}"
        return f"{found}: rlrun reads formats from {FIRST} on; commit {CONVERTS} is the last that converts earlier ones"
    if type(stored) is not int or stored > FORMAT:
        return f"format {stored!r:.40}: this version of rlrun reads formats up to {FORMAT}"
    return ""


def upgraded(values: dict[str, Any]) -> tuple[dict[str, object], list[str]]:
    """Returns a stored config in the current format, without the key `format`, and the added settings, like `env.x=1`.

    Raises ConfigError for a format that this version cannot read.
    """
    values = copy.deepcopy(values)
    stored = values.pop(KEY, None)
    values.pop(METRICS_KEY, None)
    fault = format_fault(stored)
    if fault:
        raise ConfigError(fault)
    filled: list[str] = []
    algo = _algo(values)
    for change in _since(stored):
        for old, new in _names(change.keys, algo):
            section, name = _section(values, old)
            if name in section:
                home, renamed = _section(values, new)
                home[renamed] = section.pop(name)
        if change.regroup is not None:
            change.regroup(values)
        for key, value, beside, part in change.added:
            section, name = _section(values, key)
            is_other = part is not None and section.get("name") != part
            if beside in section and name not in section and not is_other:
                section[name] = copy.deepcopy(value)
                filled.append(f"{key}={value}")
    return values, filled


def metrics_format(values: dict[str, Any]) -> int:
    """Returns the format whose metric keys a run writes. It is the format at the start of the run and never changes.

    values: a stored config that `upgraded` accepts. Raises ConfigError if the value is invalid.
    """
    stored = values[KEY]
    found = values.get(METRICS_KEY, stored)
    if type(found) is not int or not FIRST <= found <= stored:
        raise ConfigError(f"{METRICS_KEY}={found}: must be a whole number from {FIRST} to {stored}, the file's {KEY}")
    return found


def former_keys(key: str, algo: str) -> list[str]:
    """Returns the earlier names of a config key of the agent `algo`, latest first."""
    found = []
    for change in reversed(CHANGES):
        for old, new in _names(change.keys, algo):
            if new == key:
                found.append(old)
                key = old
    return found


def renamed_metrics(row: dict[str, object], stored: int, algo: str) -> dict[str, object]:
    """Returns a log row of the format `stored` with the keys of the current format."""
    for change in _since(stored):
        names = dict(_names(change.metrics, algo))
        row = {names.get(key, key): value for key, value in row.items()}
    return row


def former_metrics(row: dict[str, object], stored: int, algo: str) -> dict[str, object]:
    """Returns a current log row with the keys of the format `stored`: the inverse of `renamed_metrics`."""
    for change in reversed(_since(stored)):
        names = {new: old for old, new in _names(change.metrics, algo)}
        row = {names.get(key, key): value for key, value in row.items()}
    return row


def renamed_state(state: dict[str, object], stored: int, algo: str) -> dict[str, object]:
    """Returns a snapshot's state of the format `stored` with the paths of the current format."""
    for change in _since(stored):
        for old, new in _names(change.state, algo):
            state = _moved(state, old, new)
        if change.restate is not None:
            change.restate(state)
    return state


def _since(stored: int) -> tuple[FormatChange, ...]:
    """Returns the changes that came after the format `stored`."""
    return CHANGES[stored - FIRST :]


def _algo(values: dict[str, object]) -> str:
    """Returns `algo.name` of a stored config, or "" if it is missing. The config may have any content."""
    section, name = _section(values, "algo.name")
    return str(section.get(name, ""))


def _names(renamed: tuple[Renamed, ...], algo: str) -> Iterator[tuple[str, str]]:
    """Yields old and new name of each entry that applies to the agent `algo`."""
    for old, new, algos in renamed:
        if not algos or algo in algos:
            yield old, new


def _section(values: dict[str, object], key: str) -> tuple[dict[str, object], str]:
    """Returns the section of a dotted key and the key's last name. A missing section is returned as {}."""
    *sections, name = key.split(".")
    section: Any = values
    for part in sections:
        if not isinstance(section, dict):
            return {}, name
        section = section.get(part)
    if isinstance(section, dict):
        return section, name
    return {}, name


def _moved(state: dict[str, object], old: str, new: str, prefix: str = "") -> dict[str, object]:
    """Returns the state with one path renamed. The path may lead into the dict of an `_extra_state`."""
    moved = {}
    for name, value in state.items():
        path = f"{prefix}{name}"
        renamed = _renamed(path, old, new)
        if renamed is not None:
            name = renamed.removeprefix(prefix)
        elif isinstance(value, dict) and old.startswith(f"{path}."):
            value = _moved(value, old, new, f"{path}.")
        moved[name] = value
    return moved


def _renamed(path: str, old: str, new: str) -> str | None:
    """Returns the path with its prefix `old` replaced by `new`, or None if it does not begin with `old`.

    A name that `*` matches in `old` replaces the `*` in `new`.
    """
    names = path.split(".")
    pattern = old.split(".")
    if len(names) < len(pattern):
        return None
    matched = []
    for name, part in zip(names, pattern, strict=False):
        if part == "*":
            matched.append(name)
        elif part != name:
            return None
    for name in matched:
        new = new.replace("*", name, 1)
    return ".".join([new, *names[len(pattern) :]])
