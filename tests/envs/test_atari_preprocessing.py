"""The preprocessing of Atari games, on a fake console whose frames show their own number."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlrun.config.jobs import jobs
from rlrun.envs.wrappers.atari import Atari
from rlrun.envs.wrappers.wrapper import CONTINUES, FrameStack, TimeLimit, in_evaluation
from rlrun.errors import ConfigError
from rlrun.settings import parse

pytest.importorskip("cv2")

SETTINGS: dict[str, Any] = {
    "noop_max": 0, "fire_reset": False, "frame_skip": 4, "grayscale": True, "screen_size": 4,
    "terminal_on_life_loss": False,
}  # fmt: skip
NOOP, FIRE, LEFT = 0, 1, 2
SHAPE = (8, 8)


class Console(gym.Env):
    """In frame t only row t (modulo 8) is bright, so that a maximum shows of which frames it is.

    A life is lost in the frames `losses`; the game is over in frame `length`.
    """

    def __init__(
        self, length: int = 100, losses: tuple[int, ...] = (), meanings: tuple[str, ...] = ("NOOP", "FIRE", "LEFT")
    ):
        self.length, self.losses, self.meanings = length, losses, meanings
        self.ale = self
        self.action_space = gym.spaces.Discrete(3)
        self.observation_space = gym.spaces.Box(0, 255, SHAPE, np.uint8)
        self.games = 0
        self.pressed: list[int] = []

    def get_action_meanings(self) -> list[str]:
        return list(self.meanings)

    def lives(self) -> int:
        return 3 - sum(loss <= self.number for loss in self.losses)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number = 0
        self.games += 1
        self.pressed = []
        return self.frame(), {}

    def step(self, action: Any) -> Any:
        self.number += 1
        self.pressed.append(int(action))
        return self.frame(), 1.0, self.number == self.length, False, {}

    def frame(self) -> np.ndarray:
        frame = np.zeros(SHAPE, np.uint8)
        frame[self.number % 8] = 200
        return frame

    def getScreenRGB(self) -> np.ndarray:  # noqa: N802 (the name in ALE)
        return np.stack([self.frame(), self.frame() // 2, self.frame() // 4], -1)


def wrapped(console: Console, **settings: Any) -> Atari:
    return Atari(parse(Atari.Config, SETTINGS | settings, "env.wrappers.atari"), console)


def rows(obs: np.ndarray) -> list[int]:
    """The numbers (modulo 8) of the frames whose maximum an observation of full size shows."""
    return np.flatnonzero(obs.max(1)).tolist()


def test_atari_skip_shows_the_maximum_of_its_last_two_frames():
    env = wrapped(Console(), screen_size=8)
    assert rows(env.reset()[0]) == [0]
    obs, reward, *_ = env.step(LEFT)
    assert rows(obs) == [3, 4] and reward == 4.0
    assert rows(env.step(LEFT)[0]) == [0, 7]
    single = wrapped(Console(), screen_size=8, frame_skip=1)
    single.reset()
    assert rows(single.step(LEFT)[0]) == [1]


@pytest.mark.parametrize(("length", "shown"), [(5, [5]), (6, [5, 6]), (7, [6, 7])])
def test_atari_game_that_ends_inside_a_skip_shows_its_last_frames(length, shown):
    env = wrapped(Console(length), screen_size=8)
    env.reset()
    env.step(LEFT)
    obs, reward, terminated, truncated, _ = env.step(LEFT)
    assert rows(obs) == shown and reward == length - 4
    assert (terminated, truncated) == (True, False)


def test_atari_time_limit_inside_a_skip_shows_its_last_frames():
    env = Atari(parse(Atari.Config, SETTINGS | {"screen_size": 8}, ""), gym.wrappers.TimeLimit(Console(), 6))
    env.reset()
    env.step(LEFT)
    obs, _, terminated, truncated, _ = env.step(LEFT)
    assert rows(obs) == [5, 6] and (terminated, truncated) == (False, True)


def test_atari_frame_skip_range_is_drawn_per_step_from_the_environments_generator():
    def skips(seed):
        env = wrapped(Console(10**6), frame_skip=[2, 4])
        env.reset(seed=seed)
        return [env.step(LEFT)[1] for _ in range(300)]

    first = skips(0)
    counts = [first.count(skip) for skip in (2.0, 3.0, 4.0)]
    assert sum(counts) == 300 and min(counts) > 75
    assert first == skips(0) != skips(1)


def test_atari_observations_are_grey_or_in_colour():
    env = wrapped(Console(), grayscale=False)
    obs = env.reset()[0]
    assert obs.shape == env.observation_space.shape == (4, 4, 3)
    assert obs[0, 0].tolist() == [100, 50, 25]  # row 0 of 8 is bright, and two rows become one
    stacked = FrameStack(parse(FrameStack.Config, {"stack": 2}, ""), env)
    assert stacked.reset()[0].shape == (2, 4, 4, 3)
    assert wrapped(Console()).reset()[0].shape == (4, 4)


def test_atari_reset_waits_and_presses_fire():
    console = Console()
    env = wrapped(console, noop_max=5, fire_reset=True)
    waits = set()
    for seed in range(40):
        env.reset(seed=seed)
        assert console.pressed[-4:] == [FIRE] * 4
        waits.add(len(console.pressed) - 4)
        assert set(console.pressed[:-4]) == {NOOP}
    assert waits == {1, 2, 3, 4, 5}


def test_atari_reset_presses_no_fire_without_that_action():
    console = Console(meanings=("NOOP", "UP", "LEFT"))
    wrapped(console, fire_reset=True).reset()
    assert console.pressed == []


def test_atari_game_that_ends_within_the_reset_begins_again():
    console = Console(length=3)
    obs, info = wrapped(console, fire_reset=True, screen_size=8).reset()
    assert console.games == 2 and rows(obs) == [0] and CONTINUES not in info


def test_atari_game_that_ends_during_the_no_ops_begins_again():
    console = Console(length=2)
    env = wrapped(console, noop_max=5, screen_size=8)
    for seed in range(10):
        obs, _ = env.reset(seed=seed)
        assert console.number < 2 and rows(obs) == [console.number]


def test_atari_lost_life_terminates_and_the_reset_continues_the_game():
    console = Console(length=60, losses=(6, 17))
    env = wrapped(console, fire_reset=True, terminal_on_life_loss=True, screen_size=8)
    env.reset()
    obs, _, terminated, truncated, info = env.step(LEFT)  # frames 5 and 6, after 4 frames of FIRE
    assert terminated and not truncated and info[CONTINUES] and rows(obs) == [5, 6]
    obs, info = env.reset()
    assert info[CONTINUES] and console.games == 1
    assert console.pressed[6:] == [NOOP] * 4 + [FIRE] * 4 and rows(obs) == [13 % 8, 14 % 8]
    assert env.step(LEFT)[2] and console.number == 17
    env.reset()
    while not (ended := env.step(LEFT))[2]:
        assert CONTINUES not in ended[4]
    assert console.number == 60 and CONTINUES not in ended[4]
    assert CONTINUES not in env.reset()[1] and console.games == 2


def test_atari_seeded_reset_after_a_lost_life_begins_a_new_game():
    console = Console(losses=(2,))
    env = wrapped(console, terminal_on_life_loss=True)
    env.reset()
    assert env.step(LEFT)[2]
    assert CONTINUES not in env.reset(seed=0)[1] and console.games == 2


@pytest.mark.parametrize("limit", [2, 3])
def test_time_limit_counts_whole_atari_games(limit):
    console = Console(length=200, losses=(2, 9))  # frame 2 in step 1, frame 9 in step 2
    inner = wrapped(console, terminal_on_life_loss=True)
    env = TimeLimit(parse(TimeLimit.Config, {"max_steps": limit}, ""), inner)
    env.reset()
    ends = []
    for _ in range(limit):
        _, _, terminated, truncated, _ = env.step(LEFT)
        ends.append((terminated, truncated))
        if terminated and not truncated:
            env.reset()
    assert console.games == 1
    assert ends == [(True, False), (True, limit == 2), (False, True)][:limit]
    assert CONTINUES not in env.reset()[1] and console.games == 2


def test_evaluation_plays_whole_atari_games():
    wrappers = {"atari": SETTINGS | {"terminal_on_life_loss": True}, "time_limit": {"max_steps": 9}}
    assert in_evaluation(wrappers) == {"own_reward": {}, "atari": SETTINGS, "time_limit": {"max_steps": 9}}


def test_atari_ids_get_the_default_chain():
    wrappers = jobs(["algo=dqn", "env=ALE/Breakout-v5"])[0].values["env"]["wrappers"]
    assert list(wrappers) == ["atari", "frame_stack"] and wrappers["frame_stack"] == {"stack": 4}
    assert wrappers["atari"] == SETTINGS | {"noop_max": 30, "fire_reset": True, "screen_size": 84}


@pytest.mark.parametrize("skip", [0, [0, 4], [4, 2], [2, 3, 4], "four", 2.5])
def test_atari_refuses_a_frame_skip_that_is_no_range(skip):
    with pytest.raises(ConfigError) as refused:
        wrapped(Console(), frame_skip=skip)
    assert str(refused.value) == (
        f"env.wrappers.atari.frame_skip={skip!r}: must be a whole number of at least 1, "
        "or [low, high] of such numbers with low at most high"
    )
