"""From the composed values of a job to its exit code: creates and locks the run's folder, and removes it again where
training never began. Nothing here imports torch before the folder is locked.
"""

import errno
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlrun.errors import RlrunError, RunError, reason
from rlrun.imports import module_of
from rlrun.rundir import RunDir, runs_of, starting

if TYPE_CHECKING:
    from rlrun.config.jobs import Job


@dataclass(frozen=True)
class Done:
    """A run that has ended: where it is, and the exit code."""

    path: Path
    exit_code: int


def train_job(job: "Job") -> Done:
    """Train one job in a run directory of its own, or continue the run that `resume=auto` finds."""
    with ExitStack() as alone:
        if job.values["resume"] == "auto":
            alone.enter_context(starting(job.values))
            if path := earlier(job.values):
                alone.close()
                return _go_on(job, path)
        folder = RunDir.create(job.values)
        with held(folder, is_new=True):
            folder.write_start(job.values, job.words)
            alone.close()  # from now on another process finds this run, and its lock
            from rlrun.config.schema import run_config
            from rlrun.run.lifecycle import train

            code = train(run_config(job.values), folder).exit_code
    return Done(folder.path, code)


def resume_run(
    path: Path,
    changes: Mapping[str, Any],
    plugins: Sequence[str] = (),
    into: str | None = None,
    typed: bool = False,
) -> Done:
    """Resume the run at `path`, or branch from it into a new directory.

    typed: the run's config stands on this command line, so that it may name what a stored one may not.
    """
    if into is None:
        folder = RunDir.open(path)
    else:
        folder = RunDir.create({"run_dir": into})
    with held(folder, is_new=into is not None):
        from rlrun import registry
        from rlrun.run import lifecycle

        registry.load(plugins)
        if into is None:
            result = lifecycle.resume(folder, changes, typed)
        else:
            result = lifecycle.branch(path, folder, changes)
    return Done(folder.path, result.exit_code)


def _go_on(job: "Job", path: Path) -> Done:
    from rlrun.config.resumable import free

    return resume_run(path, free(job.values), modules_of(job), typed=True)


def modules_of(job: "Job") -> list[str]:
    """The modules that a job names; a resume must name them again."""
    module = module_of(job.values["env"]["id"])
    plugins: list[str] = job.values["plugins"]
    if module is None:
        return plugins
    return [*plugins, module]


def earlier(values: dict[str, Any]) -> Path | None:
    """The latest run of this name (or in this run_dir) whose config differs in nothing that affects learning."""
    from rlrun.config.resumable import same_run
    from rlrun.config.stored import CONFIG, read_config

    for path in runs_of(values):
        if same_run(read_config(path / CONFIG), values):
            return path
    return None


@contextmanager
def held(folder: RunDir, is_new: bool) -> Iterator[None]:
    """Write the trace of an error to the run's error.log, remove a new directory where training never began, and
    release the lock."""
    try:
        yield
    except Exception as error:
        began = (folder.path / "summary.json").exists()  # training leaves one behind, whatever happens
        if isinstance(error, RlrunError) and (error.exit_code != RunError.exit_code or (is_new and not began)):
            if is_new:
                folder.discard()
            raise
        if isinstance(error, OSError) and not folder.holds_run:  # the disk would not even have its config
            folder.discard()
            raise RunError(f"{folder.path}: {error.strerror}") from error
        folder.error_log(traceback.format_exc())
        if isinstance(error, RlrunError):
            raise
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise RunError(f"{folder.path}: no space left on the disk") from error
        raise RunError(f"{reason(error)} (trace in {folder.path / 'error.log'})") from error
    except BaseException:  # a signal
        if is_new and not (folder.path / "summary.json").exists():
            folder.discard()
        raise
    finally:
        folder.release()
