"""Sends rows to MLflow (https://mlflow.org): a tracking server, or a database on this machine."""

import logging
import os
import re
import time
from typing import Any

from rlrun import dotted
from rlrun.errors import ConfigError
from rlrun.settings import config, register
from rlrun.telemetry.experiment_tracker import RemoteLogger
from rlrun.telemetry.logger import Start
from rlrun.telemetry.media import Medium
from rlrun.telemetry.metrics import Row

MOST_PARAMS = 100  # parameters in one request
LONGEST_PARAM = 500  # characters of a value
NOT_IN_A_NAME = re.compile(r"[^\w\-. :/]", re.ASCII)  # characters that MLflow refuses in names
STATUSES = {"done": "FINISHED", "stopped": "KILLED", "paused": "KILLED", "failed": "FAILED"}


@register("logger", "mlflow")
class MLflow(RemoteLogger):
    """Sends rows to a run in an MLflow experiment."""

    @config
    class Config:
        tracking_uri: str | None
        experiment: str
        git_diff: bool

    def __init__(self, cfg: Any):
        super().__init__(cfg)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
        import mlflow

        self._mlflow = mlflow
        if cfg.tracking_uri is None and not mlflow.is_tracking_uri_set():
            # MLflow would use a database in the current folder, which may name any place for the files of a run
            raise ConfigError(
                "needs the address of a server or a database: write logger.mlflow.tracking_uri=sqlite:///mlflow.db, or "
                "set $MLFLOW_TRACKING_URI"
            )
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)

    def connect(self, start: Start, id: str | None) -> str:
        self._client = self._mlflow.MlflowClient(tracking_uri=self.cfg.tracking_uri)
        if id is not None:
            self._client.update_run(id, status="RUNNING")
            return id
        name = self.cfg.experiment
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            experiment_id = self._client.create_experiment(name)
        else:
            experiment_id = experiment.experiment_id
        run: str = self._client.create_run(experiment_id, run_name=start.run.resolve().name).info.run_id
        self._log_config(run, start)
        if self.cfg.git_diff:
            patch = start.git_diff()
            if patch:
                self._client.log_text(run, patch, "git.diff")
        return run

    def send(self, row: Row) -> None:
        now = int(time.time() * 1000)
        metrics = []
        for key, value in row.items():
            if key != "step":
                name = NOT_IN_A_NAME.sub("_", key)
                metrics.append(self._mlflow.entities.Metric(name, float(value), now, row["step"]))
        self._client.log_batch(self._id, metrics=metrics)

    def send_medium(self, medium: Medium) -> None:
        self._client.log_artifact(self._id, str(medium.path), "media")

    def close(self, summary: dict[str, Any]) -> None:
        self._client.log_dict(self._id, summary, "summary.json")
        self._client.set_terminated(self._id, STATUSES[summary.get("status", "failed")])

    def _log_config(self, run: str, start: Start) -> None:
        params = []
        for key, value in dotted.leaves(dict(start.config)):
            name = NOT_IN_A_NAME.sub("_", key)
            params.append(self._mlflow.entities.Param(name, dotted.show(value)[:LONGEST_PARAM]))
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(run, params=params[first : first + MOST_PARAMS])
        self._client.log_dict(run, dict(start.config), "config.yaml")
