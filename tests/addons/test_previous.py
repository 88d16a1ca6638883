"""The previous action and reward: in the carry, beside observations, and in what networks learn from."""

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from toys import equal, put, toy, train

from rlrun.addons.previous import PreviousStep
from rlrun.cli import main
from rlrun.core.collector import Collector
from rlrun.core.loop import Loop
from rlrun.core.previous import remembered
from rlrun.errors import ConfigError
from rlrun.run.evaluation import play
from rlrun.run.policy import Policy
from rlrun.testing import check_resuming, load, save
from rlrun.types import Spec

Build = Callable[..., Loop]
BOTH = {"network.previous": ["action", "reward"]}
LSTM = {"network.sequence_length": 3, "network.burn_in": 2, "algo.buffer.capacity": 200}


def test_remembered_extras_start_anew_in_every_episode() -> None:
    carry = {"first": torch.tensor([True, False]), "carry.action": torch.tensor([[1.0], [2.0]])}
    initial = torch.tensor([[5.0], [6.0]])
    assert remembered(carry, "action", initial).tolist() == [[5.0], [2.0]]
    assert remembered(carry, "reward", initial).tolist() == initial.tolist()


@pytest.mark.parametrize("loop_of", ["ppo_lstm", "recurrent_sac"])
def test_carry_holds_the_executed_action_and_the_reward_of_the_environment(loop_of: str, build: Build) -> None:
    """Actions of PPO may be beyond the bounds, and rewards are stored as they are, whatever normalises them."""
    own = {"env.normalize.kind": "both", "env.max_episode_steps": 5, "env.id": "Pendulum-v1"}
    loop: Any = build(toy(loop_of, **own, **BOTH))
    found = [loop.collector.advance(loop.agent)[0] for _ in range(12)]
    assert loop.carry.keys() == {"first", "carry.action", "carry.reward", "carry.memory"}
    for before, step in pairwise(found):
        assert torch.equal(before["carry.action"], before["executed"])
        assert torch.equal(before["carry.reward"], before["reward"])
        begins = before["truncated"]
        assert torch.equal(step["first"], begins)
        assert torch.equal(step["previous_action"], torch.where(begins.unsqueeze(1), 0.0, before["executed"]))
        assert torch.equal(step["previous_reward"], torch.where(begins, 0.0, before["reward"]))
    assert not found[0]["previous_action"].any() and not found[0]["previous_reward"].any()
    assert any(step["truncated"].any() for step in found[:-1])


def test_agents_that_read_nothing_of_the_previous_step_carry_nothing(build: Build) -> None:
    loop = build(toy("sac"))
    step = loop.collect()[0]
    assert loop.carry.keys() == {"first"}
    assert not any(name.startswith(("carry.", "previous_")) for name in step)


@pytest.mark.parametrize(
    ("action", "shape"), [(Discrete(3), ()), (Box(-1.0, 1.0, (2,)), (2,))], ids=["discrete", "continuous"]
)
def test_previous_step_is_an_entry_of_every_observation(action: Any, shape: tuple[int, ...]) -> None:
    spec = Spec(Box(-1.0, 1.0, (3,)), action, 2, reward_dim=2)
    addon = PreviousStep(["action", "reward"], spec, "network")
    space = addon.spec_after(spec).obs
    assert isinstance(space, Dict)
    assert [*space.spaces] == ["obs", "previous_action", "previous_reward"]
    assert space["previous_action"] == action and space["previous_reward"].shape == (2,)
    obs, extras = addon.see(torch.zeros(2, 3), {"first": torch.tensor([True, True])}, False)
    assert isinstance(obs, dict) and equal({key: obs[key] for key in extras}, extras)
    assert extras["previous_action"].shape == (2, *shape)
    only = PreviousStep(["reward"], spec, "network")
    assert [*only.stores] == ["previous_reward", "carry.reward"]
    with pytest.raises(ConfigError, match=r"network\.previous: the observation already has an entry 'previous_action'"):
        PreviousStep(["action"], addon.spec_after(spec), "network")


@pytest.mark.parametrize("n_step", [1, 3])
def test_replayed_sequences_hold_the_step_before_every_observation(n_step: int, build: Build) -> None:
    loop: Any = build(toy("r2d2", **{"env.max_episode_steps": 5, "algo.n_step": n_step}, **LSTM, **BOTH))
    for _ in range(40):
        loop.tick()
    stored, batch = loop.buffer.stored(), loop.buffer.all()
    before, after = (loop.addons[0].relabel(batch)[key] for key in ("obs", "next_obs"))
    num_envs = loop.env.spec.num_envs
    seen = 0
    for time, column in batch["mask"].nonzero().tolist():
        row = int(batch["index"][column]) + (time - 2) * num_envs  # 2 steps of burn-in
        here = {key: value[row] for key, value in stored.items() if key not in ("obs", "next_obs")}
        assert torch.equal(after["previous_action"][time, column], here["action"])
        assert torch.equal(after["previous_reward"][time, column], here["reward"])
        last = row - num_envs
        starts = last < 0 or bool(stored["terminated"][last] or stored["truncated"][last])
        expected = (0, 0.0) if starts else (stored["action"][last].item(), stored["reward"][last].item())
        found = before["previous_action"][time, column].item(), before["previous_reward"][time, column].item()
        assert found == expected
        seen += not starts
    assert seen > 100


def test_rollouts_have_the_log_probabilities_of_acting(build: Build) -> None:
    """Only if actor and critic see in an update what they saw when they acted."""
    changes = {"env.id": "Pendulum-v1", "env.normalize.kind": "both", "env.max_episode_steps": 5}
    loop: Any = build(toy("ppo_lstm", **changes, **BOTH))
    rollout = loop.addons.relabel(loop.collect_rollout())
    torch.testing.assert_close(loop.agent.policy(rollout["obs"]).log_prob(rollout["action"]), rollout["log_prob"])
    others = dict(rollout["obs"]) | {"previous_action": torch.zeros_like(rollout["obs"]["previous_action"])}
    assert not torch.allclose(loop.agent.policy(others).log_prob(rollout["action"]), rollout["log_prob"])


def test_evaluations_and_policies_pass_on_the_previous_step(build: Build) -> None:
    loop: Any = build(toy("recurrent_sac", **BOTH))
    env = loop.env
    seen: list[Any] = []

    def act(obs: Any, carry: Any, explore: bool) -> Any:
        action, extras = loop.agent.act(obs, carry, explore)
        seen.append((obs, action))
        return action, extras

    env.reset()
    state = env.get_extra_state()
    steps: list[Any] = []
    step_env = env.step

    def step(action: torch.Tensor) -> Any:
        result, events = step_env(action)
        steps.append(result)
        return result, events

    env.step = step
    play(SimpleNamespace(act=act), loop.addons, env, 2)  # type: ignore[arg-type]
    assert state and len(steps) > 5
    for (obs, _), before in zip(seen[1:], steps, strict=False):
        begins = before["terminated"] | before["truncated"]
        assert torch.equal(obs["previous_reward"], torch.where(begins, 0.0, before["reward"]))
        assert torch.equal(obs["previous_action"], torch.where(begins.unsqueeze(1), 0.0, before["executed"]))
    policy = Policy(loop.agent, loop.addons, env.spec, env.device)
    for (obs, action), before in zip(seen, [None, *steps], strict=False):
        if before is not None:
            policy.receive(before["reward"].numpy())
        native = policy.act(obs["obs"].numpy())
        assert np.array_equal(native, env.actions.to_native(env.actions.clip(action.numpy())))
        if before is not None and (before["terminated"] | before["truncated"]).any():
            break
    with pytest.raises(ValueError, match=r"reads rewards: call receive\(reward\) after each step"):
        policy.act(obs["obs"].numpy())


@pytest.mark.parametrize("algo", ["kl_sac", "recurrent_sac", "ppo_lstm"])
def test_runs_that_read_the_previous_step_resume_bit_for_bit(algo: str, build: Build) -> None:
    values = toy(algo, **({} if algo == "kl_sac" else BOTH))
    check_resuming(train(build(values), 3), build(values, begin=False))


@pytest.mark.parametrize("algo", ["kl_sac", "recurrent_sac", "ppo_lstm"])
def test_shards_that_read_the_previous_step_in_workers_equal_those_in_the_run(
    algo: str, build: Build, tmp_path: Any
) -> None:
    values = toy(algo, **({} if algo == "kl_sac" else BOTH), **{"algo.loop.shards": 2})
    local = {"cluster": {"name": "local", "workers": 2, "on_lost": "fail", "state_every": 100}}
    here, there = build(values), build(put(values, local))
    digests = [save(train(loop, 3), tmp_path / "run").digest for loop in (here, there)]
    assert digests[0] == digests[1]
    resumed = load(build(values, begin=False), save(there, tmp_path / "run"))
    assert equal(resumed.carry, here.carry) and "carry.action" in here.carry


def test_actions_beyond_their_bounds_are_remembered_as_they_were_executed(build: Build) -> None:
    loop: Any = build(toy("kl_sac"))
    assert loop.addons.reads_previous == ("action",)
    carries: list[Any] = []

    def act(obs: Any, carry: Any, explore: bool) -> Any:
        carries.append(carry)
        return torch.full((2, 1), 7.0), {}

    beyond: Any = SimpleNamespace(act=act)
    collector = Collector(loop.agent, loop.addons, loop.env, loop.clock)
    collector.begin()
    collector.collect(2, beyond)
    policy = Policy(beyond, loop.addons, loop.env.spec, loop.env.device)
    policy.act(np.zeros((2, 3), np.float32))
    policy.act(np.zeros((2, 3), np.float32))
    assert [carry.get("carry.action", torch.zeros(2, 1)).tolist() for carry in carries] == 2 * [
        [[0.0], [0.0]],
        [[1.0], [1.0]],
    ]


def test_demonstrations_refuse_the_previous_step(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    words = ["algo=ppo_demos", "env=Pendulum", "network=lstm", "network.previous=[reward]"]
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}"]) == 2
    assert "algo.loop=demonstrations: is not supported with network.previous" in capsys.readouterr().err
