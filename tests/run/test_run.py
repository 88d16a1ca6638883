"""Assembling a run: weights from the seed or from another run, and values that no part accepts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from toys import Values, equal, put, toy, train, weights

import rlrun
from rlrun.config.resumable import Recorded
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.envs.saving.verdicts import Verdict
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.errors import ConfigError
from rlrun.run.assemble import build_loop
from rlrun.run.checkpointer import rings
from rlrun.run.lifecycle import announcements, build_new, make_trainer
from rlrun.run.signals import Signals
from rlrun.run.weights import load_part, warm_start
from rlrun.snapshot.store import Store, step_name

Build = Callable[..., Loop]


def saved(loop: Loop, run: Path) -> Path:
    run.mkdir()
    store = Store(run, keep=1)
    store.save(step_name(loop.steps), loop.state_dict(), rings(loop), {"step": loop.steps}, {})
    store.close()
    return run


def test_first_weights_follow_the_seed_and_nothing_else(build: Build) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = weights(build(toy("ppo", seed=3)))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert equal(first, weights(build(toy("ppo", seed=3))))
    assert not equal(first, weights(build(toy("ppo", seed=4))))


def test_a_run_starts_from_the_weights_and_statistics_of_another(build: Build, tmp_path: Path) -> None:
    values = toy("ppo", **{"env.normalize.kind": "both"})
    trained = train(build(values), 3)
    path = saved(trained, tmp_path / "run")
    for source in (path, path / "snapshots" / step_name(trained.steps)):
        fresh = build(values)
        warm_start(source, fresh)
        assert equal(weights(fresh), weights(trained))
        assert torch.equal(fresh.addons[0].statistics.live.mean, trained.addons[0].statistics.live.mean)
        assert fresh.agent.optim.steps == 0 and not fresh.agent.optim.exp_avg.any(), "optimisers start fresh"
        assert fresh.steps == fresh.updates == 0
        assert torch.equal(fresh.agent.optim.flat[:5], trained.agent.optim.flat[:5]), "weights stay the optimiser's"


def test_a_run_may_start_from_some_modules_of_another(build: Build, tmp_path: Path) -> None:
    trained, fresh = train(build(toy("sac")), 2), build(toy("sac", seed=9))
    before = {name: value.clone() for name, value in fresh.agent.critic.named_parameters()}
    path = saved(trained, tmp_path / "run")
    warm_start(path, fresh, ["actor"])
    assert equal(dict(fresh.agent.actor.named_parameters()), dict(trained.agent.actor.named_parameters()))
    assert equal(dict(fresh.agent.critic.named_parameters()), before)
    for part in ("acter", "actor_optim"):
        with pytest.raises(
            ConfigError, match=rf"the agent has no {part} \(it has: actor, critic, target_critic, entropy\)"
        ):
            warm_start(path, fresh, [part])


def test_weights_may_come_from_a_file_by_their_names(build: Build, tmp_path: Path) -> None:
    """The file may be part of a snapshot, or written by any program."""
    trained = train(build(toy("sac")), 2)
    path = saved(trained, tmp_path / "run") / "snapshots" / step_name(trained.steps) / "agent.safetensors"
    fresh = build(toy("sac", seed=9))
    warm_start(path, fresh)
    assert equal(weights(fresh), weights(trained))
    own = {name: torch.full_like(param, 0.5) for name, param in fresh.agent.actor.named_parameters()}
    save_file({f"agent.actor.{name}": value for name, value in own.items()}, tmp_path / "own.safetensors")
    warm_start(tmp_path / "own.safetensors", fresh, ["actor"])
    assert equal(dict(fresh.agent.actor.named_parameters()), own)
    assert equal(dict(fresh.agent.critic.named_parameters()), dict(trained.agent.critic.named_parameters()))


def test_a_run_may_start_from_a_file(build: Build, tmp_path: Path) -> None:
    trained = train(build(toy("sac")), 2)
    file = saved(trained, tmp_path / "run") / "snapshots" / step_name(trained.steps) / "agent.safetensors"
    _, fresh = build_new(run_config(toy("sac", seed=9) | {"init_from": str(file)}))
    fresh.env.close()
    assert equal(weights(fresh), weights(trained))


def test_parts_may_start_from_different_sources(build: Build, tmp_path: Path) -> None:
    """The actor from a run, the critic and its target from a file."""
    trained, other = train(build(toy("sac")), 2), train(build(toy("sac", seed=5)), 2)
    run = saved(trained, tmp_path / "run")
    file = saved(other, tmp_path / "other") / "snapshots" / step_name(other.steps) / "agent.safetensors"
    init_from = {"actor": str(run), "critic": str(file), "target_critic.module:critic": str(file)}
    values = toy("sac", seed=9) | {"init_from": init_from}
    _, fresh = build_new(run_config(values))
    fresh.env.close()
    assert equal([*fresh.agent.actor.parameters()], [*trained.agent.actor.parameters()])
    assert equal([*fresh.agent.critic.parameters()], [*other.agent.critic.parameters()])
    assert equal([*fresh.agent.target_critic.parameters()], [*other.agent.critic.parameters()])


@pytest.mark.parametrize(
    ("init", "line"),
    [
        ({"init_from": {"acter": "run"}}, r"^init_from=run: the agent has no acter \(it has: actor, "),
        ({"init_from": {"actor": "nowhere"}}, "^init_from=nowhere: not a run with a snapshot"),
        ({"init_from": {"actor": "run"}, "init_modules": ["critic"]}, r"^init_modules=\[critic\]: init_from names"),
        ({"init_from": {"actor": 3}}, r"^init_from"),
    ],
)
def test_sources_of_parts_are_checked(
    init: Values, line: str, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(train(build(toy("sac")), 1), tmp_path / "run")
    with pytest.raises(ConfigError, match=line):
        build_new(run_config(toy("sac") | init))


def test_a_part_may_start_as_one_of_another_name(build: Build, tmp_path: Path) -> None:
    """Particles start from an agent of their kind, an agent from a particle, and a policy alone."""
    like = {f"algo.{key}": value for key, value in toy("svpg")["algo"]["particle"].items()}
    plain, swarm = train(build(put(toy("a2c"), like)), 2), train(build(toy("svpg", seed=5)), 2)
    source, sources = saved(plain, tmp_path / "plain"), saved(swarm, tmp_path / "swarm")
    fresh = build(toy("svpg", seed=6))
    second = [*fresh.agent.particles[1].policy.parameters()]
    before = [param.clone() for param in second]
    warm_start(source, fresh, ["particles.0:"])
    assert equal([*fresh.agent.particles[0].parameters()], [*plain.agent.parameters()])
    assert equal([*fresh.agent.particles[1].policy.parameters()], before)
    assert not fresh.agent.particles[0].optim.optim.steps, "optimisers start fresh"
    warm_start(sources, fresh, ["particles.1.policy:particles.0.policy"])
    assert equal(second, [*swarm.agent.particles[0].policy.parameters()])
    alone = build(put(toy("a2c", seed=7), like))
    warm_start(sources, alone, [":particles.1"])
    assert equal([*alone.agent.parameters()], [*swarm.agent.particles[1].parameters()])


def test_trained_weights_may_fill_the_buffer_of_the_run_that_starts_from_them(build: Build, tmp_path: Path) -> None:
    trained = train(build(toy("td3")), 4)
    path = saved(trained, tmp_path / "run")
    changes = {"algo.loop.warmup_policy": "agent", "algo.noise.std": 0.0, "algo.buffer.capacity": 100}
    fresh = build(toy("td3", seed=9, **changes))
    warm_start(path, fresh)
    while fresh.steps < fresh.cfg.warmup_steps:
        fresh.tick()
    rows = fresh.buffer.read(torch.arange(fresh.steps))
    with torch.no_grad():
        assert torch.allclose(rows["action"], trained.agent.actor(rows["obs"]), atol=1e-6)


def test_init_from_without_weights_is_refused(build: Build, tmp_path: Path) -> None:
    fresh = build(toy("sac"))
    before = weights(fresh)
    (tmp_path / "torn.safetensors").write_bytes(b"no tensors")
    for path, says in (
        ("torn.safetensors", "cannot be read"),
        ("gone.safetensors", "cannot be read"),
        ("gone", "not a"),
    ):
        with pytest.raises(ConfigError, match=rf"^init_from=\S*{path}: {says}"):
            warm_start(tmp_path / path, fresh)
    path = saved(train(build(toy("sac")), 1), tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"^init_from=\S+: does not fit this config: agent\.actor\.\S+ is missing there"
    ):
        warm_start(path, fresh, ["actor:critics"])
    assert equal(before, weights(fresh)), "nothing is drawn in place of what is missing"


def test_a_snapshot_that_does_not_fit_is_refused_with_its_reason(build: Build, tmp_path: Path) -> None:
    path = saved(train(build(toy("ppo")), 1), tmp_path / "run")
    other = build(toy("ppo", **{"network.hidden": [9]}))
    says = r"does not fit this config: agent\.\S+ is \[.*\b8\b.*\] there and \[.*\b9\b.*\] here \(\d+ more like it\)$"
    with pytest.raises(ConfigError, match=rf"^the snapshot: {says}"):
        load_part(other.agent, Store(path).load().state, "agent")
    with pytest.raises(ConfigError, match=rf"^init_from=\S+: {says}"):
        warm_start(path, other)


def test_a_run_keeps_the_snapshots_of_its_archive(tmp_path: Path) -> None:
    words = ["algo=ucb", "env=BernoulliBandit", "preset=none", "env.num_envs=1", "trainer.total_steps=30", "logger=[]",
             "trainer.eval_episodes=0", "trainer.snapshot_every=5", "trainer.snapshot_keep=1",
             "trainer.snapshot_archive_every=10"]  # fmt: skip
    run = rlrun.train(*words, run_dir=str(tmp_path / "run"))
    steps = {name for name in Store(run.path).names() if name != "best"}
    assert steps == {step_name(step) for step in (10, 20, 30)}


def test_environments_are_closed_when_a_run_ends_and_when_it_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: set[VectorEnv] = set()
    closed: set[VectorEnv] = set()
    construct, close = VectorEnv.__init__, VectorEnv.close

    def constructing(env: VectorEnv, *given: Any, **named: Any) -> None:
        construct(env, *given, **named)
        made.add(env)

    def closing(env: VectorEnv) -> None:
        closed.add(env)
        close(env)

    monkeypatch.setattr(VectorEnv, "__init__", constructing)
    monkeypatch.setattr(VectorEnv, "close", closing)
    words = ["algo=ppo", "env=CartPole", "preset=none", "logger=[]", "env.num_envs=1", "algo.loop.rollout_steps=4"]
    words += ["algo.minibatch_size=4", "trainer.total_steps=4", "trainer.eval_episodes=1", "trainer.eval_max_steps=2"]
    rlrun.train(*words, run_dir=str(tmp_path / "run"))
    assert made and made == closed
    count = len(made)
    with pytest.raises(ConfigError, match="not a run with a snapshot"):
        rlrun.train(*words, f"init_from={tmp_path / 'none'}", run_dir=str(tmp_path / "other"))
    assert len(made) > count and made == closed


def test_environment_that_ignores_its_seed_is_announced(build: Build) -> None:
    values = toy("ppo")
    loop = build(values)
    loop.env.verdict = Verdict(
        about=None, method="native", reason="", unrepeatable="equal seeds do not give equal runs", masked=None,
        gave_up_s=None, versions={}, files={},
    )  # fmt: skip
    config = run_config(values)
    trainer = make_trainer(config, loop, None, None, Signals(), Recorded("", ""))  # type: ignore[arg-type]
    assert f"env {loop.env.name}: equal seeds do not give equal runs" in [*announcements(config, trainer)]


@pytest.mark.parametrize(
    ("algo", "changes", "is_told"),
    [
        ("recurrent_sac", {"sequence_length": 1, "burn_in": 0}, True),
        ("ppo_lstm", {"sequence_length": 1}, True),
        ("recurrent_sac", {"sequence_length": 2, "burn_in": 0}, False),
        ("recurrent_sac", {"sequence_length": 1, "burn_in": 1}, False),
        ("recurrent_sac", {"sequence_length": 1, "burn_in": 1, "start": "zero"}, False),
        ("sac", {}, False),
    ],
)
def test_stored_states_of_single_steps_are_announced(
    algo: str, changes: dict[str, Any], is_told: bool, build: Build
) -> None:
    values = toy(algo, **{f"network.{key}": value for key, value in changes.items()})
    config = run_config(values)
    trainer = make_trainer(config, build(values), None, None, Signals(), Recorded("", ""))  # type: ignore[arg-type]
    line = "network.start=stored with network.sequence_length=1: no gradient flows through time"
    assert sum(found.startswith(line) for found in announcements(config, trainer)) == is_told


def test_values_out_of_range_are_reported_together() -> None:
    changes = {"algo.gamma": 1.5, "algo.loop.batch_size": 0, "network.hidden": [0], "algo.buffer.capacity": -1}
    with pytest.raises(ConfigError) as caught:
        build_loop(run_config(toy("sac", **changes)))
    keys = sorted(fault.partition("=")[0] for fault in caught.value.faults)
    assert keys == ["algo.buffer.capacity", "algo.gamma", "algo.loop.batch_size", "network.hidden.0"]


def test_an_algorithm_refuses_actions_it_is_not_defined_for() -> None:
    values = toy("dqn", **{"env.id": "Pendulum-v1"})
    with pytest.raises(ConfigError, match="needs Discrete actions; this environment has Box"):
        build_loop(run_config(values))


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match=f"^device={device}: "):
        build_loop(run_config(toy("ppo", device=device)))


def test_cuda_graphs_without_cuda_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.engine=cudagraph: needs device=cuda"):
        build_loop(run_config(toy("ppo", **{"device": "cpu", "trainer.engine": "cudagraph"})))


@pytest.mark.parametrize("state", [{"waiting": {}}, {"steps": "9"}])
def test_state_of_another_kind_is_refused(state: dict[str, object], build: Build) -> None:
    loop = build(toy("ppo"))
    with pytest.raises((ValueError, TypeError)):
        loop.set_extra_state(state)


@pytest.mark.parametrize(
    "state",
    [{"episodes": [1.0]}, {"episodes": "x"}, {"updates": {"loss/a": 1.0}}, {"rows": [[1]]}, {"totals": {"a": []}}],
)
def test_metrics_of_another_kind_are_refused(state: dict[str, object], build: Build) -> None:
    metrics = build(toy("ppo")).metrics
    with pytest.raises((ValueError, TypeError, AttributeError)):
        metrics.set_extra_state(metrics.get_extra_state() | state)


def test_state_sets_nothing_that_is_no_state(build: Build) -> None:
    loop = build(toy("ppo"))
    loop.set_extra_state({"tick": 1, "steps": 7})
    assert callable(loop.tick) and loop.steps == 7


def test_complex_weights_are_refused(build: Build, tmp_path: Path) -> None:
    save_file({"agent.x": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "x.safetensors")
    with pytest.raises(ConfigError, match=r"cannot store a tensor of dtype torch\.complex64"):
        warm_start(tmp_path / "x.safetensors", build(toy("ppo")))
