"""Shows a sweep while it runs: a live table on a terminal, and one line for each decision and result elsewhere."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from rlrun.dotted import show
from rlrun.errors import printable
from rlrun.sweep.journal import Event
from rlrun.sweep.trials import RungJob, Trials
from rlrun.sweep.view import SweepView
from rlrun.telemetry.formatting import number
from rlrun.telemetry.stdout import replace_unknown_letters, stdout_may_close, terminal_of_stdout

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.panel import Panel

    from rlrun.telemetry.panel import Glyphs


class SweepDisplay(Protocol):
    """One form of the console of a sweep."""

    def say(self, event: Event, trials: Trials) -> None:
        """Shows an event, which has been applied to `trials`."""

    def progress(self, trials: Trials, running: Collection[RungJob]) -> None:
        """Is called often, with the jobs that train now."""

    def close(self) -> None:
        """Is called when the driver has ended, for whatever reason."""


class SweepLines:
    """Prints lines without control codes, for log files and pipes."""

    def say(self, event: Event, trials: Trials) -> None:
        for line in lines(event, trials):
            with stdout_may_close():
                print(line, flush=True)

    def progress(self, trials: Trials, running: Collection[RungJob]) -> None:
        """Prints nothing."""

    def close(self) -> None:
        """Prints nothing."""


class SweepPanel:
    """A panel at the bottom of the terminal. Lines scroll above it."""

    def __init__(self, view: SweepView, terminal: "RichConsole"):
        from rlrun.telemetry.screen import Screen

        self._view = view
        self._screen = Screen(terminal)
        self._running: Collection[RungJob] = ()

    def say(self, event: Event, trials: Trials) -> None:
        text = "\n".join(lines(event, trials))
        if text:
            self._screen.message(text)
        self._view.see(trials)

    def progress(self, trials: Trials, running: Collection[RungJob]) -> None:
        if not self._screen.is_due:
            return
        if self._view.trials is not trials:  # the first call
            self._view.see(trials)
        self._running = running
        self._screen.draw(self._panel)

    def close(self) -> None:
        self._running = []
        self._screen.draw(self._panel)
        self._screen.stop()

    def _panel(self, width: int, glyphs: "Glyphs", colours: bool) -> "Panel":
        from rlrun.sweep.panel import panel

        self._view.move(self._running)  # called here, so that its duration counts as time of drawing
        return panel(self._view, width, self._screen.height, glyphs)


def open_display(view: SweepView) -> SweepDisplay:
    """Returns the form of console that fits stdout."""
    replace_unknown_letters()
    terminal = terminal_of_stdout()
    if terminal is None:
        return SweepLines()
    return SweepPanel(view, terminal)


def lines(event: Event, trials: Trials) -> Iterator[str]:
    """Yields what is printed for an event."""
    match event["event"]:
        case "asked":
            first = len(trials) - len(event["values"])
            for index, values in enumerate(event["values"]):
                yield printable(f"trial {first + index}: {_values(values)}")
        case "promoted":
            yield f"train on: {_names(event)}"
        case "exploited":
            for one in event["exploits"]:
                yield printable(f"trial {one['trial']} goes on from trial {one['source']}: {_values(one['values'])}")
        case "another_seed":
            yield f"another seed: {_names(event)}"
        case "ruled_out":
            yield f"significantly worse than the best: {_names(event)}"
        case "measured_again":
            yield f"measured again with {event['seeds']} fresh seeds: {_names(event)}"
        case "scored":
            yield printable(f"{_run_of(event)}: {number(event['score'])} at step {event['step']:,}")
        case "failed":
            yield printable(f"{_run_of(event)}: failed: {event['why']}")


def _values(values: Mapping[str, object]) -> str:
    return " ".join(f"{key}={show(value)}" for key, value in values.items())


def _names(event: Event) -> str:
    return ", ".join(f"trial {one}" for one in event["trials"])


def _run_of(event: Event) -> str:
    return f"trial {event['trial']}, {event['env']}, seed {event['seed']}"
