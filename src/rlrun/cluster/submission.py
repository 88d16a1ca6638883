"""Where the user wants runs to be started: `submit=<name>`, with settings from conf/submit/ and the command line.

These settings are not part of the config of a run, because they change no result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlrun.cluster import Cluster, Main
from rlrun.cluster.local import LocalConfig
from rlrun.cluster.ray import RayConfig
from rlrun.cluster.slurm import SlurmConfig
from rlrun.config import parts, sources
from rlrun.config.resumable import setting
from rlrun.errors import ConfigError
from rlrun.settings import parse

GROUP = "submit"  # folder of conf/
NONE = "none"
Settings = LocalConfig | SlurmConfig | RayConfig
CONFIGS: dict[str, Any] = {"local": LocalConfig, "slurm": SlurmConfig, "ray": RayConfig}


@dataclass(frozen=True)
class Submission:
    """The settings of `submit=<name>`."""

    name: str
    words: list[str]  # as typed
    values: dict[str, Any]  # all settings
    cfg: Settings

    def cluster(self, main: Main) -> Cluster:
        """Returns the cluster. Raises ConfigError if it cannot be used here."""
        return self.cfg.cluster(main)

    @property
    def driver(self) -> SlurmConfig | None:
        """Settings of the job that is the driver of a sweep, or None if the driver is this process."""
        if isinstance(self.cfg, SlurmConfig) and self.cfg.driver == "job":
            return replace(self.cfg, cpus=1, gpus=0, memory=None)  # a driver waits most of its time
        return None


def chosen(words: Sequence[str], refused: Mapping[str, str]) -> tuple[Submission | None, list[str]]:
    """Returns the submission that the words choose, or None if they choose none, and the other words.

    refused: settings that the command refuses, with the reason. Raises ConfigError with a line for each fault.
    """
    own: list[str] = []
    others: list[str] = []
    for word in words:
        key, _, _ = word.partition("=")
        if key == GROUP or key.startswith(f"{GROUP}."):
            own.append(word)
        else:
            others.append(word)
    values = dict(map(setting, own))
    name = values.pop(GROUP, NONE)
    names = "|".join(name for name in sources.options(GROUP, [sources.CONF]) if name != NONE)
    if name is None:
        raise ConfigError(f"submit=: needs a name: submit={names}")
    if name == NONE:
        if values:
            raise ConfigError(f"{next(iter(values))}: choose first where runs are started: submit={names}")
        return None, others
    tree = {GROUP: parts.settings(GROUP, GROUP, name)}
    faults = [f"{key}: {refused[key]}" for key in values if key in refused]
    accepted = {key: value for key, value in values.items() if key not in refused}
    faults += parts.apply(accepted, tree)
    if faults:
        raise ConfigError(*faults)
    cfg: Settings = parse(CONFIGS[name], tree[GROUP], GROUP)
    return Submission(name, own, tree[GROUP], cfg), others
