"""Learning from data sets: what is read, when the environment is stepped, and the batches of updates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import Values, equal, optims, put, toy, train, weights

from rlrun.core.loop import Loop
from rlrun.datasets.demonstrations import read, write
from rlrun.errors import ConfigError

Build = Callable[..., Loop]

pytest.importorskip("minari")


def hybrid(algo: str, **changes: Any) -> Values:
    """Returns a small run of an off-policy algorithm with the hybrid loop."""
    loop = {
        "name": "hybrid", "warmup_steps": 8, "warmup_policy": "random", "refill_policy": "agent", "start_update": None,
        "updates_per_step": 0.5, "update_every": 1,
        "batch_size": 8, "data": None, "data_steps": 8, "data_env": "same", "online_after": 2, "online_every": 1,
        "lag": 0, "shards": None, "shard_steps": None,
    }  # fmt: skip
    return toy(algo, **{"algo.loop": loop | changes})


def watch(loop: Any) -> list[tuple[int, int, int]]:
    """Returns a list that records (transitions, recorded rows, collected rows) of every following update."""
    seen: list[tuple[int, int, int]] = []
    update = loop.agent.update

    def call(batch: Any, ctx: Any) -> Any:
        shown = int(batch["shown"].sum())
        seen.append((loop.collected, shown, len(batch["shown"]) - shown))
        return update(batch, ctx)

    loop.agent.update = call
    return seen


@pytest.mark.parametrize("algo", ["bc", "iql"])
def test_offline_no_environment_is_stepped_and_a_step_is_an_update(algo: str, build: Build) -> None:
    loop = build(toy(algo))
    obs, before = loop.obs, weights(loop)
    object.__setattr__(loop.env, "step", None)
    for _ in range(7):
        loop.tick()
    assert loop.steps == loop.updates == 7 and not loop.metrics.episodes
    assert equal(obs, loop.obs) and not equal(before, weights(loop))


@pytest.mark.parametrize("algo", ["sac", "td3", "dqn", "sac_from_data"])
def test_from_the_first_update_on_both_parts_are_learned_from(algo: str, build: Build) -> None:
    """online_after=0, online_every=1."""
    loop: Any = build(hybrid(algo, online_after=0, warmup_steps=4))
    seen = watch(loop)
    train(loop, 6)
    assert [(shown, own) for _, shown, own in seen] == 6 * [(8, 8)]
    assert seen[0][0] > 4 and loop.collected == loop.steps


@pytest.mark.parametrize("algo", ["sac", "prioritized_dqn"])
def test_a_hundred_updates_offline_then_every_other_one_online_too(algo: str, build: Build) -> None:
    """online_after=100, online_every=2."""
    loop: Any = build(hybrid(algo, online_after=100, online_every=2, warmup_steps=0))
    seen = watch(loop)
    object.__setattr__(loop.env, "step", None)
    for _ in range(100):
        loop.tick()
    assert seen == 100 * [(0, 8, 0)] and loop.steps == 100
    object.__delattr__(loop.env, "step")
    train(loop, 106)
    assert [(shown, own) for _, shown, own in seen[100:]] == 3 * [(8, 8), (8, 0)]
    assert loop.steps == 100 + loop.collected and loop.collected == 12, "one update every other transition"
    assert max(int(optim.steps) for _, optim in optims(loop)) == 106, "one step each"


@pytest.mark.parametrize("algo", ["sac", "td3", "dqn", "iql"])
def test_one_step_goes_along_the_sum_of_both_losses(algo: str, build: Build) -> None:
    """The gradient of the batch that the agent receives is the sum of the gradients of both parts."""
    loop: Any = train(build(hybrid(algo)), 4)
    online, shown = loop.buffer.collected.sample(8), loop.buffer.recorded.sample(8)
    loop.buffer.collected.sample, loop.buffer.recorded.sample = lambda *_: dict(online), lambda *_: dict(shown)
    loop.buffer.online = True
    both = loop.buffer.sample(8)
    optim = loop.agent.optim if algo == "dqn" else loop.agent.critic_optim
    found: list[torch.Tensor] = []
    object.__setattr__(optim, "apply", lambda grads: found.append(grads) or torch.zeros(()))
    for batch in (online, shown, both):
        kernel = type(loop.agent).update_q if algo == "dqn" else type(loop.agent).update_critic
        given = {"dqn": [[(), (), ()]], "iql": []}.get(algo, [torch.zeros_like(batch["action"])])
        kernel(loop.agent, batch, *given)
    torch.testing.assert_close(found[0] + found[1], found[2])
    assert not torch.allclose(found[0], found[1])


def test_priorities_go_back_to_where_their_rows_came_from(build: Build) -> None:
    loop: Any = train(build(hybrid("prioritized_dqn")), 3)
    buffer = loop.buffer
    buffer.online = True
    batch = buffer.sample(4)
    buffer.feedback(batch, torch.arange(8.0) + 10)
    for part, rows in ((buffer.collected, slice(0, 4)), (buffer.recorded, slice(4, 8))):
        last = {int(number): 10.0 + rows.start + at for at, number in enumerate(batch["index"][rows])}
        for number, error in last.items():
            place = torch.tensor([number % (part.ring.capacity * part.spec.num_envs)])
            assert float(part.tree.get(place)) == pytest.approx((error + part.cfg.epsilon) ** part.cfg.alpha)


@pytest.mark.parametrize("algo", ["neural_linear", "discrete_sac", "redq", "rainbow", "ddpg"])
def test_any_off_policy_learner_goes_on_from_data(algo: str, build: Build) -> None:
    loop: Any = build(hybrid(algo, warmup_steps=0))
    before, seen = weights(loop), watch(loop)
    train(loop, 6)
    assert [own for *_, own in seen] == [0, 0, 8, 8, 8, 8] and not equal(before, weights(loop))
    assert len(loop.buffer.all()["reward"]) == len(loop.buffer) + 8


def test_data_sets_are_read_in_order_each_up_to_its_length(build: Build, tmp_path: Path) -> None:
    loop: Any = build(toy("iql", **{"env.num_envs": 1}))
    demos = []
    for number in range(4):  # episodes of three steps with different rewards
        reward = 10.0 * number + torch.arange(3.0)
        rows = {"obs": torch.randn(4, 3).clamp(-1, 1), "action": torch.rand(3, 1) * 2 - 1, "reward": reward}
        demos.append(rows | {"terminated": number % 2 == 0})
    write(tmp_path / "one-v0", demos[:2], loop.env)
    write(tmp_path / "two-v0", demos[2:], loop.env)
    places = [str(tmp_path / "one-v0"), str(tmp_path / "two-v0")]
    given = {"env.num_envs": 1, "algo.loop.data": places, "algo.loop.data_steps": 4}
    rows = build(toy("iql", **given)).buffer.all()
    assert rows["reward"].tolist() == [0, 1, 2, 10, 20, 21, 22, 30]
    assert rows["terminated"].tolist() == [0, 0, 1, 0, 0, 0, 1, 0], "an episode that was cut has not ended"
    assert rows["truncated"].tolist() == [0, 0, 0, 1, 0, 0, 0, 1]
    torch.testing.assert_close(rows["next_obs"][0], rows["obs"][1])
    torch.testing.assert_close(rows["next_obs"][2], demos[0]["obs"][3])
    torch.testing.assert_close(rows["action"][:3], demos[0]["action"])


@pytest.mark.parametrize("num_envs", [1, 2, 3, 5])
def test_every_recorded_transition_is_there_once_whatever_the_number_of_environments(
    num_envs: int, build: Build
) -> None:
    loop: Any = build(toy("iql", **{"env.num_envs": num_envs, "algo.buffer.capacity": 40}))
    rows = loop.buffer.all()
    assert rows["weight"].sum() == 8
    recorded = [demo["reward"] for demo in read("data", Path(loop.cfg.data), loop.env)]
    kept = rows["reward"][rows["weight"] > 0].sort().values
    torch.testing.assert_close(kept, torch.cat(recorded)[:8].sort().values)


def test_normalisers_see_what_was_recorded(build: Build) -> None:
    loop: Any = train(build(toy("iql", **{"env.normalize.kind": "obs", "env.num_envs": 1})), 1)
    seen = loop.buffer.all()["next_obs"].double()
    torch.testing.assert_close(loop.addons[0].statistics.live.mean, seen.mean(0))


@pytest.mark.parametrize(
    ("algo", "changes", "line"),
    [
        ("sac", {"data": ""}, "algo.loop.data: missing"),
        ("sac", {"data": "nowhere"}, "algo.loop.data=nowhere: holds no data set"),
        ("muzero", {"data": "any"}, "algo.loop=hybrid is not supported by algo=muzero, which learns from extras"),
        ("ppo", {"data": "any"}, "algo.loop=hybrid is not supported by algo=ppo, which has no replay"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_one_line(
    algo: str, changes: Values, line: str, build: Build
) -> None:
    with pytest.raises(ConfigError, match=line):
        build(hybrid(algo, **changes))


def test_too_little_room_and_data_of_other_spaces_are_refused(build: Build, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"algo\.buffer\.capacity=4: no room for 8 recorded transitions"):
        build(toy("bc", **{"algo.buffer.capacity": 4}))
    with pytest.raises(ConfigError, match="no room for 8"):  # two rows of three environments
        build(toy("bc", **{"algo.buffer.capacity": 8, "env.num_envs": 3}))
    loop: Any = build(toy("bc"))
    demo = {"obs": torch.zeros(2, 3), "action": torch.zeros(1, 1), "reward": torch.zeros(1), "terminated": True}
    write(tmp_path / "made-v0", [demo], loop.env)
    with pytest.raises(ConfigError, match="which is not this environment"):
        build(toy("dqn", **{"algo.loop": hybrid("dqn")["algo"]["loop"] | {"data": str(tmp_path / "made-v0")}}))
    about = tmp_path / "made-v0" / "data" / "metadata.json"
    about.write_text(about.read_text().replace('"rlrun_env"', '"elsewhere"'))
    with pytest.raises(ConfigError, match="does not fit this environment"):
        build(toy("dqn", **{"algo.loop": hybrid("dqn")["algo"]["loop"] | {"data": str(tmp_path / "made-v0")}}))


@pytest.mark.parametrize("algo", ["sac", "td3", "sac_from_data", "iql"])
def test_recorded_reward_vectors_are_learned_from(algo: str, build: Build, tmp_path: Path) -> None:
    run = {"env.id": "rlrun/PointRun-v0", "algo.reward_weights.weights": [1.0, 2.0]}
    demo = {"obs": torch.randn(10, 3), "action": torch.rand(9, 2), "reward": torch.randn(9, 2), "terminated": False}
    made: Any = build(put(toy("sac"), run))
    write(tmp_path / "run-v0", [demo], made.env)
    wanted = {"algo.cloning_filter": True} if algo == "sac_from_data" else {}
    loop: Any = build(put(hybrid(algo, data=str(tmp_path / "run-v0")), run | wanted))
    recorded = loop.buffer.recorded.all()
    lines = demo["reward"][:8].view(2, 4, 2).transpose(0, 1).flatten(0, 1)  # one after the other in two environments
    assert torch.equal(recorded["reward"], lines) and recorded["weight"].tolist() == [1.0] * 8
    before = weights(loop)
    assert not equal(before, weights(train(loop, 4)))
    one = put(hybrid("sac", data=str(tmp_path / "run-v0")), run | {"algo.reward_weights.weights": None})
    one["env"]["wrappers"] = {"linear_reward": {"weights": [1.0, 2.0]}}
    about = tmp_path / "run-v0" / "data" / "metadata.json"
    about.write_text(about.read_text().replace('"rlrun_env"', '"elsewhere"'))
    with pytest.raises(ConfigError, match=r"rewards of shape \(2,\), not \(\)"):
        build(one)
