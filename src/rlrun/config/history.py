"""Changes between the formats of runs: renamed config keys, metrics and state, and keys that a later format added.

`config.yaml` begins with its format, and every snapshot records it. A key that a stored config lacks gets a value only
if a later format added it; any other missing key is an error, because the file may be truncated.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from rlrun.config import format_3, format_4, format_5, format_6
from rlrun.config.renamed import Renamed
from rlrun.errors import ConfigError


class Added(NamedTuple):
    """A config key that a format added."""

    key: str  # dotted path
    value: Any  # value with which a run behaves as it did before the key existed
    beside: str  # a key of the same section; the new key is only added to sections that have this key
    part: str | None = None  # the new key is only added to the section of the part with this name


@dataclass(frozen=True)
class Change:
    """The changes from one format to the next."""

    keys: tuple[Renamed, ...] = ()  # keys of config.yaml
    metrics: tuple[Renamed, ...] = ()  # keys of a log row, like loss/critic
    state: tuple[Renamed, ...] = ()  # paths in a snapshot's state, or prefixes of paths; `*` matches one name
    added: tuple[Added, ...] = ()
    remeasured: tuple[str, ...] = ()  # patterns of metrics that earlier runs lack or define in another way
    regroup: Callable[[dict[str, Any]], None] | None = None  # changes the whole config in place, after the renames
    restate: Callable[[dict[str, Any]], None] | None = None  # changes the whole state in place, after the renames


NEVER = {"metric": "eval/return_mean", "at_least": None, "at_most": None, "times": 1, "plateau": None, "hours": None}

CHANGES: tuple[Change, ...] = (
    Change(  # from format 1 to 2
        added=(
            Added("env.selftest", "auto", beside="id"),
            Added("algo.loop.data_env", "any", beside="data"),
            Added("algo.buffer.data_env", "any", beside="given"),
        )
    ),
    Change(  # from format 2 to 3
        keys=format_3.KEYS,
        metrics=format_3.METRICS,
        state=format_3.STATE,
        regroup=format_3.regroup,
        restate=format_3.restate,
        added=(
            Added("network.norm", {"name": "none"}, beside="hidden"),
            Added("network.actor", {}, beside="hidden"),
            Added("network.critic", {}, beside="hidden"),
        ),
    ),
    Change(  # from format 3 to 4
        regroup=format_4.regroup,
        added=(
            Added("callbacks", [], beside="seed"),
            Added("env.log_info", [], beside="id"),
            Added("env.schedule", {}, beside="id"),
        ),
    ),
    Change(  # from format 4 to 5
        metrics=format_5.METRICS,
        state=format_5.STATE,
        regroup=format_5.regroup,
        restate=format_5.restate,
        added=(
            Added("env.wrappers.atari.fire_reset", False, beside="noop_max"),
            Added("env.wrappers.atari.grayscale", True, beside="noop_max"),
            Added("algo.noisy_layers", None, beside="noisy_std"),
            Added("algo.critic.members", 1, beside="huber_delta"),
            Added("algo.critic.members", 1, beside="num_atoms"),
            Added("algo.critic.target_members", None, beside="members"),
            Added("algo.critic.minimum_of", "quantiles", beside="num_quantiles"),
            Added("network.layers", 1, beside="sequence_length"),
            Added("algo.head", {"name": "auto"}, beside="critic_update"),
            Added("algo.particle.head", {"name": "auto"}, beside="critic_update"),
            Added("algo.dropout", 0.0, beside="learning_rate_decay"),
            Added("algo.act_with_dropout", False, beside="learning_rate_decay"),
            Added("algo.noise_batch_size", 64, beside="noise_change"),
            Added("algo.loop.new_tasks", False, beside="episodes", part="meta"),
            Added("algo.loop.test_tasks", None, beside="episodes", part="meta"),
            Added("algo.loop.gamma", 1.0, beside="episodes", part="evolution"),
            Added("algo.buffer.dtypes", dict.fromkeys(("obs", "action", "reward"), "float32"), beside="given"),
            Added("algo.loop.start_update", None, beside="warmup_policy"),
            Added("algo.loop.refill_policy", "agent", beside="warmup_policy"),
            Added("trainer.snapshot_replay", True, beside="snapshot_keep"),
            Added("trainer.stop_at", None, beside="snapshot_keep"),
            Added("trainer.stop_when", NEVER, beside="snapshot_keep"),
            Added("algo.start_plan", 0, beside="planning_steps"),
            Added("algo.real_updates", True, beside="planning_steps"),
            Added("init_exploration", "keep", beside="init_from"),
            Added("algo.buffer.compression", None, beside="standardize_reward"),
            Added("algo.num_minibatches", None, beside="minibatch_size"),
            Added("algo.particle.num_minibatches", None, beside="minibatch_size"),
            Added("algo.entropy.max_alpha", None, beside="initial_alpha", part="auto"),
            Added("algo.particle.entropy.max_alpha", None, beside="initial_alpha", part="auto"),
            Added("algo.target_every", None, beside="target_noise"),
            Added("algo.action_gradient", {"name": "exact"}, beside="target_noise"),
            *(
                Added("algo.entropy_reward", {"name": "bootstrap", "normalize": False}, beside="entropy", part=algo)
                for algo in ("sac", "discrete_sac", "sac_cloning")
            ),
            *(
                Added("algo.action_gradient", {"name": "exact"}, beside="entropy", part=algo)
                for algo in ("sac", "discrete_sac", "sac_cloning")
            ),
            Added("algo.noise.random_action", 0.0, beside="name"),
            Added("algo.particle.noise.random_action", 0.0, beside="name"),
        ),
        remeasured=format_5.REMEASURED,
    ),
    Change(restate=format_6.restate),  # from format 5 to 6
)
FORMAT = len(CHANGES) + 1
KEY = "format"  # key of config.yaml; missing in format 1
METRICS_KEY = "metrics_format"  # key of config.yaml: the run's first format, if a later version rewrote the file


def upgraded(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns a stored config in the current format, without the key `format`, and the added settings, like `env.x=1`.

    Raises ConfigError for an unknown format.
    """
    values = copy.deepcopy(values)
    stored = values.pop(KEY, 1)
    values.pop(METRICS_KEY, None)
    if type(stored) is not int or not 1 <= stored <= FORMAT:
        raise ConfigError(f"{KEY}={stored}: this version of rlrun reads formats 1 to {FORMAT}")
    filled: list[str] = []
    algo = _algo(values)
    for change in CHANGES[stored - 1 :]:
        for old, new in _names(change.keys, algo):
            section, name = _place(values, old)
            if name in section:
                home, renamed = _place(values, new)
                home[renamed] = section.pop(name)
        if change.regroup is not None:
            change.regroup(values)
        for key, value, beside, part in change.added:
            section, name = _place(values, key)
            is_other = part is not None and section.get("name") != part
            if beside in section and name not in section and not is_other:
                section[name] = copy.deepcopy(value)
                filled.append(f"{key}={value}")
    return values, filled


def metrics_format(values: dict[str, Any]) -> int:
    """Returns the format whose metric keys a run writes. It is the format at the start of the run and never changes.

    values: a stored config before `upgraded`. Raises ConfigError if the value is invalid.
    """
    stored = values.get(KEY, 1)
    found = values.get(METRICS_KEY, stored)
    if type(found) is not int or not 1 <= found <= stored:
        raise ConfigError(f"{METRICS_KEY}={found}: must be a whole number from 1 to {stored}, the file's {KEY}")
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


def renamed_metrics(row: dict[str, Any], stored: int, algo: str) -> dict[str, Any]:
    """Returns a log row of the format `stored` with the keys of the current format."""
    for change in CHANGES[stored - 1 :]:
        names = dict(_names(change.metrics, algo))
        row = {names.get(key, key): value for key, value in row.items()}
    return row


def former_metrics(row: dict[str, Any], stored: int, algo: str) -> dict[str, Any]:
    """Returns a current log row with the keys of the format `stored`: the inverse of `renamed_metrics`."""
    for change in reversed(CHANGES[stored - 1 :]):
        names = {new: old for old, new in _names(change.metrics, algo)}
        row = {names.get(key, key): value for key, value in row.items()}
    return row


def comparable(row: dict[str, Any], stored: int) -> dict[str, Any]:
    """Returns the metrics of a current log row that runs of the format `stored` have too, with the same meaning."""
    patterns = [pattern for change in CHANGES[stored - 1 :] for pattern in change.remeasured]
    return {key: value for key, value in row.items() if not any(fnmatchcase(key, pattern) for pattern in patterns)}


def renamed_state(state: dict[str, Any], stored: int, algo: str) -> dict[str, Any]:
    """Returns a snapshot's state of the format `stored` with the paths of the current format."""
    for change in CHANGES[stored - 1 :]:
        for old, new in _names(change.state, algo):
            state = _moved(state, old, new)
        if change.restate is not None:
            change.restate(state)
    return state


def _algo(values: dict[str, Any]) -> str:
    """Returns `algo.name` of a stored config, or "" if it is missing. The config may have any content."""
    section, name = _place(values, "algo.name")
    return str(section.get(name, ""))


def _names(renamed: tuple[Renamed, ...], algo: str) -> Iterator[tuple[str, str]]:
    """Yields old and new name of each entry that applies to the agent `algo`."""
    for old, new, algos in renamed:
        if not algos or algo in algos:
            yield old, new


def _place(values: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """Returns the section of a dotted key and the key's last name. A missing section is returned as {}."""
    *sections, name = key.split(".")
    section: Any = values
    for part in sections:
        section = section.get(part) if isinstance(section, dict) else None
    if isinstance(section, dict):
        return section, name
    return {}, name


def _moved(state: dict[str, Any], old: str, new: str, prefix: str = "") -> dict[str, Any]:
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
