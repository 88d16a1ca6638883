"""SAC with one choice beside continuous values: pairs, targets, actor, temperatures, a task with a known optimum."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from own_files import forget
from toys import toy, train

from rlrun.agents.actor_critic.mixed_sac import MixedSAC
from rlrun.agents.actor_critic.sac import SAC
from rlrun.agents.critics.ensemble import q_function
from rlrun.agents.imitation.sac_cloning import SACCloning
from rlrun.agents.policy.ppo import PPO
from rlrun.core.loop import Loop
from rlrun.core.parts import for_mixed_actions
from rlrun.errors import ConfigError
from rlrun.functional.distributions import Categorical, SquashedNormal
from rlrun.functional.losses import cloning_error
from rlrun.settings import registry
from rlrun.testing import check_algorithm
from rlrun.types import MASK, Batch, Context

Build = Callable[..., Loop]

FILE = """
from rlrun.agents.actor_critic.sac import SAC
from rlrun.settings import register

@register("algo", "file_grip")
class Grip(SAC):
    pass
"""
MIXED = {"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"action": "tuple"}}  # 3 choices, 2 continuous values
Q = [[1.0, 4.0, 0.0], [3.0, 2.0, 5.0]]  # of two critics
BATCH = {
    "obs": torch.zeros(2, 2), "next_obs": torch.zeros(2, 2),
    "action": torch.tensor([[1.0, 0.3, -0.3], [2.0, 0.0, 0.9]]),
    "reward": torch.tensor([1.0, 0.0]), "n_steps": torch.ones(2), "terminated": torch.tensor([0.0, 1.0]),
    "weight": torch.ones(2),
}  # fmt: skip
ALPHA = [0.2, 0.2]  # of the choice and of the continuous values


def agent_that_says(build: Build, **changes: Any) -> Any:
    """Returns an agent whose actor is standard normal before tanh, and whose critics output Q for every input."""
    changes = {"algo.gamma": 0.5, "algo.entropy.initial_alpha": 0.2} | MIXED | changes
    agent: Any = build(toy("sac", **changes)).agent
    with torch.no_grad():
        for param in [*agent.actor.parameters(), *agent.critic.parameters(), *agent.target_critic.parameters()]:
            param.zero_()
        for critic in (agent.critic, agent.target_critic.module):
            critic.output.bias.copy_(torch.tensor(Q)[:, None])
    return agent


def of_the_choice() -> tuple[torch.Tensor, float]:
    """Returns p = softmax(min Q / alpha) and its entropy."""
    p = (torch.tensor([1.0, 2.0, 0.0]) / ALPHA[0]).softmax(-1)
    return p, float(-(p * p.log()).sum())


def test_mixed_sac_target_sums_over_the_choices_and_adds_both_entropies(build: Build) -> None:
    agent = agent_that_says(build)
    assert isinstance(agent, MixedSAC)
    noise = torch.randn(2, 3)
    _, log_prob = agent.actor(BATCH["next_obs"]).sample(noise[:, 1:])
    p, entropy = of_the_choice()
    next_value = float(p @ torch.tensor([1.0, 2.0, 0.0])) + ALPHA[0] * entropy - ALPHA[1] * log_prob[0].item()
    targets = [1 + 0.5 * next_value, 0.0]
    stored = [[4.0, 2.0], [0.0, 5.0]]  # of the choices 1 and 2, by both critics
    by_hand = sum(0.5 * (q - target) ** 2 for values, target in zip(stored, targets, strict=True) for q in values) / 2
    assert agent.update_critic(BATCH, noise)[0]["loss/critic"].item() == pytest.approx(by_hand, rel=1e-5)


def test_mixed_sac_actor_loss_weights_critics_by_constant_probabilities(build: Build) -> None:
    """The gradient is that of alpha_c log pi_c - sum_k p_k Q_k with p held fixed."""
    agent: Any = build(toy("sac", **MIXED)).agent
    obs, noise = torch.randn(5, 2), torch.randn(5, 3)
    q, log_prob = agent.actor_q({"obs": obs}, noise)
    loss = agent.actor_loss({}, q, log_prob).mean()
    found = torch.autograd.grad(loss, [*agent.actor.parameters()])

    continuous, log_prob_c = agent.actor(obs).sample(noise[:, 1:])
    values = agent.critic(obs, continuous).amin(0)
    p = (values / agent.entropy.alpha[0]).softmax(-1).detach()
    by_hand = (agent.entropy.alpha[1] * log_prob_c - (p * values).sum(-1)).mean()
    for one, other in zip(found, torch.autograd.grad(by_hand, [*agent.actor.parameters()]), strict=True):
        torch.testing.assert_close(one, other)


def test_mixed_sac_draws_the_choice_for_its_own_continuous_values(build: Build) -> None:
    """Critics that prefer choice 1 if and only if the first value is positive: the pairs agree in every row."""
    agent = agent_that_says(build)

    def critic(obs: Any, continuous: torch.Tensor) -> torch.Tensor:
        q = 100 * torch.stack([-continuous[:, 0], continuous[:, 0], torch.full_like(continuous[:, 0], -100)], -1)
        return q.expand(2, *q.shape)

    object.__setattr__(agent, "critic", critic)
    action = agent.act(torch.zeros(2000, 2), {}, explore=True)[0]
    clear = action[:, 1].abs() > 0.05
    assert torch.equal(action[clear, 0] == 1, action[clear, 1] > 0)
    assert 0.3 < action[:, 0].mean() < 0.7


def test_mixed_sac_samples_choices_by_their_probability_and_takes_the_best(build: Build) -> None:
    agent, obs = agent_that_says(build, **{"algo.entropy.initial_alpha": 1.0}), torch.zeros(20_000, 2)
    p = torch.tensor([1.0, 2.0, 0.0]).softmax(-1)
    drawn = agent.act(obs, {}, explore=True)[0][:, 0]
    assert (drawn == 1).float().mean().item() == pytest.approx(p[1].item(), abs=0.01)
    best = agent.act(obs, {}, explore=False)[0]
    assert (best == torch.tensor([1.0, 0.0, 0.0])).all()


def test_mixed_sac_without_entropy_takes_the_best_choice(build: Build) -> None:
    agent = agent_that_says(build, **{"algo.entropy": {"name": "fixed", "ent_coef": 0.0}})
    action, _ = agent.act(torch.zeros(50, 2), {}, explore=True)
    assert (action[:, 0] == 1).all()
    with torch.no_grad():
        target = agent.target_q(BATCH, torch.randn(2, 3), agent.target_critic)
    assert target.tolist() == [1 + 0.5 * 2, 0.0]


def test_mixed_sac_masks_forbid_choices_in_acting_and_in_targets(build: Build) -> None:
    agent = agent_that_says(build, **{"env.kwargs": {"action": "tuple", "masks": "info"}})
    masked = {"obs": torch.zeros(4, 2), MASK: torch.tensor([[1, 0, 1]]).expand(4, 3)}
    assert (agent.act(masked, {}, explore=False)[0][:, 0] == 0).all()
    target_q = q_function(agent.target_critic, agent.ensemble.target_return, {})
    q, log_prob = agent.evaluate(masked, target_q, torch.zeros(4, 3))
    allowed = Categorical(torch.tensor([1.0, 0.0]) / ALPHA[0])
    assert q[0].item() == pytest.approx(allowed.logits.softmax(-1)[0].item())
    assert -log_prob[0, 0].item() == pytest.approx(allowed.entropy().item())


def test_mixed_sac_has_a_target_entropy_for_every_component(build: Build) -> None:
    default = Categorical(torch.tensor([0.9, 0.05, 0.05]).log()).entropy().item()

    def targets(**changes: Any) -> list[float]:
        return [one.target for one in build(toy("sac", **MIXED | changes)).agent.entropy.coefficients]

    assert targets() == pytest.approx([default, -2.0])
    key = "algo.entropy.target_entropy"
    assert targets(**{key: 0.4}) == [0.4, 0.4]
    assert targets(**{key: [0.4, -1.0]}) == [0.4, -1.0]
    assert targets(**{key: {"0": -1.0}}) == pytest.approx([default, -1.0])  # the Box is the first entry of the Tuple


def test_mixed_sac_takes_any_number_of_continuous_components(build: Build) -> None:
    """Platform has one choice and three Boxes of one value."""
    loop: Any = train(build(toy("sac", **{"env.id": "rlrun/Platform-v0"})), 2)
    coefficients = dict(zip(loop.agent.entropy.names, loop.agent.entropy.coefficients, strict=True))
    assert [coefficients[name].target for name in ("1", "2", "3")] == [-1.0] * 3
    q, log_prob = loop.agent.actor_q(loop.batch, torch.randn(8, 4))
    assert q.shape == (8,) and log_prob.shape == (8, 4)
    cost = loop.agent.entropy.cost(log_prob)
    torch.testing.assert_close(cost, (log_prob * loop.agent.entropy.alpha).sum(-1))


def test_mixed_sac_refuses_several_choices_in_one_line(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"at most one discrete choice in an action \(algo=ppo takes any number\)"):
        build(toy("sac", **{"env.id": "rlrun/ProbeSpaces-v0", "env.kwargs": {"action": "dict"}}))


class Halved(SAC):
    """A variant of SAC that overrides none of what MixedSAC overrides."""

    def actor_loss(self, batch: Batch, q: torch.Tensor, log_prob: torch.Tensor) -> torch.Tensor:
        return super().actor_loss(batch, q, log_prob) / 2


class Nested(Halved):
    pass


class Greedy(SAC):
    def evaluate(self, obs: Any, q: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().evaluate(obs, q, 0 * noise)


class MixedGreedy(Greedy, MixedSAC):
    pass


class OfBoxes(SAC):
    actions = Box


@pytest.mark.parametrize("cls", [Halved, Nested])
def test_subclass_of_sac_learns_mixed_actions_with_its_own_methods(
    cls: type[SAC], build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    obs, noise = torch.randn(5, 2), torch.randn(5, 3)
    batch = {"obs": obs}
    plain: Any = build(toy("sac", **MIXED)).agent
    monkeypatch.setitem(registry._registry["algo"], "sac", cls)
    agent: Any = train(build(toy("sac", **MIXED)), 1).agent
    assert isinstance(agent, cls) and isinstance(agent, MixedSAC) and type(agent).__name__ == cls.__name__
    q, log_prob = agent.actor_q(batch, noise)
    assert log_prob.shape == (5, 2)
    torch.testing.assert_close(2 * agent.actor_loss(batch, q, log_prob), SAC.actor_loss(agent, batch, q, log_prob))
    assert super(Halved, agent).evaluate.__func__ is MixedSAC.evaluate
    box: Any = build(toy("sac")).agent
    assert type(box) is cls and type(plain) is MixedSAC


def test_subclass_that_overrides_what_mixed_sac_overrides_is_refused_with_the_class_to_write(build: Build) -> None:
    spec = build(toy("sac", **MIXED)).agent.spec
    line = 'algo=sac: Greedy overrides evaluate, as MixedSAC does, .*"sac"\\) class MixedGreedy\\(Greedy, MixedSAC\\)'
    with pytest.raises(ConfigError, match=line):
        for_mixed_actions(Greedy, spec)
    assert for_mixed_actions(MixedGreedy, spec) is MixedGreedy


def test_subclass_that_states_its_actions_and_others_have_no_variant_for_mixed_actions(build: Build) -> None:
    spec = build(toy("sac", **MIXED)).agent.spec
    assert for_mixed_actions(OfBoxes, spec) is OfBoxes
    assert for_mixed_actions(SACCloning, spec) is SACCloning
    assert for_mixed_actions(PPO, spec) is PPO


def test_registered_variant_of_a_subclass_comes_first(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = build(toy("sac", **MIXED)).agent.spec
    monkeypatch.setattr(Greedy, "registered", "file_greedy")
    monkeypatch.setitem(registry._registry["mixed_algo"], "file_greedy", MixedGreedy)
    assert for_mixed_actions(Greedy, spec) is MixedGreedy


def test_subclass_in_a_file_resumes_exactly_with_mixed_actions(tmp_path: Path) -> None:
    (tmp_path / "file_grip.py").write_text(FILE)
    words = ["env=Platform", "network.hidden=[8]", "algo.loop.warmup_steps=20", "algo.loop.batch_size=8"]
    check_algorithm(f"algo={tmp_path / 'file_grip.py'}", *words)
    forget()


def test_squashed_policy_refuses_mixed_actions() -> None:
    """One continuous value would be broadcast beside the choice."""
    with pytest.raises(ValueError, match="an action of size 2 for a distribution of size 1"):
        SquashedNormal(torch.zeros(4, 1), torch.zeros(4, 1)).log_prob(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="of a policy with actions"):
        cloning_error(torch.zeros(4, 1), torch.zeros(4, 2))


def test_mixed_sac_acts_without_what_only_learning_needs(build: Build) -> None:
    """Also with critics whose values need constants, the centres of the bins."""
    values = toy("sac", **MIXED)
    size = {"num_atoms": 5, "v_min": -1.0, "v_max": 1.0, "sigma": 0.75}
    values["algo"]["critic"] = {"name": "hl_gauss", "members": 2, "target_members": None} | size
    agent: Any = train(build(values), 1).agent
    obs = torch.randn(3, 2)
    expected = agent.act(obs, {}, explore=False)[0]
    acting = {tensor.data_ptr() for module in agent.acting() for tensor in (*module.parameters(), *module.buffers())}
    for tensor in (*agent.parameters(), *agent.buffers()):
        if tensor.data_ptr() not in acting and tensor.is_floating_point():
            tensor.data.fill_(torch.nan)
    assert torch.equal(agent.act(obs, {}, explore=False)[0], expected)


def test_mixed_sac_with_a_single_choice_is_sac(build: Build) -> None:
    """So SAC that holds every action for one step is SAC."""
    hold = {"env.wrappers": {"hold": {"max_steps": 1, "gamma": 0.99}}}
    mixed: Any = build(toy("sac", **hold)).agent
    sac: Any = build(toy("sac")).agent
    assert isinstance(mixed, MixedSAC)
    for one, other in ((mixed.actor, sac.actor), (mixed.critic, sac.critic), (mixed.target_critic, sac.target_critic)):
        for param, given in zip(one.parameters(), other.parameters(), strict=True):
            param.data.copy_(given.view_as(param))
    batch = {
        "obs": torch.randn(6, 3), "next_obs": torch.randn(6, 3), "action": 2 * torch.rand(6, 1) - 1,
        "reward": torch.randn(6), "n_steps": torch.ones(6), "terminated": torch.arange(6) % 2.0,
        "weight": torch.ones(6),
    }  # fmt: skip
    choice = torch.zeros(6, 1)  # beside actions, and a column of noise that is not used
    for i in range(3):
        next_noise, noise = torch.randn(2, 6, 1)
        held = batch | {"action": torch.cat([choice, batch["action"]], 1)}
        found = mixed.update_critic(held, torch.cat([choice, next_noise], 1))
        torch.testing.assert_close(found, sac.update_critic(batch, next_noise), msg=f"critics, update {i}")
        loss = mixed.update_actor(held, torch.cat([choice, noise], 1))["loss/actor"]
        torch.testing.assert_close(loss, sac.update_actor(batch, noise)["loss/actor"], msg=f"actor, update {i}")
        torch.testing.assert_close(mixed.entropy.alpha[1], sac.entropy.alpha)


FORCES = torch.tensor([-0.5, 0.2, 0.7])  # the right force for each target


def reward(bit: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Returns the value of the chosen target, which depends on the bit, minus the squared error of the force."""
    values = torch.tensor([[0.5, 1.0, 0.8], [1.0, 0.3, 0.6]])[bit.long()]
    choice = action[:, 0].long()
    value = values.gather(1, choice.unsqueeze(1)).squeeze(1)
    return value - (action[:, 1] - FORCES[choice]) ** 2


def test_mixed_sac_is_near_the_optimum_and_its_entropies_meet_their_targets(build: Build) -> None:
    """One-step episodes: choose one of three targets and a force; the best reward is 1."""
    fast = {f"algo.{name}_learning_rate": 3e-3 for name in ("actor", "critic")} | {"network.hidden": [32]}
    entropy = {"initial_alpha": 0.03, "learning_rate": 0.02, "target_entropy": [0.2, -0.5]}
    fast |= {f"algo.entropy.{name}": value for name, value in entropy.items()}
    agent: Any = build(toy("sac", **MIXED | fast)).agent
    draw = torch.Generator().manual_seed(0)
    for i in range(1000):
        bit = torch.randint(2, (128,), generator=draw)
        choice = torch.randint(3, (128, 1), generator=draw).float()
        action = torch.cat([choice, 2 * torch.rand(128, 2, generator=draw) - 1], 1)
        batch = {"obs": shown(bit), "next_obs": shown(bit), "action": action, "reward": reward(bit, action)}
        ended = {"n_steps": torch.ones(128), "terminated": torch.ones(128), "weight": torch.ones(128)}
        agent.update(batch | ended, Context(i, i, 0.0))
    bit = torch.tensor([0, 1])
    action, _ = agent.act(shown(bit), {}, explore=False)
    assert (reward(bit, action) >= 0.95).all(), action
    _, log_prob = agent.actor_q({"obs": shown(bit.repeat(2000))}, torch.randn(4000, 3))
    assert (-log_prob).mean(0).tolist() == pytest.approx([0.2, -0.5], abs=0.12)


def shown(bit: torch.Tensor) -> torch.Tensor:
    return (2.0 * bit - 1).unsqueeze(1).expand(-1, 2)
