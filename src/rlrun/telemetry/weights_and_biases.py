"""Sends rows to Weights & Biases (https://docs.wandb.ai), or writes the files that `wandb sync` sends later."""

import os
import secrets
from pathlib import Path
from typing import Any, Literal

from rlrun.errors import ConfigError
from rlrun.media import Histogram, Video
from rlrun.settings import config, register
from rlrun.snapshot.atomic import replace_text
from rlrun.telemetry.experiment_tracker import RemoteLogger
from rlrun.telemetry.logger import Start
from rlrun.telemetry.media import Medium
from rlrun.telemetry.metrics import Row

INIT_S = 20.0  # seconds to reach the server
FINISH_S = 20.0  # seconds to send the remaining rows at the end; those that are not sent stay on disk for `wandb sync`
QUIET: dict[str, object] = {
    "silent": True,
    "console": "off",  # stdout is not redirected
    "disable_git": True,  # would run git with the configuration of a repository that may be untrusted
    "disable_code": True,
    "x_disable_stats": True,  # rows already hold the figures of the machine, time/* and sys/*
}


@register("logger", "wandb")
class WandB(RemoteLogger):
    """Sends rows to a run in a W&B project. W&B keeps its files in the folder `wandb`, or in $WANDB_DIR."""

    @config
    class Config:
        project: str
        entity: str | None
        group: str | None
        tags: list[str]
        mode: Literal["online", "offline"] | None
        git_diff: bool

    def __init__(self, cfg: Any):
        super().__init__(cfg)
        self._media: dict[str, object] = {}
        _check_current_folder()
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb is imported
        import wandb

        self._wandb = wandb
        self._is_alone = wandb.run is None  # otherwise the program that calls rlrun has a run, which must go on

    def connect(self, start: Start, id: str | None) -> str:
        wandb, cfg = self._wandb, self.cfg
        mode = cfg.mode or os.environ.get("WANDB_MODE", "online")
        if self._is_alone:
            wandb.setup(settings=wandb.Settings(silent=True))
        if mode == "online" and not wandb.login(prompt=False):  # wandb.init would ask for a key on the terminal
            raise ConfigError("no API key; run `wandb login`, or write logger.wandb.mode=offline")
        self._run = wandb.init(
            project=cfg.project, entity=cfg.entity, group=cfg.group or start.title, tags=cfg.tags, mode=mode,
            id=id or secrets.token_hex(4), name=start.run.resolve().name, resume="allow", config=dict(start.config),
            reinit="create_new",
            settings=wandb.Settings(**QUIET, init_timeout=INIT_S, finish_timeout=FINISH_S, finish_timeout_raises=True),
        )  # fmt: skip
        difference = start.git_diff() if cfg.git_diff else ""
        if difference:  # written here because W&B's own use of git is off
            replace_text(Path(self._run.dir) / "diff.patch", difference)
        if mode == "online":
            start.say(f"logger.wandb: {self._run.url}")
        return str(self._run.id)

    def send(self, row: Row) -> None:
        values = {key: value for key, value in row.items() if key != "step"}
        self._run.log(values | self._media, step=row["step"], commit=True)
        self._media.clear()

    def send_medium(self, medium: Medium) -> None:
        """Keeps a medium for the next row, because W&B ignores values for a step that it already has."""
        if medium.kind is Histogram:
            value = self._wandb.Histogram(np_histogram=medium.histogram())
        elif medium.kind is Video:
            value = self._wandb.Video(str(medium.path), format="gif")
        else:
            value = self._wandb.Image(medium.picture())
        self._media[medium.name] = value

    def close(self, summary: dict[str, object]) -> None:
        if self._media:
            self._run.log(self._media)
        self._run.summary.update({key: value for key, value in summary.items() if value is not None})
        failed = summary.get("status", "failed") == "failed"  # a run that crashed may have no summary
        self._run.finish(exit_code=int(failed))
        self.abandon()

    def abandon(self) -> None:
        """Ends the process of wandb, which would otherwise be waited for when Python exits."""
        if self._is_alone:
            self._wandb.teardown()


def _check_current_folder() -> None:
    """Raises ConfigError if W&B would read settings from the current folder.

    They may name a server, which is sent the API key. The current folder is not trusted.
    """
    for path in ("wandb/settings", ".wandb/settings", "config-defaults.yaml"):
        if os.path.lexists(path):
            raise ConfigError(
                f"W&B would read {path} in the current folder, which may name another server; delete it, and set what "
                "you need with logger.wandb.mode, logger.wandb.entity or $WANDB_BASE_URL"
            )
