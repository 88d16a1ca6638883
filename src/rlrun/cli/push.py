"""Implements `rlrun push`, which shares a run on the Hugging Face hub."""

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.errors import ConfigError, printable

USAGE = "rlrun push RUN repo=owner/name [private=true] [dry_run=true] [into=DIR]"
HELP = f"""\
usage: {USAGE}

Uploads a run to the Hugging Face hub: the weights of its best snapshot (else the latest), config, metrics, summary,
versions and hardware (meta.json), a model card with its evaluations and learning curve, its newest video, and a list of
all files with their SHA-256. Replay, TensorBoard files, host name and paths of this machine stay here, except for paths
that you typed in the command of the run.
RUN is a run's folder, or one of its snapshots: RUN/snapshots/<name>.

  repo=owner/name      the repository; it is created if there is none
  private=true         create it as a private one
  dry_run=true         upload nothing: write the folder that would be uploaded, and print its files
  into=DIR             with dry_run: write to this new folder instead of a temporary one

Uploading needs pip install 'rlrun[hub]' and an account (hf auth login); dry_run=true needs neither.

  rlrun push runs/sac-HalfCheetah/<run> repo=me/sac-cheetah dry_run=true"""

REPO = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+", re.ASCII)
RULES = {
    "repo": settings.ValueRule("owner/name", lambda value: isinstance(value, str) and bool(REPO.fullmatch(value))),
    "private": settings.FLAG,
    "dry_run": settings.FLAG,
    "into": settings.PATH,
}


def push(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES)
    run = settings.run_folder(places, USAGE)
    if "repo" not in given:
        raise ConfigError(f"no repository given; usage: {USAGE}")
    if "into" in given and not given.get("dry_run"):
        raise ConfigError(f"into={given['into']}: needs dry_run=true")
    with contextlib.chdir(Path(__file__).parent):  # matplotlib would read a matplotlibrc in the current folder
        import matplotlib  # noqa: F401
    if not given.get("dry_run"):
        from rlrun.hub.exchange import push as upload

        print(printable(upload(run, given["repo"], given.get("private"))))
        return 0
    target = Path(tempfile.gettempdir()) / f"rlrun-push-{os.urandom(4).hex()}"
    if "into" in given:
        target = Path(given["into"])
        check_absent(target)
    from rlrun.hub.folder import build
    from rlrun.hub.staging import staged

    with staged(target) as folder:
        listed = build(run, given["repo"], folder)
    for name, file in listed.items():
        print(printable(f"{file.size:>12,}  {name}"))
    print(printable(f"{target} would be uploaded to {given['repo']}"))
    return 0


def check_absent(target: Path) -> None:
    """Raises ConfigError if a file or folder of this name exists."""
    if os.path.lexists(target):
        raise ConfigError(f"into={target}: exists already")
