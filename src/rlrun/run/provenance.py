"""The provenance of a run: versions, host, process, and the state of the project's git repository."""

import os
import platform
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rlrun import __version__, files, imports
from rlrun.errors import ConfigError

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "ale-py", "hydra-core", "pydantic", "safetensors")

DIFF_BYTES = 1 << 20  # larger patches are not passed to loggers
INDEX_BYTES = 64 << 20  # enough for a repository with half a million files
GIT_SECONDS = 10  # time limit of one command; if a large repository is not cached yet, commands take seconds
NOTHING: Mapping[str, str] = {}
# prints six lines: the commit, the folder of the files, the directory of git, the one that it shares with other
# worktrees, and the paths of the index and of the objects
LOCATE = ("rev-parse", "HEAD", "--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--git-path", "index",
          "--git-path", "objects")  # fmt: skip


def versions() -> dict[str, str]:
    """Returns the versions of Python, rlrun and the packages that can change bits of a result."""
    found = {"python": platform.python_version(), "rlrun": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def provenance() -> dict[str, object]:
    """Returns package versions, host, process id and git state, for meta.json."""
    return {
        "versions": versions(), "host": socket.gethostname(), "pid": os.getpid(), "git": git_state(Path.cwd()),
        "code": imports.digests(),
    }  # fmt: skip


def git_state(folder: Path) -> str | None:
    """Returns the commit of the repository around `folder`, as `<commit>`, or `<commit>-dirty` if tracked files differ.

    Returns None if there is no repository, if its files are in another folder than that of `.git`, or if git fails or
    takes too long.
    """
    found = _changes(folder, "--name-only")
    if found is None:
        return None
    commit, changes = found
    if changes:
        return f"{commit}-dirty"
    return commit


def _changes(folder: Path, *options: str) -> tuple[str, str] | None:
    """Returns the current commit, and the output of `git diff-index` for the tracked files that differ from it.

    options: of `git diff-index`. Returns None if there is no repository, if its files are in another folder than that
    of `.git`, if it does not belong to this folder, or if git fails or takes too long.

    The repository may be untrusted, and its configuration can name programs that git runs, such as filters and hooks.
    Git therefore runs in a new, empty repository with the objects and a copy of the index of the original. Only files
    below the folder that holds `.git` are compared.
    """
    root = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    if root is None:
        return None
    try:
        commit, top, git_dir, common, index, objects = _git(folder, *LOCATE).splitlines()
        if not os.path.samefile(top, root):  # `core.worktree` may name any other folder, whose files would be read
            return None
        if not _belongs(root, Path(git_dir).resolve(), (folder / common).resolve()):
            return None
        with tempfile.TemporaryDirectory() as clean:
            _git(folder, "init", "--quiet", "--template=", clean)
            copy = Path(clean, "index")
            written = (folder / index).stat().st_mtime_ns
            copy.write_bytes(files.read(folder / index, INDEX_BYTES))
            # git reads again only files that were modified at the index's time or later, so the copy keeps that time
            os.utime(copy, ns=(written, written))
            env = {"GIT_DIR": f"{clean}/.git", "GIT_WORK_TREE": top, "GIT_INDEX_FILE": str(copy)}
            env["GIT_OBJECT_DIRECTORY"] = str((folder / objects).resolve())
            _git(folder, "update-index", "-q", "--refresh", env=env, codes=(0, 1))  # exit code 1: files have changed
            changes = _git(folder, "diff-index", *options, "--ignore-submodules=all", commit, "--", env=env)
    except (OSError, ValueError, subprocess.SubprocessError, ConfigError):
        return None
    return commit, changes


def _belongs(root: Path, git_dir: Path, common: Path) -> bool:
    """Returns whether a repository belongs to the folder `root`. Its `.git` may be untrusted, and lead to any other.

    The repository is the directory `.git`, or it names the folder: as a linked worktree, or as a submodule. It must
    hold its objects itself. common: the directory that worktrees share.
    """
    if any((common / name).exists() for name in ("commondir", "objects/info/alternates")):
        return False
    if (common / "objects").is_symlink():
        return False
    own = root.resolve() / ".git"
    if own.is_dir() and not own.is_symlink():
        return git_dir == common == own
    if git_dir.parent == common / "worktrees":
        back = files.read(git_dir / "gitdir", files.JSON_BYTES).decode().strip()
        return (git_dir / back).resolve() == own
    back = _git(root, "config", "--file", str(git_dir / "config"), "core.worktree").strip()
    return git_dir == common and (git_dir / back).resolve() == root.resolve()


def git_diff(folder: Path) -> str:
    """Returns the uncommitted changes of tracked files in the repository around `folder`, as a patch.

    Returns "" if there are none or more than DIFF_BYTES, or in the cases in which `git_state` returns None.
    """
    found = _changes(folder, "--patch", "--no-ext-diff", "--no-textconv")
    if found is None:
        return ""
    _, patch = found
    if len(patch.encode()) > DIFF_BYTES:
        return ""
    return patch


def _git(folder: Path, *words: str, env: Mapping[str, str] = NOTHING, codes: Sequence[int] = (0,)) -> str:
    """Returns the output of a git command. The command cannot prompt for a password or fetch objects.

    Raises SubprocessError if it fails or takes more than GIT_SECONDS.
    """
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words],
        cwd=folder, env={**os.environ, **quiet, **env}, capture_output=True, text=True, timeout=GIT_SECONDS,
        check=False,
    )  # fmt: skip
    if done.returncode not in codes:
        raise subprocess.SubprocessError(done.stderr)
    return done.stdout
