"""Uploads runs to the Hugging Face hub and downloads them; a downloaded run is verified and never executed."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlrun import files
from rlrun.errors import ConfigError, RlrunError, printable, reason
from rlrun.hub import listing
from rlrun.hub.folder import build, copy
from rlrun.hub.staging import staged, writing
from rlrun.imports import check_extra
from rlrun.run.trained import check_unchanged
from rlrun.rundir import LISTING
from rlrun.snapshot import atomic
from rlrun.snapshot.atomic import Written
from rlrun.snapshot.store import Store


def push(run: Path, repo: str, private: bool | None = None) -> str:
    """Uploads a run to the hub as one commit, and returns the address of the repository, which is created if missing.

    private: whether a new repository is private; None: the default of the account. Other files in the repository
    are kept. Raises ConfigError, SnapshotError, and RlrunError if the hub rejects a request.
    """
    check_extra("hub", "rlrun push")
    with tempfile.TemporaryDirectory(prefix="rlrun-push-") as home:
        folder = Path(home)
        build(run, repo, folder)
        from huggingface_hub import HfApi

        with answers(repo):
            api = HfApi()
            address = api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"Upload {run.resolve().name}")
    return str(address)


def pull(repo: str, target: Path) -> Path:
    """Downloads a run from the hub to a new folder, which `rlrun eval` and `rlrun.load` accept.

    Every file must have the size and hash that the list in the repository states, and the snapshot its own hashes.
    Nothing is executed, and the folder appears only when it is complete. Raises ConfigError, SnapshotError, and
    RlrunError if the hub rejects a request.
    """
    check_extra("hub", "rlrun pull")
    with tempfile.TemporaryDirectory(prefix="rlrun-pull-") as home, staged(target) as folder:
        received = Path(home)
        for name, written in download(repo, received).items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if copy(received / name, place, written.size) != written:
                raise ConfigError(f"{repo}: {name}: is not the file that {LISTING} lists (its SHA-256 differs)")
        copy(received / LISTING, folder / LISTING, files.JSON_BYTES)
        store = Store(folder)
        names = store.names()
        if len(names) != 1:
            raise ConfigError(f"{repo}: has {len(names)} snapshots; a shared run has one")
        with named(folder, repo):
            check_unchanged(folder, store.load(names[0]))
    return target


def download(repo: str, folder: Path) -> dict[str, Written]:
    """Downloads the files of a run that a repository lists, all of one commit, and returns the list."""
    from huggingface_hub import HfApi

    with answers(repo):
        api = HfApi()
        info: Any = api.repo_info(repo, files_metadata=True)
        sizes = {file.rfilename: file.size for file in info.siblings}
    if not all(isinstance(size, int) for size in sizes.values()):
        raise RlrunError(f"{repo}: the hub failed (it states no size of a file)")
    if LISTING not in sizes:
        raise ConfigError(f"{repo}: is not a run of rlrun (it has no {LISTING})")
    if sizes[LISTING] > files.JSON_BYTES:
        raise ConfigError(f"{repo}: {LISTING}: is too large")

    def fetch(name: str) -> None:
        with answers(repo):
            api.hf_hub_download(repo, name, revision=info.sha, local_dir=folder)
        files.check_folder(folder)

    fetch(LISTING)
    listed = listing.read(folder / LISTING)
    for name, written in listed.items():  # before large files are downloaded
        if sizes.get(name) != written.size:
            raise ConfigError(f"{repo}: {name}: is not the file that {LISTING} lists (its size differs)")
    with writing(folder):
        atomic.check_space(folder, 2 * sum(written.size for written in listed.values()))
    for name in listed:
        fetch(name)
    return listed


@contextlib.contextmanager
def named(folder: Path, repo: str) -> Iterator[None]:
    """As a context manager, names the repository in errors about a temporary folder."""
    try:
        yield
    except RlrunError as error:
        raise type(error)(*(fault.replace(printable(folder), repo) for fault in error.faults)) from None


@contextlib.contextmanager
def answers(repo: str) -> Iterator[None]:
    """As a context manager, turns exceptions of the hub's library into an RlrunError of one line."""
    try:
        yield
    except Exception as error:
        raise RlrunError(f"{repo}: the hub failed ({reason(error)[:300]})") from None
