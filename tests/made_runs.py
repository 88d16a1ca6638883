"""Writes the files of runs without training, for tests of code that reads runs."""

import json
from pathlib import Path
from typing import Any

import yaml

from rlrun.formats.history import FORMAT


def config(algo: str = "ppo", env: str = "CartPole-v1", seed: int = 0, total: int = 100, **algo_values: Any) -> Any:
    return {
        "format": FORMAT, "seed": seed, "name": f"{algo}-{env}", "run_dir": None,
        "trainer": {"total_steps": total, "eval_every": 10}, "env": {"id": env, "kwargs": {}},
        "algo": {"name": algo, **algo_values}, "logger": {},
    }  # fmt: skip


def make_run(
    path: Path,
    scores: dict[int, float],
    status: str | None = "done",
    typed: str | None = None,
    snapshot: bool = True,
    **given: Any,
) -> Path:
    """Writes a run with one evaluation per entry of `scores`, and a training row one step before each."""
    values = config(**given)
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    words = [f"algo={typed or values['algo']['name']}", f"env={values['env']['id']}", f"seed={values['seed']}"]
    (path / "overrides.yaml").write_text(yaml.safe_dump(words))
    (path / "meta.json").write_text(json.dumps({"host": "far", "pid": 1, "versions": {"torch": "2"}}))
    rows: list[dict[str, Any]] = []
    for step, score in scores.items():
        rows.append({"step": step - 1, "wall_s": (step - 1) / 10, "train/return_mean": score / 2, "sys/rss_mb": 300.0})
        rows.append({"step": step, "wall_s": step / 10, "eval/return_mean": score, "eval/return_std": 0.0})
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if status:
        last = max(scores, default=0)
        summary = {"status": status, "step": last, "total_steps": values["trainer"]["total_steps"], "wall_s": last / 10}
        (path / "summary.json").write_text(json.dumps(summary))
    if snapshot:
        (path / "snapshots").mkdir()
        (path / "snapshots" / "LATEST").write_text("step_000000100\n")
    return path
