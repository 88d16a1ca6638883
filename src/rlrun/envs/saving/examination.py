"""Runs the self-test of an environment in a worker, before environments are made for training.

An environment that raises, hangs, exits or crashes in the test ends only the worker, after `env.timeout_s` at most.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from signal import Signals
from typing import Any

from rlrun.envs.config import EnvConfig
from rlrun.envs.making.make import Recipe
from rlrun.envs.saving import verdicts
from rlrun.envs.saving.selftest import EPISODE_END, Method, self_test
from rlrun.envs.saving.verdicts import Verdict
from rlrun.envs.stepping.obs_adapter import as_tensors, shows_masks
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.workers import DiedError, NotSentError, SilentError, TimedPipe, end, started
from rlrun.errors import RunError, printable

QUIET_S = 1.0  # if a test takes longer than this, a message is printed
Target = Callable[[Connection, int, Any, contextlib.ExitStack], None]  # the function that runs in a worker
TESTING = "testing whether a snapshot can hold its state (env.selftest=off skips this test),"
OFF = "with env.selftest=off it is not tested whether environments can be saved"


def examined(recipe: Recipe, cfg: EnvConfig, target: Target | None = None, given: object = None) -> Verdict:
    """Returns the verdict on an environment, from an earlier test or a new one.

    target: the function that tests it in a worker, for a vector env; None: `examine`, for single environments. given:
    the argument of `target`; None: `recipe`.
    Raises ConfigError if rlrun does not support its spaces, and RunError if it cannot be made, or if it cannot be reset
    and `env.on_failure=raise`. Other failures of the test are a reason in the verdict.
    """
    if cfg.selftest == "off":
        return verdict_of(Method(EPISODE_END, OFF))
    num_envs = None
    if target is not None:
        num_envs = cfg.num_envs
    about = verdicts.subject(recipe, num_envs)
    found = None
    if cfg.selftest == "auto":
        found = verdicts.known(about, cfg.timeout_s)
    if found is None:
        found = replace(_tested(target or examine, recipe, cfg, given), about=about)
        verdicts.keep(found)
    return found


def verdict_of(method: Method) -> Verdict:
    """Returns a verdict that holds only a method: about no environment in particular, so it is not kept on disk."""
    return Verdict(
        about=None,
        method=method.name,
        reason=method.reason,
        unrepeatable=method.unrepeatable,
        masked=None,
        gave_up_s=None,
        versions={},
        files={},
    )


def examine(pipe: Connection, index: int, recipe: Recipe, resources: contextlib.ExitStack) -> None:
    """Runs in a worker: reports that an environment was made, then whether infos hold masks, then how it is saved."""
    slot = replace(recipe, masked=False, action_mask=False)()
    try:
        as_tensors(slot.observation_space)  # raises ConfigError for spaces that rlrun does not support
        pipe.send((None, None))
        slot.reset(seed=0)
        masked = recipe.masked is None and shows_masks(slot.env)  # None: it depends on the infos of the reset
    finally:
        with contextlib.suppress(Exception):
            slot.close()
    report(pipe, masked)
    report(pipe, self_test(replace(recipe, masked=masked, log_info=(), executed_action=None)))


def report(pipe: Connection, found: object) -> None:
    """Runs in a worker: sends a result, with the modules that it depends on."""
    pipe.send(((found, verdicts.imported()), None))


class WorkerReports:
    """Receives the results that a worker sends. All of them together must arrive within `env.timeout_s`.

    If they take longer than QUIET_S, one message is printed, with `purpose` as the reason for the wait.
    """

    def __init__(self, pipe: TimedPipe, cfg: EnvConfig, purpose: str = TESTING):
        self.pipe, self.cfg, self.purpose = pipe, cfg, purpose
        self.until = time.monotonic() + cfg.timeout_s
        self.quiet_until: float | None = time.monotonic() + QUIET_S

    def next(self) -> Any:
        """Returns the next result. Raises SilentError after the time limit, or the error that the worker sent."""
        if self.quiet_until is not None and self.quiet_until < self.until and not self.pipe.comes(self.quiet_until):
            self._announce()
            self.quiet_until = None
        if not self.pipe.comes(self.until):
            raise SilentError(0, f"no answer within env.timeout_s={self.cfg.timeout_s:g}")
        return self.pipe.result()

    def reason(self, error: EnvError) -> str:
        """Returns the reason of an error. If the worker died, it is the signal or exit code, without the pid."""
        if not isinstance(error, DiedError):
            return error.reason
        code = self.pipe.process.exitcode
        if code is not None and code < 0:
            return f"its process was ended by {Signals(-code).name}"
        return f"its process ended, exit code {code}"

    def _announce(self) -> None:
        line = f"env {self.cfg.id}: {self.purpose} in a process of its own, for {self.cfg.timeout_s:g} s at most"
        print(printable(line), file=sys.stderr, flush=True)


def _tested(target: Target, recipe: Recipe, cfg: EnvConfig, given: object) -> Verdict:
    verdict = verdict_of(Method(EPISODE_END, ""))
    try:
        pipe = started(target, recipe, cfg.timeout_s, given)
    except EnvError as error:
        return replace(verdict, reason=error.reason)
    reports = WorkerReports(pipe, cfg)
    stage = "made"  # what the worker attempts: it reports that an environment was made, reset, and tested
    try:
        reports.next()
        stage = "reset"
        masked, modules = reports.next()
        versions, files = verdicts.needs(modules, recipe.kwargs)
        verdict = replace(verdict, masked=masked, versions=versions, files=files)
        stage = "tested"
        method, modules = reports.next()
        versions, files = verdicts.needs(modules, recipe.kwargs)
        found = verdict_of(method)
        return replace(found, masked=masked, versions=versions, files=files)
    except NotSentError as error:
        return replace(verdict, reason=error.reason)
    except EnvError as error:
        reason = reports.reason(error)
        if stage == "made" or (stage == "reset" and cfg.on_failure == "raise"):
            raise RunError(f"env {cfg.id} cannot be {stage}: {reason}") from error
        limit = None
        if isinstance(error, SilentError):
            limit = cfg.timeout_s
        failed = f"its self-test failed ({reason})"
        masked = bool(verdict.masked)  # None, if even the reset failed, counts as no masks
        return replace(verdict, masked=masked, reason=failed, gave_up_s=limit)
    finally:
        pipe.close()
        end([pipe.process])
