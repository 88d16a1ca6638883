"""Schedules of environment parameters: values, stages, state, and how environments receive them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import rlrun
from rlrun.envs.stepping.slot import PARAMETERS, EnvError, EnvSlot
from rlrun.errors import ConfigError
from rlrun.schedules.attribute import OF_MUJOCO
from rlrun.schedules.curriculum import Curriculum
from rlrun.types import Episode


def values_at(curriculum: Curriculum, steps: list[int], horizon: int = 100) -> list[float]:
    return [curriculum.values(step, step / horizon)["x"] for step in steps]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"by": "steps", "values": [1.0, 2.0, 4.0], "at": [0, 10, 50]}, [1.0, 1.0, 2.0, 4.0]),
        ({"by": "steps", "values": [1.0, 2.0, 4.0], "at": [0, 10, 50], "linear": True}, [1.0, 1.9, 3.0, 4.0]),
        ({"by": "progress", "values": [1.0, 2.0], "at": [0.0, 0.5]}, [1.0, 1.0, 1.0, 2.0]),
        ({"by": "progress", "values": [0.0, 1.0], "at": [0.1, 0.5], "linear": True}, [0.0, 0.0, 0.5, 1.0]),
    ],
)
def test_parameter_follows_steps_and_progress(schedule: dict[str, Any], expected: list[float]) -> None:
    assert values_at(Curriculum({"x": schedule}), [0, 9, 30, 90]) == pytest.approx(expected)


def test_linear_parameter_changes_a_hundred_times() -> None:
    curriculum = Curriculum({"x": {"by": "steps", "values": [0.0, 1.0], "at": [0, 100_000], "linear": True}})
    assert len({*values_at(curriculum, [*range(0, 100_001, 7)], 100_000)}) == 101


def test_attribute_of_an_attribute_is_a_nested_section() -> None:
    schedule = {"by": "steps", "values": [1.0, 2.0], "at": [0, 10]}
    curriculum = Curriculum({"model": {"opt": {"timestep": schedule}, "gain": schedule}, "x": schedule})
    assert curriculum.values(0, 0.0).keys() == {"model.opt.timestep", "model.gain", "x"}


@pytest.mark.parametrize("by", ["success", "return"])
def test_parameter_moves_to_the_next_stage_at_the_mean_of_enough_episodes(by: str) -> None:
    curriculum = Curriculum({"x": {"by": by, "values": [1.0, 2.0, 3.0], "at": 0.75, "episodes": 4e0}})

    def observe(results: list[float]) -> float:
        for result in results:
            if by == "return":
                curriculum.observe([Episode(result, 10)])
            else:
                curriculum.observe([Episode(-1.0, 10, success=result or None)])  # 0: not reported
        return values_at(curriculum, [0])[0]

    assert observe([1, 1, 1]) == 1.0, "three episodes are too few"
    assert observe([0]) == 2.0
    assert observe([0, 1, 1]) == 2.0, "episodes of the stage before do not count"
    assert observe([1]) == 3.0
    assert observe([1, 1, 1, 1]) == 3.0, "it is the last stage"


def test_state_of_a_curriculum_is_restored() -> None:
    schedule = {"by": "success", "values": [1.0, 2.0, 3.0], "at": 0.5, "episodes": 2}
    one, other = Curriculum({"x": schedule}), Curriculum({"x": schedule})
    one.observe([Episode(0.0, 1, success=1.0)] * 3)
    other.set_extra_state(json.loads(json.dumps(one.get_extra_state())))
    for curriculum in (one, other):
        curriculum.observe([Episode(0.0, 1, success=0.0)])
        assert values_at(curriculum, [0]) == [3.0]


@pytest.mark.parametrize(
    ("schedule", "line"),
    [
        (
            {"by": "steps", "values": [1.0, 2.0], "at": [0]},
            r"env\.schedule\.x\.at=\[0.*\]: must be 2 increasing",
        ),
        ({"by": "steps", "values": [1.0, 2.0], "at": [5, 0]}, r"at=\[5.*\]: must be 2 increasing numbers"),
        ({"by": "success", "values": [1.0, 2.0], "at": [0, 1]}, "by=success needs one number at"),
        ({"by": "progress", "values": [1.0, 2.0], "at": [-5, 7]}, r"at=\[-5.0, 7.0\]: progress is from 0 to 1"),
        ({"by": "steps", "values": [1.0, 2.0], "at": [-5, 7]}, r"at=\[-5.0, 7.0\]: steps are from 0 on"),
        ({"by": "success", "values": [1.0, 2.0], "at": 2}, r"x\.at=2: a success rate is from 0 to 1"),
        ({"by": "return", "values": [1.0, 2.0], "at": 1, "episodes": 1e20}, r"\.episodes=1.*: must be less than or"),
        ({"by": "steps", "values": [1.0, 2.0], "at": "soon"}, r"\.at='soon': must be a valid list"),
        ({"by": "time", "values": [1.0, 2.0], "at": 1}, r"env\.schedule\.x\.by='time': must be 'steps'"),
        ({"by": "steps", "values": [1.0], "at": [0]}, r"env\.schedule\.x\.values"),
        ({"by": "steps", "values": [1.0, 2.0]}, r"env\.schedule\.x\.at: missing"),
    ],
)
def test_schedule_with_wrong_settings_is_refused(schedule: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line) as refused:
        Curriculum({"x": schedule})
    assert len(refused.value.faults) == 1


class Gain(gym.Env[np.ndarray, np.ndarray]):
    """The reward of every step is `gain`, which changes only between episodes."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, gain: float = 1.0):
        self.gain = gain

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        assert not options
        self.steps, self.first_gain = 0, self.gain
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.gain == self.first_gain
        self.steps += 1
        info = {"gain": self.gain, "is_success": True}
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), self.gain, False, self.steps == 10, info


class Replayed(Gain):
    """An environment that can only be restored by replaying its episode: a generator holds its observations."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        answer = super().reset(seed=seed, options=options)
        self.coming = (row for row in self.np_random.uniform(-1, 1, (100, 1)).astype(np.float32))
        return answer

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        _, *rest = super().step(action)
        return next(self.coming), *rest  # type: ignore[return-value]


WORDS = ["algo=sac", "preset=none", "trainer.eval_every=0", "trainer.eval_episodes=0", "trainer.log_every=20",
         "network.hidden=[8]", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8", "trainer.engine=eager",
         "logger=[]", "env.log_info=[gain]", "env.num_envs=2"]  # fmt: skip
BY_STEPS = "env.schedule.gain={by: steps, values: [1, 3], at: [0, 30]}"
BY_SUCCESS = "env.schedule.gain={by: success, values: [1, 3, 5], at: 0.5, episodes: 3}"


def train(env: Any, folder: Path, total_steps: int, *words: str) -> Any:
    return rlrun.train(*WORDS, *words, f"trainer.total_steps={total_steps}", env=env, run_dir=str(folder))


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_environments_take_the_value_at_their_next_episode(backend: str, tmp_path: Path) -> None:
    run = train(Gain, tmp_path / "run", 80, BY_STEPS, f"env.backend={backend}")
    assert [row["custom/gain"] for row in run.rows] == [1.0, 1.0, 3.0, 3.0]
    assert [row["train/return_mean"] for row in run.rows] == [10.0, 10.0, 30.0, 30.0]


@pytest.mark.parametrize("env", [Gain, Replayed])
@pytest.mark.parametrize("schedule", [BY_STEPS, BY_SUCCESS], ids=["steps", "success"])
def test_scheduled_run_resumes_exactly(env: Any, schedule: str, tmp_path: Path) -> None:
    whole = train(env, tmp_path / "whole", 100, schedule)
    half = train(env, tmp_path / "half", 60, schedule).resume(total_steps=100, env=env)
    meta = json.loads((half.path / "meta.json").read_text())
    assert meta["env_state"] == ("native" if env is Gain else "replay")
    assert meta["resumed"][0]["verdict"] == "exact"
    last = {row["step"]: row for row in half.rows}
    assert whole.rows[-1]["custom/gain"] > 1.0
    for row in whole.rows:
        if row["step"] > 60:
            assert row["train/return_smooth"] == last[row["step"]]["train/return_smooth"]
            assert row.get("loss/critic") == last[row["step"]].get("loss/critic")


def test_attribute_of_a_simulator_resumes_exactly(tmp_path: Path) -> None:
    words = [word for word in WORDS if not word.startswith("env.")]
    schedule = "env.schedule.model.opt.timestep={by: steps, values: [0.01, 0.03], at: [0, 20]}"
    words += ["env=InvertedPendulum-v5", "env.max_episode_steps=30", schedule, "trainer.eval_every=0"]
    whole = rlrun.train(*words, "trainer.total_steps=80", run_dir=str(tmp_path / "whole"))
    half = rlrun.train(*words, "trainer.total_steps=40", run_dir=str(tmp_path / "half")).resume(total_steps=80)
    assert json.loads((half.path / "meta.json").read_text())["resumed"][0]["verdict"] == "exact"
    rows, others = whole.rows[-2:], half.rows[-2:]
    for key in ("step", "loss/critic", "loss/q", "train/episodes", "train/return_mean"):
        assert [row.get(key) for row in rows] == [row.get(key) for row in others], key


def test_a_snapshot_sets_only_scheduled_attributes() -> None:
    one, other = EnvSlot(Gain, 0), EnvSlot(Gain, 0)
    for slot in (one, other):
        slot.set_parameters({"gain": 2.0})
    one.reset(seed=0)
    other.set_parameters({"gain": 3.0})
    tree = one.save()
    assert tree[PARAMETERS] == {"gain": 2.0}
    tree[PARAMETERS]["step"] = 1.0
    assert other.load(tree, 1.0) == ""
    assert other.applied == {"gain": 2.0} and callable(other.env.unwrapped.step)
    assert EnvSlot(Gain, 0).load(tree, 1.0) == "Gain was made with another gain"


class Frozen(NamedTuple):
    friction: float = 0.5


class Crowded(Gain):
    """Has attributes of all kinds."""

    limit, weight = 10, 1.5
    active, label, part, kind = True, "x", Frozen(), Frozen

    @property
    def mass(self) -> float:
        return 2.0


@pytest.mark.parametrize(
    "name",
    ["step", "reset", "action_space", "action_space.seed", "np_random", "np_random_seed", "spec", "unwrapped", "active",
     "label", "part", "part.friction", "kind.friction", "mass", "step.calls", "__class__.render", "__class__.weight",
     "__class__.__base__.spec", "__dict__.gain", "reset.__func__.__code__.co_argcount"],
)  # fmt: skip
def test_schedule_changes_only_numbers_of_an_environment(name: str) -> None:
    slot, before = EnvSlot(Crowded, 0), {cls: dict(vars(cls)) for cls in Crowded.__mro__}
    with pytest.raises(EnvError) as refused:
        slot.set_parameters({name: 1.0})
    assert str(refused.value).startswith(f"environment 0: env.schedule.{name}: ") and "\n" not in str(refused.value)
    slot.reset(seed=0)
    assert {cls: dict(vars(cls)) for cls in Crowded.__mro__} == before and callable(slot.env.step)


@pytest.mark.parametrize(
    "name",
    ["data.narena", "data.threadpool", "data.time", "model.nq", "model.opt.iterations", "model.opt.tolerance",
     "model.stat.extent", "np_random.bit_generator.ctypes.state.value"],
)  # fmt: skip
def test_schedule_changes_no_memory_of_a_library(name: str) -> None:
    slot = EnvSlot(lambda: gym.make("InvertedPendulum-v5"), 0)
    with pytest.raises(EnvError, match=rf"env\.schedule\.{name}: is "):
        slot.set_parameters({name: 1.0})
    for allowed in OF_MUJOCO:
        slot.set_parameters({f"model.opt.{allowed}": 0.01})
    slot.close()


def test_whole_numbers_stay_whole() -> None:
    slot = EnvSlot(Crowded, 0)
    slot.set_parameters({"limit": 7.000000000000001, "weight": 2.0})
    slot.reset(seed=0)
    env: Any = slot.env.unwrapped
    assert (repr(env.limit), repr(env.weight)) == ("7", "2.0")
    with pytest.raises(EnvError, match=r"env\.schedule\.limit: is the whole number 7 in the environment, .* 7\.5"):
        slot.set_parameters({"limit": 7.5})


def test_all_values_of_a_schedule_are_tried_before_the_run(tmp_path: Path) -> None:
    linear = {"by": "progress", "values": [1.0, 3.0], "at": [0, 1], "linear": True}
    assert Curriculum({"x": linear}).samples()[2] == {"x": 1.02}
    with pytest.raises(ConfigError, match=r"^env\.schedule\.limit: is the whole number 10 .* cannot be 2\.5$"):
        train(Crowded, tmp_path / "run", 20, "env.schedule.limit={by: steps, values: [10, 2.5], at: [0, 10]}")
    assert not (tmp_path / "run").exists()


def test_unknown_attribute_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^env\.schedule\.gian: the environment has no such attribute"):
        train(Gain, tmp_path / "run", 20, BY_STEPS.replace("gain=", "gian="))
    assert not (tmp_path / "run").exists()


def test_simulators_take_no_schedule(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"env\.schedule: is not supported by rlrun/BernoulliBandit-v0"):
        rlrun.train("algo=ucb", "env=BernoulliBandit", BY_STEPS, run_dir=str(tmp_path / "run"))
