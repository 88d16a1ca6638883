"""The two pools of demonstrations: adding, drawing, dropping, and the changes of rho and phi."""

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rlrun.buffers.demo_lines import episode, transitions, with_lines
from rlrun.buffers.demos import Demos, cut, priorities
from rlrun.buffers.replay import Reading
from rlrun.errors import ConfigError, RunError
from rlrun.settings import ScheduledValue
from rlrun.tensors import joined
from rlrun.types import Spec

CONFIG: dict[str, Any] = {
    "capacity": 6, "rho": 0.1, "phi": 0.3, "alpha": 10.0, "reward_threshold": None, "given": None, "own": None,
    "data_env": "same", "dtypes": {"obs": "float32", "action": "float32", "reward": "float32"},
    "supplementary": None, "save_to": None, "save_every": 10, "num_saved": 2,
}  # fmt: skip


def buffer(frame_stack: int = 1, **changes: Any) -> Demos:
    spec = Spec(Box(-1, 1, (1,)), Discrete(2), 1, frame_stack=frame_stack)
    return Demos(Demos.Config(**(CONFIG | changes)), spec, Reading(), 0, torch.device("cpu"))


def demo(*rewards: float, terminated: bool = True, obs: float = 0.0) -> dict[str, Any]:
    steps = len(rewards)
    return {
        "obs": obs + torch.arange(steps + 1.0).unsqueeze(-1), "action": torch.arange(steps),
        "reward": torch.tensor(rewards), "terminated": terminated, "worth": sum(rewards),
    }  # fmt: skip


def test_demos_draw_sources_with_probabilities_rho_and_phi() -> None:
    demos = buffer(reward_threshold=5.0)
    demos.begin([demo(5.0)], [])
    demos.add(demo(0.0), 1.0)
    kinds = [found and found["kind"] for found in (demos.draw() for _ in range(10_000))]
    for kind, share in (("given", 0.1), ("value", 0.3), (None, 0.6)):
        assert kinds.count(kind) / 10_000 == pytest.approx(share, abs=3 * (share * (1 - share) / 10_000) ** 0.5)


def test_demos_draw_none_from_an_empty_pool() -> None:
    demos = buffer(rho=0.5, phi=0.49)
    assert {demos.draw() for _ in range(50)} == {None}


def test_value_demonstrations_are_drawn_by_a_power_of_their_value() -> None:
    assert priorities([1.0, 3.0], 0.0).tolist() == [1.0, 1.0]
    assert priorities([1.0, 3.0], 1.0).tolist() == pytest.approx([1 / 3, 1.0])
    assert priorities([-1.0, 1.0, 3.0], 2.0).tolist() == pytest.approx([0.0, 0.25, 1.0]), "none is below 0"
    assert priorities([-2.0, -2.0], 10.0).tolist() == [1.0, 1.0]
    nearly = priorities([1.0, 2.0, 3.0], 10.0)
    assert nearly[2] / nearly.sum() > 0.98
    assert priorities([1e30, 2e30], 10.0).isfinite().all()


def test_demos_cut_a_success_after_its_last_reward_and_keep_a_failure_whole() -> None:
    demos = buffer()
    demos.add(demo(0.0, 1.0, 0.0, 0.0), 7.0)
    (kept,) = demos.reward_demos
    assert kept["reward"].tolist() == [0.0, 1.0] and len(kept["obs"]) == 3 and not kept["terminated"]
    assert kept["worth"] == 1.0
    demos.add(demo(0.0, 2.0, -1.5), 7.0)
    assert [other["worth"] for other in demos.reward_demos] == [2.0], "its return is that up to the cut"
    demos.add(demo(0.0, 0.0, -1.0), 7.0)
    (failure,) = demos.value_demos
    assert len(failure["reward"]) == 3 and failure["terminated"] and failure["worth"] == 7.0
    assert cut(demo(0.0, 1.0), 2)["terminated"]


def test_demos_threshold_is_the_least_return_of_reward_demonstrations() -> None:
    demos = buffer(reward_threshold=2.0)
    demos.add(demo(1.0), 0.0)
    assert not demos.reward_demos
    demos.begin([demo(4.0), demo(3.0)], [])
    assert demos.threshold == 3.0
    demos.add(demo(2.5), 0.0)
    demos.add(demo(3.0), 0.0)
    assert [found["worth"] for found in demos.reward_demos] == [4.0, 3.0, 3.0]
    demos.add(demo(5.0), 0.0)
    assert [found["worth"] for found in demos.reward_demos] == [4.0, 3.0, 5.0], (
        "a new best drops weaker ones of its own"
    )


def test_demos_increase_rho_and_decrease_phi_with_every_success() -> None:
    demos = buffer()
    demos.begin([demo(1.0)], [])  # five places for failures
    for success in range(1, 8):
        demos.add(demo(1.0), 0.0)
        moved = min(success, 5) * 0.3 / 5
        assert demos.rho == pytest.approx(0.1 + moved) and demos.rho + demos.phi == pytest.approx(0.4)
        assert demos.value_capacity == max(5 - success, 0)
    assert demos.phi == pytest.approx(0.0, abs=1e-12)


def test_demos_follow_schedules_of_rho_and_phi() -> None:
    rho, phi = torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    demos = buffer(rho=ScheduledValue(0.1, rho), phi=ScheduledValue(0.3, phi))
    demos.begin([], [])
    demos.follow_schedules()
    demos.add(demo(1.0), 0.0)
    gained = demos.rho - 0.1
    assert gained == pytest.approx(0.05)
    rho.fill_(0.4)
    phi.fill_(0.2)
    demos.follow_schedules()
    demos.follow_schedules()
    assert (demos.rho, demos.phi) == pytest.approx((0.4 + gained, 0.2 - gained)), "a success still counts"
    phi.fill_(0.6)
    with pytest.raises(RunError, match=r"algo\.buffer\.rho \+ algo\.buffer\.phi = 1: must be less than 1"):
        demos.follow_schedules()


@pytest.mark.parametrize("forged", [{"rho": 1.0}, {"phi": 0.9}, {"rho": 2.0, "phi": -1.5}, {"base_rho": -1.0}])
def test_demos_refuse_probabilities_of_a_snapshot_that_would_never_draw_none(forged: dict[str, float]) -> None:
    demos = buffer()
    demos.set_extra_state(demos.get_extra_state() | forged)
    with pytest.raises(RunError, match="must be less than 1"):
        demos.follow_schedules()


def test_demos_evict_failures_of_lowest_value_then_longest_successes() -> None:
    demos = buffer(reward_threshold=1.0)
    demos.begin([demo(*[0.0] * 9, 1.0)], [])  # the longest, but given
    for value in (3.0, 1.0, 5.0, 2.0, 4.0, 0.5):
        demos.add(demo(0.0), value)
    assert [found["worth"] for found in demos.value_demos] == [1.0, 2.0, 3.0, 4.0, 5.0]
    for steps in (3, 7, 1, 2):
        demos.add(demo(*[0.0] * steps, 1.0), 0.0)
    assert [found["worth"] for found in demos.value_demos] == [5.0]
    for steps in (4, 5):
        demos.add(demo(*[0.0] * steps, 1.0), 0.0)
    assert not demos.value_demos and len(demos) == 6
    assert [len(found["reward"]) for found in demos.reward_demos] == [10, 4, 2, 3, 5, 6]


def test_demos_refresh_updates_values_of_failures_alone() -> None:
    demos = buffer(reward_threshold=1.0)
    demos.add(demo(0.0), 3.0)
    demos.add(demo(2.0), 3.0)
    demos.refresh(demos.value_demos[0], -1.0)
    demos.refresh(demos.reward_demos[0], -1.0)
    assert demos.value_demos[0]["worth"] == -1.0 and demos.reward_demos[0]["worth"] == 2.0


def test_demos_refuse_too_many_demonstrations_and_probabilities_above_1() -> None:
    with pytest.raises(ConfigError, match=r"algo.buffer.capacity=1: is too small for 2 demonstrations"):
        buffer(capacity=1).begin([demo(1.0)], [demo(2.0)])
    with pytest.raises(ConfigError, match=r"rho \+ algo.buffer.phi = 1.2: must be less than 1"):
        buffer(rho=0.9)


def test_demos_best_returns_own_demonstrations_of_highest_return() -> None:
    demos = buffer()
    demos.begin([demo(9.0)], [demo(1.0), demo(3.0), demo(2.0)])
    assert [found["worth"] for found in demos.best()] == [3.0, 2.0]


def rollout(time: int, envs: int) -> dict[str, Any]:
    no = torch.zeros(time, envs, dtype=torch.bool)
    return {
        "obs": torch.zeros(time, envs, 1), "next_obs": torch.zeros(time, envs, 1), "reward": torch.zeros(time, envs),
        "action": torch.zeros(time, envs, dtype=torch.int64), "weight": torch.ones(time, envs),
        "log_prob": torch.full((time, envs), -0.7), "terminated": no, "truncated": no.clone(), "first": no.clone(),
    }  # fmt: skip


def test_demo_lines_beside_appends_demonstrations_to_a_rollout() -> None:
    demos = [demo(0.0, 1.0, 2.0, obs=10.0), demo(5.0, 6.0, terminated=False, obs=20.0)]
    mixed = with_lines(rollout(4, 2), joined([transitions(one) for one in demos]))
    assert mixed["reward"].shape == (4, 4)
    lines = {key: value[:, 2:].transpose(0, 1).flatten(0, 1).squeeze(-1).tolist() for key, value in mixed.items()}
    assert lines["obs"][:5] == [10, 11, 12, 20, 21] and lines["next_obs"][:5] == [11, 12, 13, 21, 22]
    assert lines["reward"][:5] == [0, 1, 2, 5, 6] and lines["action"][:5] == [0, 1, 2, 0, 1]
    assert lines["weight"] == [1, 1, 1, 1, 1, 0, 0, 0]
    assert lines["terminated"][:5] == [False, False, True, False, False]
    assert lines["truncated"][:5] == [False, False, False, False, True]
    assert lines["first"][:5] == [True, False, False, True, False]
    assert lines["log_prob"] == [0.0] * 8 and mixed["shown"].sum(0).tolist() == [0, 0, 4, 4]
    assert with_lines(rollout(4, 2), None)["shown"].shape == (4, 2)


def test_demo_lines_episode_recovers_a_demonstration() -> None:
    mixed = with_lines(rollout(3, 1), transitions(demo(0.0, 1.0, 2.0, obs=10.0)))
    back = episode({key: value[:, 1] for key, value in mixed.items()})
    assert back["obs"].flatten().tolist() == [10, 11, 12, 13]
    assert back["reward"].tolist() == [0, 1, 2] and back["terminated"] is True


def stacked(frames: int, steps: int = 5) -> torch.Tensor:
    """Returns observations [steps + 1, frames, 2] of an episode, as the wrapper frame_stack makes them."""
    single = torch.randn(steps + 1, 2)
    padded = torch.cat([single[:1].expand(frames - 1, 2), single])
    return torch.stack([padded[start : start + frames] for start in range(steps + 1)])


def test_demos_store_every_frame_of_a_stack_once() -> None:
    demos = buffer(frame_stack=4)
    whole = demo(0.0, 1.0, 0.0, 0.0, 0.0) | {"obs": {"obs": stacked(4), "action_mask": torch.ones(6, 4)}}
    demos.begin([whole], [])
    (kept,) = demos.reward_demos
    assert kept["obs"]["obs"].shape == (6, 1, 2) and kept["obs"]["obs"].untyped_storage().size() == 6 * 2 * 4
    assert torch.equal(demos.restored(kept)["obs"]["obs"], whole["obs"]["obs"])
    assert torch.equal(demos.restored(kept)["obs"]["action_mask"], whole["obs"]["action_mask"])
    demos.add(demos.restored(kept), 0.0)  # is cut after its reward
    success = demos.restored(demos.reward_demos[1])
    assert torch.equal(success["obs"]["obs"], whole["obs"]["obs"][:3])


def test_demos_keep_stacks_that_cannot_be_rebuilt_from_frames() -> None:
    other = torch.randn(3, 4, 2)  # recorded with other stacks, such as those that begin with zeros
    demos = buffer(frame_stack=4)
    demos.begin([demo(0.0, 1.0) | {"obs": other}], [])
    assert torch.equal(demos.restored(demos.reward_demos[0])["obs"], other)


def test_demos_store_floats_in_the_chosen_type_and_integers_in_their_own() -> None:
    dtypes = {"obs": "float16", "action": "float32", "reward": "bfloat16"}
    demos = buffer(dtypes=dtypes)
    demos.begin([demo(0.0, 1 / 3)], [])
    demos.add(demo(0.0, 1.0, obs=1 / 3), 0.0)
    demos.add(demo(0.0), 0.0)
    for kept in (*demos.reward_demos, *demos.value_demos):
        assert [kept[name].dtype for name in dtypes] == [torch.float16, torch.int64, torch.bfloat16]
        restored = demos.restored(kept)
        assert [restored[name].dtype for name in dtypes] == [torch.float32, torch.int64, torch.float32]
    assert demos.restored(demos.reward_demos[0])["reward"][1] == pytest.approx(1 / 3, rel=4e-3)
    assert demos.reward_demos[0]["worth"] == 1 / 3, "returns are those before the conversion"
    with pytest.raises(ConfigError, match=r"algo.buffer.dtypes.obs=float16: is too small for the numbers"):
        demos.begin([demo(1.0, obs=1e6)], [])


def test_demos_begin_anew() -> None:
    demos = buffer()
    demos.begin([demo(1.0)], [])
    demos.add(demo(1.0), 0.0)
    demos.add(demo(0.0), 0.0)
    demos.begin([demo(1.0)], [])
    assert len(demos) == 1 and (demos.rho, demos.phi) == (0.1, 0.3)
