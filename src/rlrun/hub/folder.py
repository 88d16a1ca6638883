"""Builds the folder of a shared run: its weights, config, metrics, model card, pictures, and a list of these files."""

import contextlib
import json
from pathlib import Path

from rlrun import files
from rlrun.config.stored import CONFIG, OVERRIDES
from rlrun.errors import ConfigError
from rlrun.hub import listing
from rlrun.hub.card import card
from rlrun.hub.listing import CARD, CURVES, VIDEO
from rlrun.report import png
from rlrun.report.compare import SCORE, compare
from rlrun.report.figures import draw
from rlrun.report.runs import StoredRun, read
from rlrun.run.trained import check_unchanged
from rlrun.run.weights import WEIGHTS_ONLY, locate
from rlrun.rundir import METRICS
from rlrun.snapshot.atomic import Written, replace_text, write_new
from rlrun.snapshot.loaded import Snapshot
from rlrun.snapshot.store import Store

COPIED = {  # files that are copied, and the maximum size of each in bytes
    CONFIG: files.CONFIG_BYTES,
    OVERRIDES: files.CONFIG_BYTES,
    METRICS: files.METRICS_BYTES,
    "summary.json": files.JSON_BYTES,
}
VIDEO_BYTES = 256 << 20
# Keys of meta.json that are shared. The host name and paths of the machine are not shared.
PUBLIC = ("versions", "git", "cpu", "device", "gpu", "threads", "engine", "precision", "products", "env_state")
WEIGHTS = ("agent.", "addons.")  # state that acting and evaluating need; replay and environments are left out


def build(path: Path, repo: str, folder: Path) -> dict[str, Written]:
    """Writes the shared files of a run to an empty folder, and returns the list of them.

    path: a run, whose best snapshot is used (else the latest), or one of its snapshots. It may be untrusted.
    Raises ConfigError and SnapshotError.
    """
    run_path, name = locate(path)
    run = one_run(run_path)
    store = Store(run_path)
    snapshot = store.load(name or store.preferred())
    check_unchanged(run_path, snapshot)
    for file, limit in COPIED.items():
        with contextlib.suppress(FileNotFoundError):
            copy(run_path / file, folder / file, limit)
    meta = {key: run.meta[key] for key in PUBLIC if key in run.meta}
    replace_text(folder / "meta.json", json.dumps(meta, indent=2) + "\n")
    write_weights(snapshot, folder)
    pictures = set()
    for picture in draw(compare([run]), SCORE):
        if f"{picture.name}.png" == CURVES:
            png.save(picture, [run.algo], folder)
            pictures.add(CURVES)
    video = newest_video(run_path)
    if video is not None:
        copy(video, folder / VIDEO, VIDEO_BYTES)
        pictures.add(VIDEO)
    replace_text(folder / CARD, card(run, repo, snapshot.step, pictures))
    return listing.write(folder)


def one_run(path: Path) -> StoredRun:
    """Returns a run as reports read it. Raises ConfigError if it cannot be read."""
    runs, skipped = read([path])
    if len(runs) != 1 or runs[0].path != path:
        reason = "holds several runs; name one of them"
        for folder in skipped:
            if folder.path == path:
                reason = folder.reason
        raise ConfigError(f"{path}: {reason}")
    return runs[0]


def write_weights(snapshot: Snapshot, folder: Path) -> None:
    """Writes a snapshot that holds only what acting and evaluating need."""
    state = {key: value for key, value in snapshot.state.items() if key.startswith(WEIGHTS)}
    store = Store(folder, keep=1)
    store.save(snapshot.name, state, {}, snapshot.header | {WEIGHTS_ONLY: True}, snapshot.clocks)
    store.close()


def newest_video(run: Path) -> Path | None:
    """Returns the latest video of a run, or None if it has no video."""
    videos = list((run / "videos").glob("*.mp4"))
    return max(videos, key=lambda video: video.stat().st_mtime, default=None)


def copy(source: Path, target: Path, limit: int) -> Written:
    """Copies a regular file of at most `limit` bytes to a new name. Raises ConfigError, FileNotFoundError."""
    with open(files.open_descriptor(source, limit=limit), "rb") as file:
        return write_new(target, iter(lambda: file.read(1 << 20), b""))
