"""Every option of every buffer, loop, network and norm, in a run that snapshots, is killed and resumed.

The options follow from the Config classes, so a new one is tried without further changes. By default one option of each
part is tried, if the part has more state than its weights; `-m full` tries one of the others, `-m slow` all options.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
from rows.processes import Board, warm
from rows.runs import Disturbed
from toys import Values, derived, put, recorded, small

from rlrun.config.jobs import jobs
from rlrun.dotted import leaves, show
from rlrun.run import lifecycle
from rlrun.settings import parts_of, registry

SECTIONS = {"buffer": "algo.buffer", "loop": "algo.loop", "network": "network", "norm": "network.norm"}
COMMON = ["preset=none", "logger=[]", "trainer.eval_episodes=2", "trainer.eval_max_steps=20",
          "trainer.snapshot_every=24", "trainer.log_every=8"]  # fmt: skip
FRAMES_ENV = Path(__file__).parents[1] / "frames_env.py"
FRAMES = ["algo=dqn", f"env={FRAMES_ENV}:Frames"]
RECURRENT = ["algo=recurrent_sac", "env=Pendulum"]

# The run in which a part is tried.
HOSTS = {
    "buffer.demos": ["algo=ppo_demos", "env=DeepSea", "env.kwargs.size=4"],
    "buffer.hindsight": ["algo=dqn", "env=BitFlip", "algo.buffer=hindsight"],
    "buffer.prioritized": ["algo=dqn", "env=CartPole", "algo.buffer=prioritized"],
    "buffer.prioritized_hindsight": ["algo=dqn", "env=BitFlip", "algo.buffer=prioritized_hindsight"],
    "buffer.replay": ["algo=sac", "env=Pendulum"],
    "loop.demonstrations": ["algo=ppo_demos", "env=DeepSea", "env.kwargs.size=4"],
    "loop.episodes": ["algo=vpg", "env=CartPole", "trainer.total_steps=320"],
    "loop.evolution": ["algo=cem", "env=CartPole"],
    "loop.hybrid": ["algo=sac_from_data", "env=Pendulum", "algo.buffer.capacity=64"],
    "loop.meta": ["algo=maml", "env=CartPole", "trainer.total_steps=960"],
    "loop.offline": ["algo=bc", "env=Pendulum", "algo.buffer.capacity=64"],
    "loop.offpolicy": ["algo=sac", "env=Pendulum"],
    "loop.offpolicy_episodes": ["algo=dqn", "env=CartPole", "algo.loop=offpolicy_episodes"],
    "loop.onpolicy": ["algo=ppo", "env=CartPole"],
    "network.auto": ["algo=ppo", "env=CartPole", "network=auto"],
    "network.cnn": [*FRAMES, "network=cnn", "network.convolutions=[[4,3,2]]"],
    "network.gru": [*RECURRENT, "network=gru"],
    "network.impala": [*FRAMES, "network=impala", "network.sections=[4]"],
    "network.linear": ["algo=cem", "env=CartPole", "network=linear"],
    "network.lstm": [*RECURRENT, "network=lstm"],
    "network.mlp": ["algo=sac", "env=Pendulum", "network=mlp"],
    "norm.batch_renorm": ["algo=crossq", "env=Pendulum", "network.norm=batch_renorm"],
    "norm.layer": ["algo=sac", "env=Pendulum", "network.norm=layer"],
    "norm.none": ["algo=sac", "env=Pendulum", "network.norm=none"],
}
# Networks and norms that hold nothing but weights, which every snapshot has.
WEIGHTS_ALONE = ("network.auto", "network.cnn", "network.impala", "network.linear", "network.lstm", "network.mlp",
                 "norm.layer", "norm.none")  # fmt: skip
# They stand for a data set of random episodes in the environment of the run, and for a new folder.
DATA, SAVED = "DATA", "SAVED"

# Values of keys whose type is too wide to choose from.
VALUES: dict[str, list[Any]] = {
    "algo.loop.updates_per_iteration": [3, "episodes"],
    "algo.buffer.achieved_goal": [],  # names of keys of the observation
    "algo.buffer.beta": [{"name": "linear", "start": 0.2, "end": 0.6, "fraction": 0.5}],
    "algo.buffer.desired_goal": [],
    "algo.buffer.dtypes": [{"obs": "float16"}],
    "algo.loop.dtypes": [{"obs": "bfloat16"}],
    "algo.buffer.given": [DATA],
    "algo.buffer.own": [DATA],
    "algo.buffer.supplementary": [DATA],
    "algo.buffer.save_to": [SAVED],
    "algo.loop.data": [DATA, [DATA, DATA]],
    "network.hidden": [[4, 6]],
    "network.convolutions": [[[4, 3, 2], [6, 2, 1]]],
    "network.sections": [[4, 6]],
    "network.previous": [["action", "reward"]],
    "network.pixel_range": [[-1.0, 1.0]],
}
# Settings that reach outside of the run, so that they must be typed again when it is resumed.
TYPED_AGAIN = ("algo.buffer.supplementary=", "algo.buffer.save_to=")
# Words that an option needs.
NEEDS = {
    "loop.episodes: algo.loop.min_steps=null": ["algo.loop.min_rollouts=2"],
    "loop.evolution: algo.loop.shards=2": ["trainer.total_steps=2000"],  # a tick is a generation
}


class Option(NamedTuple):
    """A value of a key of a part; key and value are None for the part with its defaults."""

    part: str  # group.name
    key: str | None
    value: Any

    def __str__(self) -> str:
        if self.key is None:
            return self.part
        return f"{self.part}: {self.key}={show(self.value)}"


def options_of(part: str) -> Iterator[Option]:
    """Yields the part with its defaults, and every option of its own keys."""
    group, _, name = part.partition(".")
    yield Option(part, None, None)
    config = registry.lookup(group, name).Config
    nested = parts_of(config)
    known = dict(leaves(composed(*HOSTS[part])))
    for field, kind in get_type_hints(config, include_extras=True).items():
        if field in nested:  # tried as a part of its own
            continue
        key = f"{SECTIONS[group]}.{field}"
        for value in values_of(key, kind, known.get(key)):
            yield Option(part, key, value)


def values_of(key: str, kind: Any, value: Any) -> list[Any]:
    """Returns values of a key other than this one: every name, the other bool, another number, None."""
    if key in VALUES:
        return VALUES[key]
    kinds = get_args(kind)
    found: list[Any] = []
    if NoneType in kinds:
        found.append(None)
        (kind,) = [one for one in kinds if one is not NoneType]
    choices = derived(kind, 1 if value is None else value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        choices = [choice for choice in choices if choice != value][:1]
    found += choices
    return [one for one in found if one != value]


@cache
def composed(*words: str) -> Values:
    """Returns the composed values of a run with small sizes."""
    values = jobs([*COMMON, *words])[0].values
    return put(values, small(dict(leaves(values))))


def command(option: Option, folder: Path, engine: str) -> list[str]:
    """Returns the words of a small run with an option."""
    host = HOSTS[option.part]
    if option.value == "lz4":
        env = "GoalFrames" if "hindsight" in option.part else "Frames"
        host = ["algo=dqn", f"env={FRAMES_ENV}:{env}", *host[2:]]
    values = composed(*host)
    words = {key: show(size) for key, size in small(dict(leaves(values))).items()}
    words |= dict(
        word.split("=", 1) for word in [*COMMON, f"trainer.engine={engine}", *host, *NEEDS.get(str(option), [])]
    )
    data = None
    has_data = "data" in values["algo"]["loop"]
    if has_data or DATA in str(option.value):
        data = recorded(json.dumps(values))
    if has_data:
        words["algo.loop.data"] = str(data)
    if option.key is not None:
        text = json.dumps(option.value).replace(DATA, str(data)).replace(SAVED, str(folder / "saved"))
        words[option.key] = show(json.loads(text))
    return [f"{key}={value}" for key, value in words.items()]


def test_every_buffer_loop_network_and_norm_is_tried() -> None:
    assert HOSTS.keys() == {f"{group}.{name}" for group in SECTIONS for name in registry.modules()[group]}


@pytest.mark.parametrize("part", HOSTS)
def test_every_key_of_a_part_has_an_option(part: str) -> None:
    group, _, name = part.partition(".")
    config = registry.lookup(group, name).Config
    keys = {f"{SECTIONS[group]}.{field.name}" for field in fields(config)} - {"network.norm"}
    assert keys - {option.key for option in options_of(part)} == {key for key in keys if VALUES.get(key) == []}


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    warm([HOSTS["loop.offpolicy"]])


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.full] if part in WEIGHTS_ALONE else []) for part in HOSTS]
)
def test_a_killed_run_with_an_option_equals_one_that_never_stopped(part: str, tmp_path: Path) -> None:
    *_, last = options_of(part)
    assert not faults_of(last, tmp_path, engine="eager")  # a recording costs more than so few steps


@pytest.mark.slow
@pytest.mark.parametrize("part", HOSTS)
def test_a_killed_run_with_every_option_equals_one_that_never_stopped(part: str, tmp_path: Path) -> None:
    faults = {}
    for number, option in enumerate(options_of(part)):
        if found := faults_of(option, tmp_path / str(number), engine="auto"):
            faults[str(option)] = found
    assert not faults


def faults_of(option: Option, folder: Path, engine: str) -> list[str]:
    """Returns how a run that was killed and resumed differs from an undisturbed one."""
    folder.mkdir(exist_ok=True)
    words = command(option, folder, engine)
    again = [word for word in words if word.startswith(TYPED_AGAIN)]
    if any(str(FRAMES_ENV) in word for word in words):
        again.append(f"plugins=[{FRAMES_ENV}]")
    alone, killed = Disturbed(folder / "alone", words), Disturbed(folder / "killed", words, again)
    child = alone.go()
    if child.finish() != 0:
        return [child.said()]
    child = killed.go(partial(kill_after_a_snapshot, killed.path))
    if child.finish() != -signal.SIGKILL or killed.latest() < 1:
        return [f"not killed after a snapshot: {child.said()}"]
    child = killed.go()
    if child.finish() != 0 or "not exact" in child.said():
        return [child.said()]
    return killed.differences(alone)


def kill_after_a_snapshot(run: Path, board: Board) -> None:
    """Lets this process kill itself in the second half of the run, as soon as there is a snapshot."""
    build = lifecycle.build_loop

    def build_deadly(config: Any) -> Any:
        loop = build(config)
        tick = loop.tick

        def last_tick() -> Any:
            metrics = tick()
            if loop.steps > config.trainer.total_steps // 2:
                while not (run / "snapshots" / "LATEST").exists():
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGKILL)
            return metrics

        loop.tick = last_tick
        return loop

    lifecycle.build_loop = build_deadly
