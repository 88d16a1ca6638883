"""The environment of an untrusted stored config, tried in another process before this one makes it.

Arguments that an environment was trained with on this machine are known from its self-test. Others are tried in a
worker, with limits of time and memory. Arguments that name files or open windows must be typed again.
"""

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rlrun import memory
from rlrun.config.check import leaves, show
from rlrun.config.schema import EnvConfig
from rlrun.envs import verdicts
from rlrun.envs.examination import WorkerReports
from rlrun.envs.make import Recipe, recipe
from rlrun.envs.obs_adapter import sample
from rlrun.envs.slot import EnvError
from rlrun.envs.workers import SilentError, end, started
from rlrun.errors import ConfigError

TIMEOUT_S = 6.0  # for making an environment and a few steps; env.timeout_s, where it is shorter or was typed
STEPS = 3
LEAST_MEMORY = 1 << 30  # bytes that the trial may take in any case
OURS = "rlrun/"  # ids of our own environments begin so
READ_BY_RLRUN = ("path", "source")  # arguments of our own tables, whose content is known by its digest

Make = Callable[[], Any]


def check_environment(cfg: EnvConfig, typed: Mapping[str, Any], evaluation_only: bool = False) -> None:
    """Raises ConfigError where the environment of a stored config must not be made in this process.

    typed: key paths and values that the user has typed; they are trusted. With `env.selftest=off` among them no
    environment is made that is not needed. evaluation_only: that of training is not going to be made.
    """
    if not (cfg.kwargs or cfg.eval_kwargs or cfg.task_kwargs or cfg.wrappers):
        return
    trained = recipe(cfg)
    is_known = verdicts.is_known(verdicts.subject(trained))  # with these arguments and files of this content
    check_typed_again({"eval_kwargs": cfg.eval_kwargs}, cfg.id, typed)
    if not is_known:
        check_typed_again({"kwargs": cfg.kwargs, "wrappers": cfg.wrappers}, cfg.id, typed)
    recipes = []
    if not is_known and not (evaluation_only and cfg.eval_kwargs):
        recipes.append(trained)
    if cfg.eval_kwargs:
        recipes.append(recipe(replace(cfg, kwargs=cfg.kwargs | cfg.eval_kwargs)))
    for end_of_range in zip(*cfg.task_kwargs.values(), strict=True):
        recipes.append(trained.at(0, **dict(zip(cfg.task_kwargs, end_of_range, strict=True))))
    is_off = cfg.selftest == "off" and "env.selftest" in typed
    if recipes and not (is_off or cfg.backend in ("jax", "envpool") or reads_table(cfg)):
        timeout_s = cfg.timeout_s
        if "env.timeout_s" not in typed:
            timeout_s = min(timeout_s, TIMEOUT_S)
        try_environments(recipes, replace(cfg, timeout_s=timeout_s))


def reads_table(cfg: EnvConfig) -> bool:
    """Whether it is an environment of ours that reads a file, whose content is known by its digest."""
    return cfg.id.startswith(OURS) and not {*cfg.kwargs, *cfg.eval_kwargs}.isdisjoint(READ_BY_RLRUN)


def check_typed_again(sections: Mapping[str, dict[str, Any]], id: str, typed: Mapping[str, Any]) -> None:
    """Raises ConfigError for each argument that names a file or opens a window, unless the user typed it too."""
    own_tables = id.startswith(OURS)
    faults = []
    for section, values in sections.items():
        for key, value in leaves(values):
            word = f"env.{section}.{key}"
            again = shlex.quote(f"{word}={show(value)}")
            if word in typed or (own_tables and key.partition(".")[0] in READ_BY_RLRUN):
                continue
            if key == "render_mode" and value == "human":
                faults.append(f"{word}=human: opens a window; if you want that, add {again}")
            elif any(map(names_file, texts(value))):
                faults.append(f"{word}: names a file, which the environment may read; if you trust it, add {again}")
    if faults:
        raise ConfigError(*faults)


def texts(value: Any) -> Iterator[str]:
    """Every string in a value of a config."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, dict):
        yield from texts([*value, *value.values()])


def names_file(text: str) -> bool:
    """Whether an environment that takes a text for a path could find something there."""
    if "/" in text or os.sep in text or text.startswith("~"):
        return True
    with contextlib.suppress(ValueError):  # a null character
        return os.path.lexists(text)
    return False


def try_environments(recipes: list[Recipe], cfg: EnvConfig) -> None:
    """Makes each environment in one worker and takes a few steps. Raises ConfigError where that goes wrong."""
    makes: list[Make] = []
    for one in recipes:
        if one.vectorised:
            makes.append(partial(one.all, 1))
        else:
            makes.append(one)
    limit = max(LEAST_MEMORY, memory.total() // (2 * cfg.num_envs))
    try:
        pipe = started(take_steps, recipes[0], cfg.timeout_s, (makes, limit))
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


def take_steps(pipe: Any, index: int, given: tuple[Iterable[Make], int], things: contextlib.ExitStack) -> None:
    """In a worker: makes environments, takes a few steps in each, and reports the end."""
    makes, limit = given
    memory.limit(limit)
    for make in makes:
        env = make()
        things.callback(env.close)
        env.action_space.seed(0)
        obs, _ = env.reset(seed=0)
        for _ in range(STEPS):
            obs, _, terminated, truncated, _ = env.step(sample(env.action_space, obs))
            if np.any(terminated) or np.any(truncated):
                obs, _ = env.reset()
    pipe.send((None, None))
