"""Fixtures that several folders use: environments and loops that are closed after the test."""

import multiprocessing.util
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import probes  # noqa: F401 (registers them with Gymnasium)
import pytest
import torch
import toys
from fake_slurm import HOME, FakeSlurm
from forks import forked
from toys import NO_RAY, NOT_NORMALIZED

from rlrun.config.compose import Composer
from rlrun.config.schema import run_config
from rlrun.config.sources import CONF
from rlrun.core.loop import Loop
from rlrun.envs.config import EnvConfig
from rlrun.envs.stepping import workers
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.run import provenance
from rlrun.run.assemble import build_loop

REPOSITORY = Path(__file__).parents[1]
Values = dict[str, Any]


@pytest.fixture(autouse=True, scope="session")
def nothing_measured(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[None]:
    """Hides measurements and self-test verdicts of this machine from the tests. All workers share the verdicts."""
    cache = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        cache = cache.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("XDG_CACHE_HOME", str(cache / "cache"))
        yield


@pytest.fixture(autouse=True, scope="session")
def temporary_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Creates temporary folders among those of pytest, which removes them, also if a worker of the tests is killed."""
    multiprocessing.util.get_temp_dir()  # elsewhere, because it is removed when the process ends, after those of pytest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture(autouse=True, scope="session")
def no_wait_for_the_disk() -> Iterator[None]:
    """Lets files count as synced at once. Tests of disks that fail, or lose power, replace `os.fsync` themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def shared_toys(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> None:
    """Lets the workers share the toys that they compose."""
    if worker_id != "master":
        toys.SHARED = tmp_path_factory.getbasetemp().parent / "toys"
        toys.SHARED.mkdir(exist_ok=True)


@pytest.fixture(autouse=True, scope="session")
def shared_compositions() -> Iterator[None]:
    """Lets all tests share what Hydra finds for choices of rlrun's own files, which no test changes."""
    known: dict[tuple[str, ...], Any] = {}
    find = Composer._defaults

    def found(composer: Composer, choices: Sequence[str]) -> Any:
        named = {*choices} - {"preset=none", "logger=[]"}
        if composer.folders != [CONF] or not all((CONF / f"{name.replace('=', '/')}.yaml").exists() for name in named):
            return find(composer, choices)
        key = tuple(choices)
        if key not in known:
            known[key] = find(composer, choices)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Composer, "_defaults", found)
        yield


@pytest.fixture(autouse=True, scope="session")
def shared_commit() -> Iterator[None]:
    """Lets all runs that start in rlrun's repository share its commit, for which git is called four times."""
    read = provenance.git_state
    commit = cache(partial(read, REPOSITORY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "git_state", lambda folder: commit() if folder == REPOSITORY else read(folder))
        yield


@pytest.fixture(autouse=True, scope="session")
def workers_with_torch() -> Iterator[None]:
    """Lets the server of workers preload what the modules of the tests import, as all tests of a process share it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "PRELOADED", (*workers.PRELOADED, "rlrun.run.assemble"))
        yield


@pytest.fixture(autouse=True)
def the_same_draws() -> None:
    """Seeds the global generators, so that a test without its own seed always draws the same numbers."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed also formats a stack, for devices
    np.random.seed(0)


@pytest.fixture
def build() -> Iterator[Callable[[Values], Loop]]:
    """Returns a loop built from composed values; its first episodes have begun unless begin=False."""
    made = []

    def one(values: Values, begin: bool = True) -> Loop:
        made.append(build_loop(run_config(values)))
        if begin:
            made[-1].begin()
        return made[-1]

    yield one
    for loop in made:
        loop.env.close()


@pytest.fixture
def make_env() -> Iterator[Callable[..., VectorEnv]]:
    """`make_env("rlrun/Counter-v0", num_envs, kwargs={"length": 3})`."""
    made = []

    def one(id: str, num_envs: int = 1, seed: int = 0, **given: Any) -> VectorEnv:
        base: Values = {
            "backend": "sync",
            "ray": NO_RAY,
            "kwargs": {},
            "task_kwargs": {},
            "index_kwarg": None,
            "eval_kwargs": {},
            "wrappers": {},
            "normalize": NOT_NORMALIZED,
            "transforms": [],
            "timeout_s": 10.0,
        }
        base |= {"max_episode_steps": None, "instance_seed": None, "on_failure": "raise"}
        base |= {"action_mask": True, "selftest": "auto", "log_info": [], "executed_action": None, "schedule": {}}
        made.append(VectorEnv.make(EnvConfig(id=id, num_envs=num_envs, **(base | given)), np.random.SeedSequence(seed)))
        return made[-1]

    yield one
    for env in made:
        env.close()


@pytest.fixture
def forks() -> Iterator[None]:
    """Grids, sweeps and the checks of spaces fork this process instead of starting Python."""
    with forked():
        yield


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    """A scheduler that commands of this process and of its children find, in an empty current folder."""
    fake = FakeSlurm(tmp_path / "slurm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{fake.bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(HOME, str(fake.folder))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "src"), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield fake
    fake.close()
