"""Tests my_callback with the checks for every callback."""

from pathlib import Path

from my_callback import MyCallback

from rlrun import testing

FILE = Path(__file__).with_name("my_callback.py")


def test_my_callback_changes_nothing_and_resumes() -> None:
    testing.check_callback(f"plugins=[{FILE}]", "callbacks=[my_callback]")


def test_my_callback_remembers_the_best_return() -> None:
    callback = MyCallback(MyCallback.Config())
    for episode_return in (3.0, 9.0, 5.0):
        callback.on_episode(episode_return, 10)
    assert callback.best == 9.0
