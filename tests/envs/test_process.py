"""Environments in the process of the training cannot change what it depends on without a word."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from probes import Counter

from rlrun.errors import ConfigError

ID = "test/Process-v0"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gym.register(ID, lambda **kwargs: Change(Counter(2), **kwargs))
    yield
    del gym.registry[ID]


class Change(gym.Wrapper):
    """Calls `change` in the constructor, in `reset` or in `step`."""

    def __init__(self, env: gym.Env, change: Callable[[], object], at: str):
        super().__init__(env)
        self.change, self.at = change, at
        if at == "make":
            change()

    def reset(self, **given: Any) -> Any:
        if self.at == "reset":
            self.change()
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        if self.at == "step":
            self.change()
        return super().step(action)


@pytest.mark.parametrize("at", ["make", "reset"])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda: os.chdir("/"), "the working directory to /"),
        (lambda: torch.set_default_dtype(torch.float64), "torch's default dtype to torch.float64"),
        (lambda: torch.set_grad_enabled(False), "torch's gradient mode to False"),
    ],
)
def test_environments_that_change_their_process_are_refused(
    change: Callable[[], object], what: str, at: str, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"sets {what}, .*env.backend=async"):
        make(ID, selftest="off", action_mask=False, kwargs={"change": change, "at": at}).reset()
    assert Path.cwd() == tmp_path and torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()


def test_the_number_of_threads_is_restored(make: Any) -> None:
    threads = torch.get_num_threads()
    kwargs = {"change": lambda: torch.set_num_threads(threads + 1), "at": "make"}
    make(ID, selftest="off", action_mask=False, kwargs=kwargs)
    assert torch.get_num_threads() == threads


def test_an_environment_that_leaves_the_working_directory_in_a_step_ends_the_run_in_its_folder(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = make(ID, selftest="off", action_mask=False, kwargs={"change": lambda: os.chdir("/"), "at": "step"})
    env.reset()
    with pytest.raises(ConfigError, match=r"sets the working directory to /, .*env.backend=async"):
        env.step(torch.zeros(env.num_envs))
    assert Path.cwd() == tmp_path
