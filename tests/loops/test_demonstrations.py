"""Demonstrations from disk into rollouts and back, what a demonstrated step teaches, and episodes that are kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import equal, put, toy, train

from rlrun.buffers.demo_lines import shown
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.datasets.demonstrations import read, write
from rlrun.errors import ConfigError
from rlrun.testing import check_resuming

Build = Callable[..., Loop]

pytest.importorskip("minari")


def deep_sea(build: Build, size: int = 4, begin: bool = True, **changes: Any) -> Any:
    values = jobs(["algo=ppo_demos", "env=DeepSea", "preset=none", f"env.kwargs.size={size}", "env.num_envs=2"])[
        0
    ].values
    return build(put(values, {"algo.loop.rollout_steps": 8, "algo.minibatch_size": 8} | changes), begin)


def dive(loop: Any, size: int = 4) -> dict[str, Any]:
    """Returns the only actions that reach the treasure."""
    env = loop.env.pool.slots[0].unwrapped
    places = torch.tensor([row * size + column for row in range(size + 1) for column in [min(row, size - 1)]])
    reward = torch.full((size,), -0.01 / size)
    reward[-1] += 1
    action = torch.tensor([int(env.right[i, i]) for i in range(size)])
    return {"obs": places, "action": action, "reward": reward, "terminated": True, "worth": float(reward.sum())}


def test_agents_that_return_no_values_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = ["algo.loop=demonstrations", "algo.loop.rollout_steps=8", "algo.loop.lag=0", "algo.buffer=demos"]
    assert main(["train", "algo=dqn", "env=CartPole", "preset=none", *loop, f"run_dir={tmp_path / 'run'}"]) == 2
    line = "error: algo.loop=demonstrations is not supported by algo=dqn, whose updates return no values by which "
    assert capsys.readouterr().err == f"{line}demonstrations are ranked (Agent.returns_values)\n"


@pytest.mark.parametrize("words", [["env=DeepSea"], ["env=Pendulum"], ["env=CartPole"]])
def test_what_is_saved_is_read_back_bit_for_bit(words: list[str], build: Build, tmp_path: Path) -> None:
    values = jobs(["algo=ppo_demos", "preset=none", "env.num_envs=2", "env.max_episode_steps=5", *words])[0].values
    loop: Any = train(
        build(put(values, {"algo.loop.rollout_steps": 16, "algo.buffer.rho": 0.0, "algo.buffer.phi": 0.0})), 1
    )
    demos = [*loop.buffer.value_demos, *loop.buffer.reward_demos]
    assert demos
    write(tmp_path / "made-v0", demos, loop.env)
    again = read("data", tmp_path / "made-v0", loop.env)
    for one, other in zip(demos, again, strict=True):
        assert equal(one["obs"], other["obs"]) and equal(one["reward"], other["reward"])
        executed = one["action"].clamp(-1, 1) if one["action"].is_floating_point() else one["action"]
        torch.testing.assert_close(executed, other["action"], rtol=0, atol=1e-6)
        assert one["terminated"] == other["terminated"]


@pytest.mark.parametrize("terminated", [True, False])
def test_the_last_step_of_a_written_episode_is_terminated_or_truncated(
    terminated: bool, build: Build, tmp_path: Path
) -> None:
    h5py = pytest.importorskip("h5py")
    loop = deep_sea(build)
    write(tmp_path / "made-v0", [dive(loop) | {"terminated": terminated}], loop.env)
    with h5py.File(tmp_path / "made-v0/data/main_data.hdf5") as file:
        ends = [file[f"episode_0/{name}"][...].tolist() for name in ("terminations", "truncations")]
    assert ends == [[False, False, False, terminated], [False, False, False, not terminated]]


def test_demonstrations_of_another_environment_are_refused(build: Build, tmp_path: Path) -> None:
    loop = deep_sea(build)
    write(tmp_path / "made-v0", [dive(loop)], loop.env)
    other: Any = build(toy("ppo_demos", **{"env.wrappers": {"frame_stack": {"stack": 2}}}), begin=False)
    with pytest.raises(ConfigError, match="which is not this environment"):
        read("data", tmp_path / "made-v0", other.env)
    with pytest.raises(ConfigError, match="holds no data set"):
        read("data", tmp_path, loop.env)


def test_given_demonstrations_are_replayed_and_counted_apart(build: Build, tmp_path: Path) -> None:
    loop = deep_sea(build)
    write(tmp_path / "given-v0", [dive(loop)], loop.env)
    loop = deep_sea(
        build, **{"algo.buffer.given": str(tmp_path / "given-v0"), "algo.buffer.rho": 0.9, "algo.buffer.phi": 0.0}
    )
    metrics = loop.tick()
    shown = loop.batch["shown"] & (loop.batch["weight"] > 0)
    assert loop.steps == 16 and not shown[:, :2].any()
    assert metrics["loss/demo_steps"] == shown.sum() > 0
    assert equal(loop.batch["action"].T[loop.batch["shown"].T][:4], dive(loop)["action"])
    assert loop.buffer.reward_demos[0]["kind"] == "given"


def test_a_demonstrated_step_pulls_where_it_is_good_and_is_clipped_where_it_is_not(build: Build) -> None:
    """The stored log_prob is 0 (certainty), so the ratio is the probability of the action, here a half."""
    loop: Any = deep_sea(build, **{"algo.advantage.normalize": "none"})
    agent, grads = loop.agent.learner, []
    agent.optim.apply = grads.append
    batch = {
        "obs": torch.zeros(1, dtype=torch.int64), "action": torch.zeros(1, dtype=torch.int64),
        "log_prob": torch.zeros(1), "weight": torch.ones(1), "value": torch.zeros(1), "return": torch.zeros(1),
    }  # fmt: skip
    own = {id(param) for param in agent.policy.parameters()}
    policy = torch.cat([torch.full((param.numel(),), id(param) in own) for param in agent.optim.params])
    for advantage in (-1.0, 1.0):
        agent.update_minibatch(batch | {"advantage": torch.tensor([advantage])})
    assert not grads[0][policy].any() and grads[1][policy].any()


def test_a_density_above_one_is_where_the_ratio_starts(build: Build) -> None:
    loop: Any = build(
        put(jobs(["algo=ppo_demos", "env=Pendulum", "preset=none"])[0].values, {"algo.loop.rollout_steps": 4})
    )
    agent = loop.agent.learner
    with torch.no_grad():
        agent.policy.log_std.fill_(-3.0)
    rollout = loop.collect_rollout()
    rollout["shown"] = torch.ones_like(rollout["terminated"])
    rollout["action"] = agent.policy(rollout["obs"].flatten(0, 1)).mode().view_as(rollout["action"]).detach()
    rollout["log_prob"] = torch.zeros_like(rollout["reward"])
    seen: list[Any] = []
    object.__setattr__(
        agent, "advantages", lambda rollout: seen.append(rollout) or type(agent).advantages(agent, rollout)
    )
    loop.agent.update(rollout, loop.context())
    density = 3.0 - 0.5 * torch.log(torch.tensor(2 * torch.pi))
    torch.testing.assert_close(seen[0]["log_prob"], density.expand(4, 8))


def test_episodes_across_rollouts_are_kept_whole_and_broken_ones_are_not(build: Build) -> None:
    loop: Any = deep_sea(
        build, size=6, **{"algo.loop.rollout_steps": 4, "algo.buffer.rho": 0.0, "algo.buffer.phi": 0.0}
    )
    train(loop, 3)  # twelve steps: two dives of six in each environment
    assert len(loop.buffer) == 4
    for demo in [*loop.buffer.value_demos, *loop.buffer.reward_demos]:
        assert (demo["obs"] // 6).tolist() == [0, 1, 2, 3, 4, 5, 6] and demo["terminated"]
    rollout = loop.collect_rollout()
    rollout["weight"][1, 0] = 0
    for part in (rollout, loop.collect_rollout()):
        for demo, value in loop.episodes.ended(part, torch.zeros(4, 2)):
            loop.buffer.add(demo, value)
    assert len(loop.buffer) == 5, "the one that was broken off is left out"


def test_the_best_are_saved_and_what_others_put_there_joins_once(build: Build, tmp_path: Path) -> None:
    first = deep_sea(build)
    (tmp_path / "others").mkdir()
    changes = {"algo.buffer.save_every": 1, "algo.buffer.supplementary": str(tmp_path / "others"),
               "algo.buffer.save_to": str(tmp_path / "best-v0"), "algo.buffer.reward_threshold": 0.5}  # fmt: skip
    loop = deep_sea(build, **changes)
    train(loop, 1)
    assert not loop.buffer.reward_demos and not (tmp_path / "best-v0").exists()
    write(tmp_path / "others" / "more-v0", [dive(first)], first.env)
    for name in (".half-v0.new", "notes", "broken-v0"):  # incomplete, not a data set, and unusable
        (tmp_path / "others" / name / "data").mkdir(parents=True)
    (tmp_path / "others" / "broken-v0" / "data" / "metadata.json").write_text('{"rlrun_env": "Elsewhere"}')
    train(loop, 2)
    assert len(loop.buffer.reward_demos) == 1
    train(loop, 4)
    given = [demo for demo in loop.buffer.reward_demos if equal(demo["action"], dive(first)["action"])]
    assert len(given) >= 1 and loop.exchange.read == ["broken-v0", "more-v0"]
    assert read("data", tmp_path / "best-v0", loop.env)[0]["worth"] == pytest.approx(0.99)


def test_a_folder_of_supplementary_data_sets_may_be_created_later(
    build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = tmp_path / "others"
    loop = deep_sea(build, **{"algo.buffer.save_every": 1, "algo.buffer.supplementary": str(others)})
    assert f"algo.buffer.supplementary={others}: there is no such folder yet" in caplog.text
    train(loop, 1)
    others.mkdir()
    write(others / "more-v0", [dive(loop)], loop.env)
    train(loop, 2)
    assert loop.exchange.read == ["more-v0"]


def test_the_best_are_saved_every_save_every_updates(build: Build, tmp_path: Path) -> None:
    changes = {"algo.buffer.save_every": 3, "algo.buffer.save_to": str(tmp_path / "best-v0")}
    loop = deep_sea(build, **changes)
    loop.buffer.add_success(dive(loop) | {"kind": "own"})
    for updates in (1, 2, 3):
        train(loop, updates)
        assert (tmp_path / "best-v0").exists() == (updates == 3)


def recurrent(build: Build, given: str | None = None) -> Any:
    network = {"network.hidden": [8], "network.features": 4, "network.sequence_length": 4}
    demos = {"algo.buffer.given": given, "algo.buffer.rho": 0.9, "algo.buffer.phi": 0.0}
    sizes = {"env.kwargs.size": 6, "algo.loop.rollout_steps": 8, "algo.minibatch_size": 16, "trainer.engine": "eager"}
    values = jobs(["algo=ppo_demos", "env=DeepSea", "network=lstm", "preset=none", "env.num_envs=2"])[0].values
    return build(put(values, network | demos | sizes))


def test_recurrent_agents_see_demonstrations_with_the_states_of_their_networks(build: Build, tmp_path: Path) -> None:
    loop = recurrent(build)
    write(tmp_path / "given-v0", [dive(loop, 6)], loop.env)
    loop = recurrent(build, str(tmp_path / "given-v0"))
    train(loop, 3)
    demo = loop.buffer.restored(loop.buffer.reward_demos[0])
    carry, rows = {"first": torch.tensor([True])}, []
    for obs in demo["obs"][:-1]:
        _, extras = loop.addons.see(obs[None], carry, False)
        rows.append(extras)
        carry = {"first": torch.tensor([False]), "carry.memory": extras["carry.memory"]}
    replayed: Any = shown([demo, demo], loop.see)
    for name in ("memory", "carry.memory"):
        expected = torch.cat([row[name] for row in rows])
        torch.testing.assert_close(replayed[name], torch.cat([expected, expected]), rtol=1e-5, atol=1e-6)
    assert not replayed["memory"][6].any() and replayed["memory"][7].any()


@pytest.mark.slow
def test_recurrent_agents_resume_with_demonstrations_bit_for_bit(build: Build, tmp_path: Path) -> None:
    loop = recurrent(build)
    write(tmp_path / "given-v0", [dive(loop, 6)], loop.env)
    loop, other = (recurrent(build, str(tmp_path / "given-v0")) for _ in range(2))
    train(loop, 2)
    check_resuming(loop, other)


def test_demonstrations_recorded_with_other_arguments_are_refused(build: Build, tmp_path: Path) -> None:
    loop = deep_sea(build, size=4)
    write(tmp_path / "given-v0", [dive(loop)], loop.env)
    changes = {"algo.buffer.given": str(tmp_path / "given-v0")}
    refused = r"was recorded with env.kwargs.size=4, here 5; algo.buffer.data_env=any accepts it nevertheless"
    with pytest.raises(ConfigError, match=refused):
        deep_sea(build, size=5, **changes)
    assert len(deep_sea(build, size=4, **changes).buffer) == 1
