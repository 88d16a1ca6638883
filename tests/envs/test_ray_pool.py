"""Environments in actors of Ray, with a stand-in for Ray; the slow test uses the real one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from stand_in_actors import GetTimeoutError, Method, StandIn
from toys import equal, put, toy, train

from rlrun.cli import main
from rlrun.envs.config import RayEnvConfig, too_many
from rlrun.envs.making.make import Recipe
from rlrun.envs.saving import verdicts
from rlrun.envs.stepping import ray_pool, vector
from rlrun.envs.stepping.ray_pool import RayPool
from rlrun.envs.stepping.slot import EnvSlot
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError, RunError
from rlrun.run.assemble import eval_env_config
from rlrun.testing import load, save

Make = Callable[..., VectorEnv]
Build = Callable[..., Any]
RESTART = {"backend": "ray", "on_failure": "restart"}


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    found = StandIn()
    monkeypatch.setattr(vector, "connected", lambda *_: found)
    yield found


def workers(number: int | None) -> RayEnvConfig:
    return RayEnvConfig(address="local", workers=number, cpus=0.5)


def steps(env: VectorEnv, count: int) -> list[Any]:
    return [env.step(torch.zeros(env.num_envs, dtype=torch.long)) for _ in range(count)]


@pytest.mark.parametrize("algo", ["ppo", "sac"])
@pytest.mark.parametrize("number", [None, 2])
def test_a_run_with_actors_equals_one_in_this_process_and_resumes_in_them(
    algo: str, number: int | None, ray: StandIn, build: Build, tmp_path: Path
) -> None:
    values = toy(algo, **{"env.num_envs": 3})
    there = put(values, {"env.backend": "ray", "env.ray.workers": number, "env.ray.cpus": 0.5})
    one, other = train(build(values), 6), train(build(there), 6)
    snapshot = save(other, tmp_path / "other")
    assert save(one, tmp_path / "run").digest == snapshot.digest
    resumed = build(there)
    load(resumed, snapshot)
    assert resumed.env.exactness == "exact"
    assert save(train(one, 12), tmp_path / "run").digest == save(train(resumed, 12), tmp_path / "run").digest
    assert len(ray.actors) == 2 * (number or 3)
    assert ray.options == {"num_cpus": 0.5, "max_restarts": 0, "max_task_retries": 0}


@pytest.mark.parametrize("id", ["CartPole-v1", "rlrun/Counter-v0"])
def test_environments_in_actors_save_and_restore_exactly(id: str, ray: StandIn, make: Make) -> None:
    env, restored, here = make(id, 2, backend="ray"), make(id, 2, backend="ray"), make(id, 2)
    for one in (env, here):
        one.reset()
        steps(one, 5)
    restored.set_extra_state(env.get_extra_state())
    for (step, events), (same, expected) in zip(steps(restored, 20), steps(here, 20), strict=True):
        assert equal(step, same) and events.episodes == expected.episodes


def test_actors_start_together(ray: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(ray, "get", lambda answer, timeout: started.append(len(ray.actors)) or answer)
    make("CartPole-v1", 3, backend="ray")
    assert started == [3, 3, 3]


def test_all_calls_of_a_step_go_to_an_actor_in_one_message(ray: StandIn, make: Make) -> None:
    env = make("CartPole-v1", 5, backend="ray", ray=workers(2), timeout_s=7.0)
    env.reset()
    before = [len(actor.names) for actor in ray.actors]
    env.begin(torch.zeros(5, dtype=torch.long))
    assert [len(actor.names) for actor in ray.actors] == [count + 1 for count in before], "begun in the background"
    steps(env, 1)
    assert [len(actor.names) for actor in ray.actors] == [count + 1 for count in before]
    left = np.array([21.0, 14.0]) - ray.limits[-2:]
    assert (left > 0).all() and (left < 1).all(), "env.timeout_s for each environment, from the beginning of the step"


@pytest.mark.parametrize("loss", ["killed", "hung"])
def test_restart_replaces_a_lost_actor_with_all_its_environments(loss: str, ray: StandIn, make: Make) -> None:
    env, twin = (make("CartPole-v1", 3, ray=workers(2), timeout_s=7.0, **RESTART) for _ in range(2))
    env.reset(), twin.reset()
    lost = ray.actors[0]
    lost.lives, lost.hangs = loss != "killed", loss == "hung"
    step, events = steps(env, 1)[0]
    assert step["weight"].tolist() == [0, 0, 1]
    reason = {"killed": "its actor is lost (RayError: The actor died)", "hung": "its actor gave no answer in 14 s"}
    assert [f"#{row}" in line and reason[loss] in line for row, line in enumerate(events.restarted)] == [True, True]
    assert [actor.lives for actor in ray.actors] == [False, True, True, True, True], "one actor replaces both"
    (same, _), (other, _) = steps(env, 1)[0], steps(twin, 2)[1]
    assert torch.equal(same["following"][2], other["following"][2]), "the other actor is not affected"


def test_a_lost_actor_loses_environments_that_it_did_not_step(ray: StandIn, make: Make) -> None:
    env = make("CartPole-v1", 2, ray=workers(1), **RESTART)
    env.reset()
    ray.actors[0].lives = False
    env.start({0: 5})
    assert list(env.lost) == [0]
    step, events = steps(env, 1)[0]
    assert (
        step["weight"].tolist() == [0, 0] and len(events.restarted) == 2 and "its actor is lost" in events.restarted[1]
    )
    assert all(step["weight"].all() for step, _ in steps(env, 5))


def test_a_lost_actor_ends_the_run_by_default(ray: StandIn, make: Make) -> None:
    env = make("CartPole-v1", 2, backend="ray")
    env.reset()
    ray.actors[1].lives = False
    with pytest.raises(RunError, match=r"env CartPole-v1 #1, seed \d+, step 1: its actor is lost"):
        steps(env, 1)
    assert not any(actor.lives for actor in ray.actors)


@pytest.mark.parametrize("number", [None, 1])
def test_restart_replaces_an_environment_that_raises_in_its_actor(number: int | None, ray: StandIn, make: Make) -> None:
    env = make("rlrun/Faulty-v0", 2, kwargs={"kind": "raise", "at": 3}, ray=workers(number), **RESTART)
    env.reset()
    found = steps(env, 7)
    assert [len(events.restarted) for _, events in found] == [0, 0, 2, 0, 0, 2, 0]
    assert all(f"#{row}: " not in line and f"#{row}" in line for row, line in enumerate(found[2][1].restarted))
    assert "ValueError: this environment raises on purpose" in found[2][1].restarted[1]
    assert len(ray.actors) == (number or 2)


def test_an_actor_with_other_versions_is_refused(ray: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    monkeypatch.setattr(ray_pool, "other_versions", lambda versions: seen.update(versions) or ["gymnasium 1.2 -> 0.1"])
    with pytest.raises(ConfigError, match=r"#0 cannot be made \(its actor on .* has other versions: gymnasium .* 0\.1"):
        make("CartPole-v1", 2, backend="ray")
    assert seen > {"rlrun", "gymnasium", "numpy"}, "those that the self-test found, too"
    assert ray.actors and not any(actor.lives for actor in ray.actors)
    assert verdicts.other_versions({"numpy": np.__version__}) == []
    assert verdicts.other_versions({"numpy": "0"}) == [f"numpy 0 -> {np.__version__}"]


def test_an_actor_that_does_not_start_is_a_line(ray: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Method, "remote", lambda *_: GetTimeoutError())
    with pytest.raises(ConfigError, match=r"its actor gave no answer in 60 s; has the cluster 0\.5 free CPUs for each"):
        make("CartPole-v1", 1, backend="ray", ray=workers(None))


def test_actors_close_their_environments_and_end(ray: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(EnvSlot, "close", lambda slot: closed.append(slot.index))
    env = make("CartPole-v1", 2, backend="ray")
    assert env.pool is not None
    env.pool.replace(1)
    assert closed == [1]
    env.close()
    assert closed == [1, 0, 1]
    assert [(actor.names[-1], actor.lives) for actor in ray.actors] == [("close", False)] * 2


def test_actors_of_evaluations_reserve_no_cpus(config: Any, ray: StandIn) -> None:
    run: Any = SimpleNamespace(env=config("CartPole-v1", backend="ray"), trainer=SimpleNamespace(eval_max_steps=9))
    assert eval_env_config(run, 2).backend == "ray" and eval_env_config(run, 2).ray.cpus == 0


def test_every_environment_must_have_the_form_of_the_first(
    ray: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(RayPool, "check_form", lambda pool, index, form: seen.append(index))
    pool = make("CartPole-v1", 2, backend="ray").pool
    assert pool is not None
    pool.replace(1)
    assert seen == [0, 1, 1]


def test_too_many_environments_are_refused(config: Any) -> None:
    assert "must be at most 4096 with env.backend=ray" in too_many(config("CartPole-v1", 4097, backend="ray"))[0]


def test_an_environment_in_a_new_actor_is_recorded_for_replay(ray: StandIn, make: Make) -> None:
    env, other = make("rlrun/Hidden-v0", 2, **RESTART), make("rlrun/Hidden-v0", 2, seed=1)
    assert env.pool is not None and env.pool.replay_limit_s == 5.0
    env.reset()
    assert env.method == "replay"
    ray.actors[0].lives = False
    steps(env, 1)
    other.set_extra_state(env.get_extra_state())
    assert other.exactness == "exact"
    assert torch.equal(steps(other, 1)[0][0]["following"], steps(env, 1)[0][0]["following"])


def test_an_actor_imports_the_modules_of_the_user(ray: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(Recipe, "modules", ["mine"])
    monkeypatch.setattr(ray_pool, "import_named", lambda name, key: imported.append(name))
    make("CartPole-v1", 2, backend="ray")
    assert imported == ["mine", "mine"]


def test_rewards_of_goals_are_computed_in_a_worker(ray: StandIn, make: Make) -> None:
    goal_rewards = make("CartPole-v1", backend="ray").goal_rewards
    assert goal_rewards is not None and goal_rewards.in_worker


def test_a_run_with_actors_resumes_with_others_and_is_evaluated_without_them(
    ray: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    words = ["algo=q_learning", "env=FrozenLake", "preset=none", "env.num_envs=2", "trainer.total_steps=200"]
    words += ["trainer.eval_episodes=2", "logger=[]", "trainer.eval_every=100"]
    there = ["env.backend=ray", "env.ray.address=127.0.0.1:1"]
    assert main(["train", *words, f"run_dir={tmp_path}/one"]) == 0
    assert main(["train", *words, *there, "trainer.eval_beside=true", f"run_dir={tmp_path}/other"]) == 0
    assert len(ray.actors) == 4, "of training and of the last evaluation; the first was in the process beside training"
    assert main(["resume", f"{tmp_path}/one", "total_steps=400"]) == 0
    resume = ["resume", f"{tmp_path}/other", "total_steps=400", "trainer.eval_beside=false"]
    assert main([*resume, "env.ray.workers=1", there[1]]) == 0
    assert len(ray.actors) == 4 + 1 + 2 * 1, "of training, and of two evaluations"
    digests = [
        (tmp_path / name / "snapshots/step_000000400/agent.safetensors").read_bytes() for name in ("one", "other")
    ]
    assert digests[0] == digests[1]
    monkeypatch.setattr(vector, "connected", None)
    tables = []
    for name in ("one", "other"):
        capsys.readouterr()
        assert main(["eval", f"{tmp_path}/{name}", "episodes=2"]) == 0
        tables.append(capsys.readouterr().out.splitlines()[1:-1])  # between the name of the run and its JSON
    assert tables[0] == tables[1]


def test_shards_are_refused(ray: StandIn, build: Build) -> None:
    values = put(toy("ppo", **{"env.num_envs": 4, "algo.loop.shards": 2}), {"env.backend": "ray"})
    with pytest.raises(ConfigError, match=r"env\.backend=ray: algo\.loop\.shards=2 steps .* set cluster=ray instead"):
        build(values)
    assert not ray.actors


@pytest.mark.slow
def test_environments_in_actors_of_ray_equal_those_in_this_process(make: Make) -> None:
    real = pytest.importorskip("ray")
    env, here = make("CartPole-v1", 2, ray=workers(None), **RESTART), make("CartPole-v1", 2)
    try:
        for one in (env, here):
            one.reset()
        for (step, events), (same, expected) in zip(steps(env, 30), steps(here, 30), strict=True):
            assert equal(step, same) and events.episodes == expected.episodes
        saved = env.get_extra_state()
        real.kill(env.venv.actors[1].handle)
        step, events = steps(env, 1)[0]
        assert step["weight"].tolist() == [1, 0] and "its actor is lost" in events.restarted[0]
        env.set_extra_state(saved)
        for (step, _), (same, _) in zip(steps(env, 30), steps(here, 30), strict=True):
            assert equal(step, same)
    finally:
        env.close()
        real.shutdown()
