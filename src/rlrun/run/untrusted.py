"""Tries the environment of an untrusted stored config in a worker before this process makes it.

An environment that was self-tested on this machine with the same arguments is trusted. Other environments are tried in
a worker with limited time and memory. Arguments that name files or open windows must be typed again by the user.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rlrun import memory
from rlrun.config.reach import of_arguments
from rlrun.envs.config import EnvConfig
from rlrun.envs.making.make import Recipe, recipe
from rlrun.envs.saving import verdicts
from rlrun.envs.saving.examination import WorkerReports
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.trial import Make, scheduled, take_steps
from rlrun.envs.stepping.workers import SilentError, end, started
from rlrun.errors import ConfigError
from rlrun.run.data import OURS
from rlrun.schedules.curriculum import Curriculum

TIMEOUT_S = 6.0  # for making an environment and a few steps, unless env.timeout_s is shorter or was typed by the user
LEAST_MEMORY = 1 << 30  # bytes that the trial may always use, whatever memory the machine has
READ_BY_RLRUN = ("path", "source")  # arguments of our own tables, whose content is verified by its digest


def check_environment(cfg: EnvConfig, typed: Mapping[str, Any], evaluation_only: bool = False) -> None:
    """Raises ConfigError if the environment of a stored config must not be made in this process.

    typed: key paths and values that the user has typed; these are trusted. If the user typed `env.selftest=off`, no
    environment is tried in a worker. evaluation_only: the training environment will not be made.
    """
    if not (cfg.kwargs or cfg.eval_kwargs or cfg.task_kwargs or cfg.index_kwarg or cfg.wrappers or cfg.schedule):
        return
    trained = recipe(cfg)
    is_known = verdicts.is_known(verdicts.subject(trained))  # tested with these arguments, and no file has changed
    check_typed_again({"eval_kwargs": cfg.eval_kwargs}, cfg.id, typed)
    if not is_known:
        check_typed_again({"kwargs": cfg.kwargs, "wrappers": cfg.wrappers}, cfg.id, typed)
    makes: list[Make] = []
    if not is_known and not (evaluation_only and cfg.eval_kwargs):
        makes.append(maker(trained))
    if cfg.eval_kwargs:
        makes.append(maker(recipe(replace(cfg, kwargs=cfg.kwargs | cfg.eval_kwargs))))
    for bounds in zip(*cfg.task_kwargs.values(), strict=True):  # first all lower bounds, then all upper ones
        task = dict(zip(cfg.task_kwargs, bounds, strict=True))
        makes.append(maker(trained.at(0, **task)))
    if cfg.schedule and not (evaluation_only or trained.vectorised):
        makes += [partial(scheduled, trained, values) for values in Curriculum(cfg.schedule).samples()]
    is_off = cfg.selftest == "off" and "env.selftest" in typed
    if makes and not (is_off or cfg.backend in ("jax", "envpool") or reads_table(cfg)):
        timeout_s = cfg.timeout_s
        if "env.timeout_s" not in typed:
            timeout_s = min(timeout_s, TIMEOUT_S)
        try_environments(makes, trained, replace(cfg, timeout_s=timeout_s))


def reads_table(cfg: EnvConfig) -> bool:
    """Returns whether a config has one of our own environments with a table, which is verified by its digest."""
    return cfg.id.startswith(OURS) and not {*cfg.kwargs, *cfg.eval_kwargs}.isdisjoint(READ_BY_RLRUN)


def check_typed_again(sections: Mapping[str, dict[str, Any]], id: str, typed: Mapping[str, Any]) -> None:
    """Raises ConfigError for each argument that names a file or opens a window, unless the user typed it too."""
    faults = []
    for section, values in sections.items():
        for found in of_arguments(f"env.{section}", values):
            argument = found.key.removeprefix(f"env.{section}.").partition(".")[0]
            if found.key not in typed and not (id.startswith(OURS) and argument in READ_BY_RLRUN):
                faults.append(found.line)
    if faults:
        raise ConfigError(*faults)


def maker(one: Recipe) -> Make:
    """Returns a function that makes one environment of a recipe, or a vector env of one."""
    if one.vectorised:
        return partial(one.vector_env, 1)
    return one


def try_environments(makes: list[Make], trained: Recipe, cfg: EnvConfig) -> None:
    """Makes all environments in one worker and takes a few steps in each. Raises ConfigError if that fails.

    trained: the recipe of the training environment, whose modules the worker imports.
    """
    limit = max(LEAST_MEMORY, memory.total() // (2 * cfg.num_envs))
    try:
        pipe = started(take_steps, trained, cfg.timeout_s, (makes, limit))
    except EnvError as error:
        raise ConfigError(f"env {cfg.id}: {error.reason}") from error
    reports = WorkerReports(pipe, cfg, "trying its arguments, which come from a stored config,")
    try:
        reports.next()
    except EnvError as error:
        advice = ""
        if isinstance(error, SilentError):
            advice = "; more time with env.timeout_s=60"
        what = f"env {cfg.id} does not work with the arguments of this config"
        raise ConfigError(f"{what}: {reports.reason(error)}{advice}") from error
    finally:
        pipe.close()
        end([pipe.process])
