"""All three reset modes of Gymnasium give the same transitions, computed by hand for counters."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from probes import Counter

from rlrun.envs.stepping.pool import SyncPool
from rlrun.envs.stepping.slot import EnvSlot
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError, RunError

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP]


def counters(mode: AutoresetMode, kind: type = SyncVectorEnv, truncate: bool = False) -> VectorEnv:
    """Returns two environments whose episodes take 2 and 3 steps."""
    venv = kind([lambda n=n: Counter(n, truncate) for n in (2, 3)], copy=False, autoreset_mode=mode)
    return VectorEnv(venv, np.random.SeedSequence(0))


def rollout(env: VectorEnv, steps: int) -> list[dict]:
    """Returns rows as replay would store them."""
    obs, rows = env.reset(), []
    for _ in range(steps):
        step, _ = env.step(torch.zeros(env.num_envs, dtype=torch.long))
        for i in range(env.num_envs):
            rows.append(
                {
                    "env": i,
                    "obs": obs[i].tolist(),
                    "next": step["next_obs"][i].tolist(),
                    "reward": step["reward"][i].item(),
                    "terminated": step["terminated"][i].item(),
                    "truncated": step["truncated"][i].item(),
                    "weight": step["weight"][i].item(),
                    "then": step["following"][i].tolist(),
                }
            )
        obs = step["following"]
    env.close()
    return rows


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", MODES)
def test_autoreset_modes_give_the_transitions_of_the_environment(mode, kind, truncate):
    rows = rollout(counters(mode, kind, truncate), 7)
    for row in rows:
        if row["weight"] == 0:
            continue
        (episode, t), length = row["obs"], (2, 3)[row["env"]]
        assert row["next"] == [episode, t + 1] and row["reward"] == t + 1
        ended = t + 1 == length
        assert row["terminated"] == (ended and not truncate) and row["truncated"] == (ended and truncate)
        if mode is not AutoresetMode.NEXT_STEP:
            assert row["then"] == ([episode + 1, 0] if ended else row["next"])


@pytest.mark.parametrize("mode", MODES)
def test_autoreset_next_step_alone_has_rows_of_weight_0(mode):
    rows = [row for row in rollout(counters(mode), 7) if row["env"] == 0]
    weights = [1, 1, 0, 1, 1, 0, 1] if mode is AutoresetMode.NEXT_STEP else [1] * 7
    assert [row["weight"] for row in rows] == weights
    for row in rows:
        if row["weight"] == 0:  # an episode boundary between the rows
            assert row["truncated"] and not row["terminated"] and row["next"] == row["then"] and row["reward"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_autoreset_modes_report_returns_and_lengths_of_episodes(mode):
    env = counters(mode)
    env.reset()
    ended = [env.step(torch.zeros(2, dtype=torch.long))[1].episodes for _ in range(8)]
    seen = [[episode[:2] for episode in episodes] for episodes in ended]
    two, three = (3.0, 2), (6.0, 3)  # rewards 1 + 2, and 1 + 2 + 3
    if mode is AutoresetMode.NEXT_STEP:
        assert seen == [[], [two], [three], [], [two], [], [three], [two]]
    else:
        assert seen == [[], [two], [three], [two], [], [two, three], [], [two]]
    env.close()


def test_truncated_is_cleared_where_terminated_is_true(make):
    env = make("rlrun/TerminationTrap-v0")
    env.reset()
    step, _ = env.step(torch.zeros(1, dtype=torch.long))
    assert step["terminated"].tolist() == [True] and step["truncated"].tolist() == [False]


def test_autoreset_next_obs_of_dict_observations():
    class Pair(gym.Wrapper):
        observation_space = gym.spaces.Dict(a=Counter.observation_space, b=gym.spaces.Discrete(100))

        def reset(self, **options):
            obs, info = self.env.reset(**options)
            return {"a": obs, "b": int(obs[1])}, info

        def step(self, action):
            obs, *rest = self.env.step(action)
            return {"a": obs, "b": int(obs[1])}, *rest

    for mode in MODES:
        venv = SyncVectorEnv([lambda: Pair(Counter(2)), lambda: Pair(Counter(3))], autoreset_mode=mode)
        env = VectorEnv(venv, np.random.SeedSequence(0))
        env.reset()
        for _ in range(2):
            step, _ = env.step(torch.zeros(2, dtype=torch.long))
        assert step["next_obs"]["b"].tolist() == [2, 2] and step["next_obs"]["a"].tolist() == [[0, 2], [0, 2]]
        if mode is not AutoresetMode.NEXT_STEP:
            assert step["following"]["b"].tolist() == [0, 2] and step["following"]["b"].dtype == torch.int64
        env.close()


class ReportsSuccess(Counter):
    """Every second episode is a success; the steps of the first episode of each environment do not report success.

    Resets report success too, which must not count.
    """

    def __init__(self, length: int, key: str):
        super().__init__(length)
        self.key = key

    def reset(self, **given):
        obs, info = super().reset(**given)
        return obs, info | {self.key: True}

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        # before the end, success is always reported, which must not count
        info = {self.key: not terminated or self.episode % 2 == 1} if self.episode else {}
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize("key", ["is_success", "success"])
@pytest.mark.parametrize("mode", [*MODES, None])
def test_autoreset_modes_report_success_of_steps_and_of_the_last_step(mode, key):
    makers = [lambda n=n: ReportsSuccess(n, key) for n in (2, 3)]
    if mode is None:  # our own slots
        venv = SyncPool([lambda make=make: EnvSlot(make, 0) for make in makers])
    else:
        venv = SyncVectorEnv(makers, copy=False, autoreset_mode=mode)
    env = VectorEnv(venv, np.random.SeedSequence(0))
    env.reset()
    action = torch.zeros(env.num_envs, dtype=torch.long)
    ended = [episode for _ in range(18) for episode in env.step(action)[1].episodes]
    of_two, of_three = ([episode for episode in ended if episode.env == index] for index in (0, 1))
    assert [episode.success for episode in of_two[:5]] == [None, 1.0, 0.0, 1.0, 0.0]
    assert [episode.success_fraction for episode in of_two[:5]] == [None, 1.0, 0.5, 1.0, 0.5]
    assert [episode.success_fraction for episode in of_three[1:4]] == [1.0, pytest.approx(2 / 3), 1.0]
    assert all(episode.terminated for episode in ended)


@pytest.mark.parametrize("mode", MODES)
def test_success_that_resets_alone_report_does_not_count(mode):
    class Resets(Counter):
        def reset(self, **given):
            obs, info = super().reset(**given)
            return obs, info | {"is_success": True}

    env = VectorEnv(SyncVectorEnv([lambda: Resets(2)], autoreset_mode=mode), np.random.SeedSequence(0))
    env.reset()
    ended = [episode for _ in range(9) for episode in env.step(torch.zeros(1, dtype=torch.long))[1].episodes]
    assert {episode.success for episode in ended} == {None}


class Scripted(gym.Env):
    """Reports success in the given steps only. Episodes end after 10 steps: the first terminates, others do not."""

    observation_space, action_space = gym.spaces.Discrete(11), gym.spaces.Discrete(2)

    def __init__(self, successes):
        self.successes, self.episode = successes, -1

    def reset(self, **_):
        self.episode, self.count = self.episode + 1, 0
        return 0, {}

    def step(self, action):
        self.count += 1
        info = {"is_success": self.successes[self.count]} if self.count in self.successes else {}
        return self.count, 0.0, self.count == 10 and not self.episode, self.count == 10, info


@pytest.mark.parametrize(
    ("successes", "success", "fraction"),
    [
        ({10: True}, 1.0, 0.1),  # reported by the step that succeeds alone
        ({3: True, 7: True}, 0.0, 0.2),
        ({10: np.array([0.25])}, 0.25, 0.025),
        ({1: False, 10: False}, 0.0, 0.0),
        ({}, None, None),
    ],
)
def test_episode_holds_its_end_and_the_fraction_of_steps_with_success(successes, success, fraction):
    env = VectorEnv(SyncPool([lambda: EnvSlot(lambda: Scripted(successes), 0)]), np.random.SeedSequence(0))
    env.reset()
    seen = []
    for _ in range(25):  # the third episode does not end
        seen += env.step(torch.zeros(1, dtype=torch.long))[1].episodes
    assert [episode.terminated for episode in seen] == [True, False]
    assert {episode.success for episode in seen} == {success}
    assert [episode.success_fraction for episode in seen] == [pytest.approx(fraction)] * 2


def test_episodes_without_a_report_are_no_success_once_any_was_reported():
    class Sometimes(Scripted):
        def reset(self, **_):
            self.successes = {10: True} if self.episode == 0 else {}
            return super().reset()

    env = VectorEnv(SyncPool([lambda: EnvSlot(lambda: Sometimes({}), 0)]), np.random.SeedSequence(0))
    env.reset()
    seen = [episode for _ in range(30) for episode in env.step(torch.zeros(1, dtype=torch.long))[1].episodes]
    assert [episode.success for episode in seen] == [None, 1.0, 0.0]
    assert [episode.success_fraction for episode in seen] == [None, 0.1, 0.0]


def test_success_of_steps_before_a_snapshot_counts_after_it():
    def make():
        return VectorEnv(SyncPool([lambda: EnvSlot(lambda: Scripted({3: True}), 0)]), np.random.SeedSequence(0))

    one, other, action = make(), make(), torch.zeros(1, dtype=torch.long)
    one.reset()
    for _ in range(5):
        one.step(action)
    one.verdict = other.verdict = replace(one.verdict, method="native", reason="")
    other.set_extra_state(one.get_extra_state())
    seen = [other.step(action)[1].episodes for _ in range(5)]
    assert seen[-1][0].success_fraction == 0.1


def test_text_is_no_success():
    env = VectorEnv(SyncPool([lambda: EnvSlot(lambda: Scripted({1: "yes"}), 0)]), np.random.SeedSequence(0))
    env.reset()
    with pytest.raises(RunError, match=r"step 1: info\['is_success'\] is 'yes' instead of being a number"):
        env.step(torch.zeros(1, dtype=torch.long))


class Clocks(gym.vector.VectorEnv):
    """Two environments that show the step of an episode, which a time limit cuts at step 3. Both reset in that step."""

    num_envs = 2
    single_observation_space, single_action_space = gym.spaces.Box(0, 9, (1,)), gym.spaces.Discrete(2)

    def __init__(self, infos, mode=AutoresetMode.SAME_STEP):
        self.metadata = {"autoreset_mode": mode}
        self.infos = infos

    def reset(self, *, seed=None, options=None):
        self.t = np.arange(2)
        return self.t[:, None].astype(np.float32), {}

    def step(self, actions):
        final = self.t[:, None].astype(np.float32) + 1
        cut = self.t == 2
        self.t = np.where(cut, 0, self.t + 1)
        infos = self.infos(final, cut) if cut.any() else {}
        return self.t[:, None].astype(np.float32), np.ones(2), np.zeros(2, bool), cut, infos


def as_objects(final, cut):
    return np.array([row if over else None for row, over in zip(final, cut, strict=True)] + [None], object)[:2]


@pytest.mark.parametrize(
    "infos",
    [
        lambda final, cut: {"final_obs": as_objects(final, cut), "_final_obs": cut},
        lambda final, cut: {"final_observation": as_objects(final, cut), "_final_observation": cut},
        lambda final, cut: {"final_obs": np.where(cut[:, None], final, 99), "_final_obs": cut},
        lambda final, cut: {"final_obs": np.where(cut[:, None], final, 99)},  # as ALE's vector env
    ],
)
def test_same_step_reads_final_observations_of_ended_rows_only(infos):
    env = VectorEnv(Clocks(infos), np.random.SeedSequence(0))
    env.reset()
    steps = [env.step(torch.zeros(2, dtype=torch.long))[0] for _ in range(3)]
    assert [step["next_obs"].flatten().tolist() for step in steps] == [[1, 2], [2, 3], [3, 1]]
    assert [step["following"].flatten().tolist() for step in steps] == [[1, 2], [2, 0], [0, 1]]


@pytest.mark.parametrize(
    "infos",
    [
        lambda final, cut: {},
        lambda final, cut: {"is_success": cut},
        lambda final, cut: {"final_obs": np.full(2, None)},
        lambda final, cut: {"final_obs": final, "_final_obs": np.zeros(2, bool)},
    ],
)
def test_same_step_refuses_truncated_episodes_without_final_observation(infos):
    env = VectorEnv(Clocks(infos), np.random.SeedSequence(0), name="Clocks")
    env.reset()
    env.step(torch.zeros(2, dtype=torch.long))
    with pytest.raises(RunError, match=r"Clocks #1, seed .*, step 2: its episode is truncated .* no final_obs"):
        env.step(torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("key", ["final_obs", "final_observation"])
def test_other_autoreset_modes_refuse_final_observations(mode, key):
    env = VectorEnv(Clocks(lambda final, cut: {key: as_objects(final, cut)}, mode), np.random.SeedSequence(0))
    env.reset()
    env.step(torch.zeros(2, dtype=torch.long))
    with pytest.raises(RunError, match=f"infos hold {key}, so its autoreset_mode must be SAME_STEP"):
        env.step(torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize("mode", [None, "sometimes"])
def test_an_undeclared_autoreset_mode_is_refused(mode):
    with pytest.raises(ConfigError, match=rf"Clocks.metadata\['autoreset_mode'\] is {mode}; declare"):
        VectorEnv(Clocks(lambda final, cut: {}, mode), np.random.SeedSequence(0))
