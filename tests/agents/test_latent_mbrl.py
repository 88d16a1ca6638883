"""Planning in the predictions of a representation."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import equal, toy, train

from rlrun.cli import main
from rlrun.core import ownership

Build = Callable[..., Any]


def test_the_cost_is_minus_the_sum_of_predicted_rewards(build: Build) -> None:
    loop = build(toy("latent_mbrl"))
    agent, model = loop.agent, loop.addons[0]
    latent, sequences = torch.randn(2, 4), torch.rand(2, 5, 3, 1) * 2 - 1
    model.requires_grad_(False)
    found = agent.cost(latent, sequences)
    for row in range(2):
        for candidate in range(5):
            state, total = latent[row : row + 1], 0.0
            for action in sequences[row, candidate]:
                state = state + model.dynamics(state, action[None])
                total += float(model.decoders["reward"](state))
            assert float(found[row, candidate]) == pytest.approx(-total, rel=1e-4, abs=1e-5)


def test_the_agent_has_no_weights_and_shards_receive_those_of_the_representation(build: Build) -> None:
    loop = build(toy("latent_mbrl"))
    assert not [*loop.agent.parameters()]
    acting = {id(param) for module in loop.agent.acting() for param in module.parameters()}
    assert {id(param) for param in loop.addons[0].parameters()} <= acting
    ownership.check(loop.agent, loop.addons)
    before = loop.addons[0].optim.flat.clone()
    assert {"loss/representation_obs", "loss/representation_reward"} <= train(loop, 12).tick().keys()
    assert not torch.equal(before, loop.addons[0].optim.flat)


def test_plans_follow_what_the_representation_learned(build: Build) -> None:
    loop = train(build(toy("latent_mbrl")), 6)
    latent, _ = loop.see(loop.obs, loop.carry, False)
    action, extras = loop.agent.act(latent, loop.carry, False)
    again, others = loop.agent.act(latent, loop.carry, False)
    assert equal(action, again) and equal(extras, others)
    with torch.no_grad():
        loop.addons[0].decoders["reward"].network.output.weight.neg_()
    assert not equal(loop.agent.act(latent, loop.carry, False)[0], action)


def test_epsilon_is_the_probability_of_a_random_action_in_training(build: Build) -> None:
    agent = build(toy("latent_mbrl", **{"algo.epsilon": 1.0})).agent
    latent, first = torch.zeros(400, 4), torch.ones(400, dtype=torch.bool)
    action, _ = agent.act(latent, {"first": first}, True)
    assert torch.allclose(action.mean(), torch.tensor(0.0), atol=0.1) and action.std() == pytest.approx(0.577, abs=0.05)
    greedy, _ = agent.act(latent, {"first": first}, False)
    assert (greedy == greedy[0]).all()


GRU = ["algo.representation.network=gru", "algo.representation.dynamics_network=gru"]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["algo.representation=null"], "algo=latent_mbrl: plans in predictions; set algo.representation=predictive"),
        (["algo.representation=encoding"], "algo=latent_mbrl: plans in predictions; set algo.representation="),
        (["algo.representation.decode.reward=0"],
         "algo.representation.decode=obs: reward is not decoded, but algo=latent_mbrl plans with predicted rewards"),
        (GRU, "algo.representation.dynamics_network begins with the state of the encoder, which latent states do not"),
        (["env=CartPole"], "algo=latent_mbrl needs Box actions; this environment has Discrete(2)"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_in_latent_states_is_refused_in_one_line(
    words: list[str], fault: str, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    env = [] if "env=CartPole" in words else ["env=Pendulum"]
    assert main(["train", "algo=latent_mbrl", *env, *words, f"run_dir={tmp_path / 'run'}", "env.selftest=off"]) == 2
    assert fault in (line := capsys.readouterr().err) and line.count("\n") == 1 and not (tmp_path / "run").exists()
