"""The callback `profile`, which measures where the time of a run goes."""

import cProfile
import io
import marshal
import pstats

from rlrun import files
from rlrun.core.callback import Callback
from rlrun.settings import register
from rlrun.snapshot.atomic import replace_file

LINES = 60  # functions in each table of the text


@register("callback", "profile")
class CpuProfile(Callback):
    """Writes a CPU profile of the training process to RUN/profile when the run ends, pauses, is stopped or fails.

    Its files are named by the step at which the process began. step_000000000.txt lists the functions that take most
    time, without and with those that they call. step_000000000.prof holds all functions and their callers, for pstats,
    snakeviz and other programs that read profiles of Python. Only the main thread is measured, no workers. Measuring
    takes time itself, mostly that of short functions.
    """

    def on_start(self) -> None:
        self.step = self.run.loop.steps
        self.profile = cProfile.Profile()
        self.profile.enable()

    def on_end(self, summary: object) -> None:
        self.profile.create_stats()  # ends the measurement
        folder = files.make_folder(self.run.path / "profile")
        name = f"step_{self.step:09d}"
        replace_file(folder / f"{name}.prof", [marshal.dumps(self.profile.stats)])  # type: ignore[attr-defined]
        replace_file(folder / f"{name}.txt", [table(self.profile).encode()])


def table(profile: cProfile.Profile) -> str:
    """Returns the functions that take most time: first without those that they call, then with them."""
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text).strip_dirs()
    for order in ("tottime", "cumulative"):
        stats.sort_stats(order).print_stats(LINES)
    return text.getvalue()
