"""Model predictive control, in given equations and in learned dynamics."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import equal, toy, train

from rlrun.cli import main
from rlrun.errors import ConfigError
from rlrun.types import Context

Build = Callable[..., Any]


def test_the_cost_is_minus_the_imagined_return(build: Build) -> None:
    agent = build(toy("mpc")).agent
    obs, sequences = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, -2.0]]), torch.rand(2, 5, 3, 1) * 2 - 1
    found = agent.cost(obs, agent.fixed, sequences)
    equations = agent.spec.equations
    for row in range(2):
        for candidate in range(5):
            state, total = obs[row : row + 1], 0.0
            for action in sequences[row, candidate]:
                following = equations.step(state[None], action[None, None])[0]
                total += float(equations.reward(state[None], action[None, None], following[None]))
                state = following
            assert float(found[row, candidate]) == pytest.approx(-total, rel=1e-4)


def test_the_cost_averages_members_and_particles(build: Build) -> None:
    agent = build(toy("mbrl")).agent
    agent.dynamics.step = lambda state, action, noise: state + torch.tensor([1.0, 3.0]).view(2, 1, 1)
    agent.reward_model.forward = lambda obs, action, next_obs: next_obs[..., 0]
    found = agent.cost(torch.zeros(2, 3), agent.fixed, torch.zeros(2, 4, 2, 1))
    assert found.shape == (2, 4) and torch.allclose(found, torch.tensor(-(1 + 2 + 3 + 6) / 2))


def stochastic(build: Build) -> Any:
    values = toy("mbrl")
    values["algo"]["dynamics"] |= {"name": "stochastic", "particles": 3}
    return build(values)


def test_particles_of_stochastic_dynamics_draw_their_own_noise(build: Build) -> None:
    agent = stochastic(build).agent
    noise = agent.drawn(agent.imagination, 2)
    own = agent.noise_of(noise, 1, 2, 8 * 3)
    assert own.shape == (2, 2 * 24, 3), "members, rows * candidates * particles, dimensions"
    assert torch.equal(own[1, 24:], noise[1, 1, 1, :24]) and not torch.equal(own[0], own[1])
    assert torch.equal(agent.noise_of(agent.fixed, 0, 2, 24)[:, :24], agent.fixed[0, 0, :, :24])


@pytest.mark.parametrize("kind", ["deterministic", "stochastic"])
def test_acting_without_exploring_repeats(kind: str, build: Build) -> None:
    loop = stochastic(build) if kind == "stochastic" else build(toy("mbrl"))
    train(loop, 4)
    action, extras = loop.agent.act(loop.obs, loop.carry, False)
    again, others = loop.agent.act(loop.obs, loop.carry, False)
    assert equal(action, again) and equal(extras, others)
    assert not equal(loop.agent.act(loop.obs, loop.carry, True)[0], action)


def test_epsilon_is_the_probability_of_a_random_action(build: Build) -> None:
    agent = build(toy("mpc", **{"algo.epsilon": 1.0})).agent
    obs, first = torch.zeros(400, 3), torch.ones(400, dtype=torch.bool)
    action, _ = agent.act(obs, {"first": first}, True)
    assert torch.allclose(action.mean(), torch.tensor(0.0), atol=0.1) and action.std() == pytest.approx(0.577, abs=0.05)
    greedy, _ = agent.act(obs, {"first": first}, False)
    assert (greedy == greedy[0]).all()


def test_members_learn_from_their_own_part_of_a_minibatch(build: Build) -> None:
    agent = build(toy("mbrl")).agent
    batch = {name: torch.arange(7.0) for name in ("obs", "action", "next_obs", "weight", "reward")}
    rows = agent.divided(batch)
    assert rows["obs"].tolist() == [[0, 1, 2], [3, 4, 5]] and "reward" not in rows
    with pytest.raises(ConfigError, match=r"algo\.loop\.batch_size: must be at least algo\.dynamics\.members=2"):
        agent.divided({name: value[:1] for name, value in batch.items()})


def transitions(rows: int) -> Any:
    batch = {"obs": torch.randn(rows, 3), "action": torch.rand(rows, 1) * 2 - 1, "reward": torch.randn(rows)}
    return batch | {"next_obs": torch.randn(rows, 3), "weight": torch.ones(rows)}


def test_masked_rows_teach_nothing(build: Build) -> None:
    batch = transitions(8)
    batch["weight"][2] = batch["weight"][7] = 0.0
    other = {name: value.clone() for name, value in batch.items()}
    for name in ("obs", "next_obs", "reward"):
        other[name][[2, 7]] += 5.0
    agents = [build(toy("mbrl")).agent for _ in range(2)]
    for agent, rows in zip(agents, (batch, other), strict=True):
        agent.update(rows, Context(0, 0, 0.0))
        assert float(agent.dynamics.of_obs.count) == 6, "statistics grow in updates, without masked rows"
    for name in ("dynamics_optim", "reward_optim"):
        assert torch.equal(getattr(agents[0], name).flat, getattr(agents[1], name).flat)


def test_the_losses_of_all_members_are_summed(build: Build) -> None:
    agent = build(toy("mbrl")).agent
    rows = agent.divided(transitions(8))
    loss = agent.dynamics.loss(rows["obs"], rows["action"], rows["next_obs"]).mean(1).sum()
    grads = agent.dynamics_optim.grads(loss)
    agent.update_dynamics(rows)
    torch.testing.assert_close(agent.dynamics_optim.exp_avg, 0.1 * grads)


def test_given_models_are_not_trained(build: Build) -> None:
    values = toy("mbrl")
    values["algo"]["reward_model"] = {"name": "given"}
    agent = build(values).agent
    assert not [*agent.reward_model.parameters()] and not hasattr(agent, "reward_optim")
    values = toy("mbrl")
    values["algo"]["dynamics"] = {"name": "given"}
    loop = build(values)
    assert not hasattr(loop.agent, "dynamics_optim")
    assert "loss/reward_model" in train(loop, 8).tick()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["algo=mbrl", "env=CartPole"], "algo=mbrl needs Box actions; this environment has Discrete(2)"),
        (["algo=mbrl", "env=MountainCarContinuous", "algo.reward_model=given"],
         "algo.reward_model=given: this environment has no reward function of its own; choose"),
        (["algo=mpc", "env=MountainCarContinuous"], "algo.dynamics=given: this environment has no equations"),
        (["algo=mbrl", "env=Pendulum", "algo.planner.horizon=0"], "algo.planner.horizon=0: must be"),
        (["algo=mbrl", "env=Pendulum", "algo.reward_model=given", "algo.dynamics=given"], "choose algo=mpc"),
        (["algo=mpc", "env=Pendulum", "algo.dynamics=deterministic"], "choose algo=mbrl"),
        (["algo=mbrl", "env=Pendulum", "algo.planner.elites=1000"], "algo.planner.elites=1000: there are only 100"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused_in_one_line(
    words: list[str], fault: str, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    assert main(["train", *words, f"run_dir={tmp_path / 'run'}", "env.selftest=off"]) == 2
    assert fault in (line := capsys.readouterr().err) and line.count("\n") == 1 and not (tmp_path / "run").exists()
