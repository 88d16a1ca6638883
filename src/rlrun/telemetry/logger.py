"""The interface of a logger: where the log rows of a run go besides metrics.jsonl."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rlrun.telemetry.media import Medium
from rlrun.telemetry.metrics import MetricKeys, Row


@dataclass(frozen=True, kw_only=True)
class Start:
    """The information that a logger receives when the run starts or resumes."""

    run: Path  # folder of the run
    title: str
    total_steps: int
    total_updates: int | None = None  # updates after which the run ends, if that is before total_steps
    step: int  # step from which the run resumes; 0 for a new run
    keys: MetricKeys  # of the run's files, which differ from the current keys if an earlier version began the run
    rows: Sequence[Row] = ()  # the rows of metrics.jsonl up to `step`
    media: Sequence[Medium] = ()  # the files of RUN/media up to `step`
    config: Mapping[str, object] = field(default_factory=dict)  # the content of config.yaml
    git_diff: Callable[[], str]  # returns uncommitted changes in the current folder, as a patch
    say: Callable[[str], None]  # shows a line of the logger to the user


class Logger:
    """Base class of loggers. A logger of your own overrides what it needs:

        @register("logger", "mine")
        class Mine(Logger):
            @config
            class Config:
                address: str

            def open(self, start: Start) -> None: ...
            def row(self, row: Row) -> None: ...
            def close(self, summary: dict[str, object]) -> None: ...

    Its YAML file conf/logger/mine.yaml holds the values under its name, `mine: {address: ...}`, and it is switched on
    by `logger=[console,mine] plugins=[my_package]`.

    `__init__` imports optional packages; the run is refused if it raises. If any other method raises, the logger is
    turned off, the user sees one line about it, and the run goes on.

    local: whether the logger uses only the run's folder and the terminal, and never waits for another machine or
        program. Any other logger is called in a thread of its own, so that it cannot hold up the run. When a run is
        resumed, such a logger is off unless the user names it again, because the config of the run may be untrusted.
    display: whether the logger shows messages and progress to the user. A display is local.
    """

    Config: ClassVar[type]
    local: ClassVar[bool] = False
    display: ClassVar[bool] = False

    def __init__(self, cfg: Any):
        self.cfg = cfg

    def trust(self, run: Path) -> None:
        """Called before `open`, if the user has typed the whole config of a resumed run again.

        What the logger has stored in the run's folder is then the user's own.
        """

    def open(self, start: Start) -> None:
        """Called once, before the first row. `start.rows` are the rows before a resume."""

    def row(self, row: Row) -> None:
        """Called for every new row, which is then already in metrics.jsonl. The logger must not change it."""

    def media(self, medium: Medium) -> None:
        """Called for every new image, video and histogram, which is then already in RUN/media."""

    def message(self, text: str) -> None:
        """Shows a line to the user. Called if `display` is true."""

    def progress(self, step: int) -> None:
        """Shows that the run is at `step`. Called after every tick if `display` is true, so it must be fast."""

    def close(self, summary: dict[str, object]) -> None:
        """Called at the end, with the content of summary.json, or {} after a crash."""

    def abandon(self) -> None:
        """Called once after another method has raised, as the last call: closes what is open. May raise anything."""
