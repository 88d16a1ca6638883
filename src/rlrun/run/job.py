"""Runs a job: creates and locks the run's folder, trains, and deletes the folder if training never began.

The folder is locked before torch is imported.
"""

import errno
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlrun.errors import NO_SPACE, RlrunError, RunError
from rlrun.imports import module_of, traced
from rlrun.run.signals import check_thread
from rlrun.rundir import RunDir, runs_of, starting

if TYPE_CHECKING:
    from rlrun.config.jobs import Job


@dataclass(frozen=True)
class Done:
    """Folder and exit code of a run that has ended, and why it failed."""

    path: Path
    exit_code: int
    fault: str = ""


def train_job(job: "Job") -> Done:
    """Trains a job in a new run directory, or with `resume=auto` continues an existing run of the same config."""
    check_thread()
    with ExitStack() as alone:  # with resume=auto, no other process may start this run at the same time
        if job.values["resume"] == "auto":
            alone.enter_context(starting(job.values))
            path = earlier(job.values)
            if path is not None:
                alone.close()
                return _go_on(job, path)
        folder = RunDir.create(job.values)
        with held(folder, is_new=True):
            folder.write_start(job.values, job.words)
            alone.close()  # config.yaml is written, so other processes with resume=auto find this run from now on
            from rlrun.config.schema import run_config
            from rlrun.run.lifecycle import train

            result = train(run_config(job.values), folder)
    return Done(folder.path, result.exit_code, result.fault)


def resume_run(
    path: Path,
    changes: Mapping[str, object],
    plugins: Sequence[str] = (),
    into: str | None = None,
    typed: bool = False,
) -> Done:
    """Resumes the run at `path`, or branches from it into the new directory `into`.

    typed: the user typed the same config on this command line, so the stored config is trusted.
    """
    check_thread()
    if into is None:
        folder = RunDir.open(path)
    else:
        folder = RunDir.create({"run_dir": into})
    with held(folder, is_new=into is not None):
        from rlrun.run import lifecycle
        from rlrun.settings import registry

        registry.load(plugins)
        if into is None:
            result = lifecycle.resume(folder, changes, typed)
        else:
            result = lifecycle.branch(path, folder, changes)
    return Done(folder.path, result.exit_code, result.fault)


def reset_run(path: Path, changes: Mapping[str, object], into: str, plugins: Sequence[str] = ()) -> Done:
    """Starts a new run in the directory `into` with the config and the weights of the run or snapshot at `path`."""
    folder = RunDir.create({"run_dir": into})
    with held(folder, is_new=True):
        from rlrun.run import lifecycle
        from rlrun.settings import registry

        registry.load(plugins)
        result = lifecycle.reset(path, folder, changes)
    return Done(folder.path, result.exit_code)


def _go_on(job: "Job", path: Path) -> Done:
    from rlrun.config.resumable import free

    return resume_run(path, free(job.values), modules_of(job), typed=True)


def modules_of(job: "Job") -> list[str]:
    """Returns the modules that a job names in `plugins` and `env`. A resume must name them again."""
    module = module_of(job.values["env"]["id"])
    plugins: list[str] = job.values["plugins"]
    if module is None:
        return plugins
    return [*plugins, module]


def earlier(values: dict[str, object]) -> Path | None:
    """Returns the latest run with this name (or in this run_dir) that a job with these values may resume, or None.

    Its config differs only in settings that a resume may change.
    """
    from rlrun.config.resumable import same_run
    from rlrun.config.stored import CONFIG, read_config

    for path in runs_of(values):
        if same_run(read_config(path / CONFIG), values):
            return path
    return None


@contextmanager
def held(folder: RunDir, is_new: bool) -> Iterator[None]:
    """As a context manager, releases the run's lock at the end and handles errors.

    If training never began, an RlrunError or a stop signal deletes a new directory. A RunError of an existing run, and
    any exception that is no RlrunError, is written to error.log; the exception is raised as a RunError of one line.
    """
    try:
        yield
    except Exception as error:
        has_begun = (folder.path / "summary.json").exists()  # training always writes this file, even if it fails
        is_refused = isinstance(error, RlrunError) and error.exit_code != RunError.exit_code  # as by a wrong config
        if is_refused or (isinstance(error, RlrunError) and is_new and not has_begun):
            if is_new:
                folder.discard()
            raise
        if isinstance(error, OSError) and not folder.holds_run:  # even config.yaml could not be written
            folder.discard()
            raise RunError(f"{folder.path}: {error.strerror}") from error
        folder.error_log(traceback.format_exc())
        if isinstance(error, RlrunError):
            raise
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise RunError(f"{folder.path}: {NO_SPACE}") from error
        raise RunError(f"{traced(error)} (trace in {folder.path / 'error.log'})") from error
    except BaseException:  # raised by a signal handler
        if is_new and not (folder.path / "summary.json").exists():
            folder.discard()
        raise
    finally:
        folder.release()
