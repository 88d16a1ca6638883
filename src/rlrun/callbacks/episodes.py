"""The callback `episodes`, which writes the history of all training episodes."""

import time

from rlrun.callbacks.history_file import HistoryFile
from rlrun.errors import ConfigError
from rlrun.settings import register
from rlrun.types import Return

COLUMNS = ("episode", "step", "wall_s", "length", "terminated", "success_fraction")


@register("callback", "episodes")
class EpisodesFile(HistoryFile):
    """Writes RUN/episodes.csv, with one line for each training episode.

    Its columns are the number of the episode, the step at which it ended, the seconds of training until then, its
    length, whether it terminated (else it was truncated), the fraction of its steps with success (empty until an
    environment reports it), and its return. For reward vectors, these are the components of the return: return_0,
    return_1, ... The last columns are the entries of `env.log_info` at its last step: info_<name>.

    Lines are written at every log row and snapshot. A resumed run continues the file after the episodes of its
    snapshot.
    """

    file = "episodes.csv"

    def columns(self) -> list[str]:
        spec = self.run.loop.env.spec
        returns = ["return"]
        if spec.reward_dim > 1:
            returns = [f"return_{index}" for index in range(spec.reward_dim)]
        return [*COLUMNS, *returns, *(f"info_{name}" for name in spec.log_info)]

    def continue_after(self, lines: list[bytes]) -> None:
        self.started = time.monotonic()
        if lines:
            self.started -= self.seconds(lines[-1])

    def seconds(self, line: bytes) -> float:
        """Returns the seconds of training at the end of an episode, from its line in the file."""
        try:
            return float(line.split(b",")[COLUMNS.index("wall_s")])
        except (ValueError, IndexError):
            raise ConfigError(
                f"{self.path}: episode {self.count} cannot be read; without this file, a new one is begun"
            ) from None

    def on_episode(self, episode_return: Return, length: int) -> None:
        components = [episode_return] if isinstance(episode_return, float) else episode_return
        wall_s = round(time.monotonic() - self.started, 3)
        end = [self.episode.terminated, self.episode.success_fraction]
        loop = self.run.loop
        infos = self.episode.infos or {}
        last = [infos.get(name) for name in loop.env.spec.log_info]
        self.add([self.count + 1, loop.steps, wall_s, length, *end, *components, *last])
