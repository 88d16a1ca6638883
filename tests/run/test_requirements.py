"""What parts of a run require of each other is checked before anything is built, and all faults come together."""

from typing import Any

import pytest

from rlrun.agents.particles.svpg import SVPG
from rlrun.agents.tabular.sarsa import SARSA
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.envs.wrappers.hold import Hold
from rlrun.errors import ConfigError
from rlrun.loops.around import around_algorithm
from rlrun.loops.demonstrations import Demonstrations
from rlrun.loops.meta import Meta
from rlrun.loops.offline import Offline
from rlrun.loops.offpolicy import OffPolicy
from rlrun.networks.recurrent import Lstm
from rlrun.run.assemble import check_requirements
from rlrun.settings import Around

REPLAY = Around("sac", "offpolicy", "lstm", buffer="replay", keeps_replay=True, recurrent=True, remembers=True)
META = Around("maml", "meta", draws_tasks=True, eval_episodes=8)
LSTM = {"sequence_length": 8, "burn_in": 0, "start": "stored", "previous": []}


@pytest.mark.parametrize(
    ("part", "own", "around", "line"),
    [
        (OffPolicy, {}, REPLAY, None),
        (
            OffPolicy,
            {},
            Around("ppo", "offpolicy"),
            "algo.loop=offpolicy is not supported by algo=ppo, which has no replay",
        ),
        (
            Meta,
            {"new_tasks": True, "test_tasks": None},
            REPLAY._replace(loop="meta"),
            "algo.loop=meta is not supported by algo=sac, which learns from replay",
        ),
        (OffPolicy, {}, REPLAY._replace(snapshot_replay=False), None),
        (
            Offline,
            {},
            REPLAY._replace(loop="offline", snapshot_replay=False),
            "trainer.snapshot_replay=false is not supported by algo.loop=offline: replay holds data sets, which a "
            "resumed run does not read again",
        ),
        (Meta, {"new_tasks": True, "test_tasks": 8}, META, None),
        (Meta, {"new_tasks": False, "test_tasks": None}, META._replace(instance_seed=1), None),
        (
            Meta,
            {"new_tasks": True, "test_tasks": None},
            META._replace(instance_seed=1),
            "env.instance_seed=1: gives training and evaluation the same tasks; leave it out, or set "
            "algo.loop.new_tasks=false",
        ),
        (
            Meta,
            {"new_tasks": True, "test_tasks": 9},
            META,
            "algo.loop.test_tasks=9: must be at most trainer.eval_episodes=8, because every task has an episode",
        ),
        (Meta, {"new_tasks": True, "test_tasks": 9}, META._replace(eval_episodes=0), None),
        (Demonstrations, {}, Around("ppo_demos", "demonstrations", buffer="demos"), None),
        (
            Demonstrations,
            {},
            Around("ppo", "demonstrations"),
            "algo.loop=demonstrations is not supported by algo=ppo, which has no algo.buffer=demos",
        ),
        (SARSA, {}, Around("sarsa", "onpolicy"), None),
        (
            SARSA,
            {},
            Around("sarsa", "episodes"),
            "algo.loop=episodes is not supported by algo=sarsa, which keeps a trace for each environment, not for each "
            "episode; choose algo.loop=onpolicy",
        ),
        (SVPG, {}, Around("svpg", "onpolicy"), None),
        (
            SVPG,
            {},
            Around("svpg", "episodes"),
            "algo.loop=episodes is not supported by algo=svpg: each particle learns from its own environments, but "
            "this loop regroups their episodes; choose algo.loop=onpolicy",
        ),
        (Lstm, LSTM, REPLAY, None),
        (
            Lstm,
            LSTM,
            REPLAY._replace(remembers=False),
            "network=lstm is not supported by algo=sac, which keeps no recurrent state between steps",
        ),
        (
            Lstm,
            LSTM,
            REPLAY._replace(addons=("goals",)),
            "network=lstm is not supported with algo.goals, which takes no sequences",
        ),
        (Lstm, LSTM, REPLAY._replace(addons=("goals",), buffer=None, keeps_replay=False), None),
        (
            Lstm,
            LSTM | {"critic": {"burn_in": 4, "features": 8}},
            REPLAY,
            "network.critic.burn_in: is the same for the whole agent; set network.burn_in",
        ),
        (
            Lstm,
            LSTM | {"start": "zero"},
            REPLAY._replace(algo="ppo", buffer=None),
            "network.burn_in=0, network.start=zero: algo=ppo learns from rollouts, whose recurrent states are never "
            "outdated; set burn_in=0 and start=stored",
        ),
    ],
)
def test_part_names_what_it_is_not_supported_with(part: Any, own: Any, around: Around, line: str | None) -> None:
    assert [*part.requires(own, around)] == [line] * (line is not None)


def test_hold_refuses_a_discount_of_each_component() -> None:
    own = {"gamma": 0.9}
    around = Around("sac", "offpolicy", gamma=0.9, discounts=[0.0, 0.9])
    [line] = Hold.requires(own, around)
    assert line.startswith("algo.reward_weights.gamma=[0.0, 0.9]: is not supported with env.wrappers.hold")
    assert not [*Hold.requires(own, around._replace(discounts=None))]
    values = jobs(["algo=sac", "env=PointRun", "preset=none", "algo.reward_weights.gamma=[0.0,0.9]"])[0].values
    assert around_algorithm(values["algo"]).discounts == [0.0, 0.9]


def test_faults_of_several_parts_come_together() -> None:
    words = ["algo=sac_hold", "env=Pendulum", "preset=none", "network=lstm", "env.wrappers.hold.gamma=0.5"]
    values = jobs([*words, "network.actor.burn_in=3", "algo.loop=offline", "algo.loop.data=x"])[0].values
    values["trainer"]["snapshot_replay"] = False
    with pytest.raises(ConfigError) as caught:
        check_requirements(run_config(values))
    assert [fault.partition(":")[0].partition(" ")[0] for fault in caught.value.faults] == [
        "trainer.snapshot_replay=false",
        "network.actor.burn_in",
        "env.wrappers.hold.gamma=0.5",
        "env.wrappers.hold",
        "env.wrappers.hold",
    ]
