"""The base of on-policy agents: gradients, advantages, critics and masked steps."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toys import equal, optims, put, toy, train, weights

from rlrun.agents.policy.critic_updates import BLOCK, CriticUpdate, NoCritic
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.core.state import Optim, RMSprop
from rlrun.errors import ConfigError
from rlrun.indexed import dense
from rlrun.settings import registry
from rlrun.tensors import flat
from rlrun.types import Batch

Build = Callable[..., Loop]

FAMILY = ["a2c", "a2c_split", "a2c_minibatch", "trac", "vpg", "ppo", "ppo1", "ppo2", "ppo_critic_first", "vtrace"]


def made(time: int, envs: int) -> Batch:
    no = torch.zeros(time, envs, dtype=torch.bool)
    return {
        "obs": torch.randn(time, envs, 4), "next_obs": torch.randn(time, envs, 4), "reward": torch.randn(time, envs),
        "action": torch.randint(2, (time, envs)), "log_prob": torch.full((time, envs), 0.5).log(),
        "weight": torch.ones(time, envs), "terminated": no.clone(), "truncated": no.clone(), "first": no.clone(),
    }  # fmt: skip


@pytest.mark.parametrize("algo", FAMILY)
def test_a2c_ignores_masked_steps(algo: str, build: Build) -> None:
    """A masked row between two rows of one environment has no effect, whatever it holds."""
    outcomes = []
    for junk in (0.0, 1e3):
        loop: Any = build(toy(algo))
        torch.manual_seed(0)
        rollout = made(8, 2)
        rollout["weight"][3, 0] = 0
        for key in ("obs", "next_obs", "reward"):
            rollout[key][3, 0] += junk
        rollout["truncated"][3, 0] = junk > 0  # a restart sets `first`; the row before ends its episode all the same
        metrics = loop.agent.update(rollout, loop.context())
        outcomes.append([*weights(loop), metrics])
    assert equal(*outcomes)


@pytest.mark.parametrize("algo", FAMILY)
def test_a2c_bootstraps_before_masked_steps(algo: str, build: Build) -> None:
    agent: Any = build(toy(algo)).agent
    rollout = made(4, 1)
    rollout["weight"][2] = 0
    alone = {key: value[:2] for key, value in rollout.items()}
    torch.testing.assert_close(agent.advantages(rollout)["advantage"][:2], agent.advantages(alone)["advantage"])


@pytest.mark.parametrize("mode", ["rollout", "running", "minibatch"])
def test_a2c_normalises_advantages_over_valid_steps(mode: str, build: Build) -> None:
    agent: Any = build(toy("a2c", **{"algo.advantage.normalize": mode})).agent
    rollout = made(64, 2)
    rollout["weight"][::3] = 0
    rollout["reward"][::3] = 1e6
    data = agent.advantages(rollout)
    plain, kept = data["advantage"], data["weight"] > 0
    normalised = agent.advantage.normalise_rollout(plain, data["weight"])
    if mode == "minibatch":
        assert torch.equal(normalised, plain), "that happens in the minibatch"
        return
    assert normalised[kept].mean().item() == pytest.approx(0, abs=1e-4)
    assert normalised[kept].std().item() == pytest.approx(1, abs=0.02)


def test_a2c_running_normalisation_keeps_previous_rollouts(build: Build) -> None:
    agent: Any = build(toy("a2c", **{"algo.advantage.normalize": "running"})).agent
    weight, seen = torch.ones(16, 2), []
    for scale in (1.0, 10.0, 3.0):
        seen.append(scale * torch.randn(16, 2))
        normalised = agent.advantage.normalise_rollout(seen[-1], weight)
    past = torch.cat(seen)
    expected = (seen[-1] - past.mean()) / past.std(correction=0)
    torch.testing.assert_close(normalised, expected, rtol=1e-5, atol=1e-5)


def test_a2c_joint_gradient_equals_the_paper(build: Build) -> None:
    """d/d theta of -mean(A log pi) + c_v 1/2 mean((R - V)^2) - c_e H, for the output layers, by hand."""
    coefficients = {"algo.critic_update.value_coef": 0.5, "algo.entropy.ent_coef": 0.3}
    loop: Any = build(toy("a2c", **{"network": {"name": "linear"}} | coefficients))
    agent, grads = loop.agent, []
    agent.optim.apply = grads.append
    obs, action, n = torch.randn(6, 4), torch.tensor([0, 1, 1, 0, 1, 0]), 6
    advantage, target = torch.randn(6), torch.randn(6)
    with torch.no_grad():
        probabilities, value = agent.policy(obs).logits.softmax(-1), agent.critic.network(obs)
    zero = torch.zeros(6)
    agent.update_minibatch(
        {"obs": obs, "action": action, "advantage": advantage, "return": target, "value": zero, "log_prob": zero,
         "weight": torch.ones(6)}
    )  # fmt: skip
    score = torch.nn.functional.one_hot(action, 2) - probabilities  # d log pi / d logits
    log_probabilities = probabilities.log()
    entropy = -(probabilities * log_probabilities).sum(-1, keepdim=True)
    entropy_score = -probabilities * (log_probabilities + entropy)  # d H / d logits
    logits = -(advantage.unsqueeze(-1) * score + 0.3 * entropy_score) / n
    values = 0.5 * (value - target) / n
    expected = {
        "policy.output.weight": obs.T @ logits, "policy.output.bias": logits.sum(0),
        "critic.network.output.weight": obs.T @ values.unsqueeze(-1),
        "critic.network.output.bias": values.sum().view(1),
    }  # fmt: skip
    names = {id(param): name for name, param in agent.named_parameters()}
    assert sorted(names.values()) == sorted(expected)
    flat = grads[0].split([param.numel() for param in agent.optim.params])
    for param, grad in zip(agent.optim.params, flat, strict=True):
        torch.testing.assert_close(grad.view_as(param), expected[names[id(param)]])


def test_critic_update_split_has_parameters_of_its_own(build: Build) -> None:
    joint: Any = build(toy("a2c"))
    split: Any = build(toy("a2c_split"))
    assert not hasattr(joint.agent.critic, "optim")
    value_params = {id(param) for param in split.agent.critic.parameters()}
    assert not value_params & {id(param) for param in split.agent.optim.params}


@pytest.mark.parametrize("algo", ["a2c_split", "ppo_critic_first"])
def test_critic_has_optimiser_clipping_and_schedule_of_its_own(algo: str, build: Build) -> None:
    shared = {"algo.max_grad_norm": 0.25, "algo.optimizer": "rmsprop"}
    agent: Any = build(toy(algo, **shared, **{"algo.critic_update.learning_rate": 0.5})).agent
    optim = agent.critic.optim
    assert (type(optim), optim.max_grad_norm) == (RMSprop, 0.25)
    own = {"optimizer": "adam", "learning_rate": 0.5, "max_grad_norm": 9.0}
    shared["algo.schedule"] = {"critic_update": {"learning_rate": {"StepLR": {"step_size": 1}}}}
    loop = build(toy(algo, **shared, **{f"algo.critic_update.{key}": value for key, value in own.items()}))
    agent = loop.agent
    assert (type(agent.critic.optim), agent.critic.optim.max_grad_norm) == (Optim, 9.0)
    assert (type(agent.optim), agent.optim.max_grad_norm) == (RMSprop, 0.25)
    train(loop, 2)
    assert agent.critic.optim.learning_rate == pytest.approx(0.05)


def test_schedule_of_the_critic_is_refused_under_its_own_key(build: Build) -> None:
    rate = {"algo.critic_update.learning_rate": 0.1, "algo.schedule": {"critic_update.learning_rate": {"StepRL": {}}}}
    with pytest.raises(ConfigError, match=r"^algo\.schedule\.critic_update\.learning_rate\.StepRL: .* 'StepLR'"):
        build(toy("a2c_split", **rate))


@pytest.mark.parametrize("after", [True, False])
def test_critic_update_first_recomputes_advantages_by_option(after: bool, build: Build) -> None:
    changes = {
        "algo.advantage.normalize": "none",
        "algo.critic_update.advantage_after_fit": after,
        "algo.critic_update.epochs": 20,
    }
    agent: Any = (loop := build(toy("ppo_critic_first", **changes))).agent
    rollout = made(16, 2)
    before, used = agent.advantages(rollout), []
    agent.advantage.normalise_rollout = lambda advantage, weight: (used.append(advantage), advantage)[1]
    agent.update(rollout, loop.context())
    assert agent.critic.optim.steps == 20 * 4
    now = agent.advantages(rollout)["advantage"]
    assert torch.equal(used[0], now if after else before["advantage"])
    assert not torch.equal(now, before["advantage"])


def test_critic_update_none_gives_rewards_to_go(build: Build) -> None:
    agent: Any = build(toy("vpg", **{"algo.gamma": 0.5})).agent
    rollout = made(3, 1) | {"reward": torch.tensor([[1.0], [2.0], [4.0]])}
    rollout["terminated"][2] = True
    assert isinstance(agent.critic, NoCritic)
    assert agent.advantages(rollout)["advantage"].flatten().tolist() == [3.0, 4.0, 4.0]


def test_reinforce_gradient_is_that_of_the_expected_return(build: Build) -> None:
    """On a bandit, the gradient can be computed exactly: the sum over arms of p(arm) r(arm) d log p(arm)."""
    loop: Any = build(toy("vpg", **{"network": {"name": "linear"}}))
    agent, total = loop.agent, torch.zeros(2)
    obs, rewards, grads = torch.zeros(1, 4), torch.tensor([1.0, 3.0]), []
    agent.optim.apply = grads.append
    probabilities = agent.policy(obs).logits.softmax(-1)[0].detach()
    one = torch.ones(1)
    for arm in (0, 1):
        batch = {"obs": obs, "action": torch.tensor([arm]), "advantage": rewards[arm : arm + 1], "log_prob": one}
        agent.update_minibatch(batch | {"weight": one})
        bias = grads[-1].split([param.numel() for param in agent.optim.params])
        total += probabilities[arm] * next(g for g in bias if g.numel() == 2)
    expected = -probabilities * (rewards - (probabilities * rewards).sum())
    torch.testing.assert_close(total, expected)


def test_vpg_weights_do_not_depend_on_the_number_of_environments(build: Build) -> None:
    """Whole episodes are the same for any number, so the weights are equal up to the order of sums."""
    one, four = (train(build(toy("vpg", **{"env.num_envs": n})), 2) for n in (1, 4))
    for mine, other in zip(weights(one), weights(four), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algo", FAMILY)
def test_a2c_ignores_a_fully_masked_rollout(algo: str, build: Build) -> None:
    loop: Any = build(toy(algo, **{"algo.target_kl": 0.01}))
    before = weights(loop)
    loop.agent.update(made(2, 2) | {"weight": torch.zeros(2, 2)}, loop.context())
    loop.agent.update(made(2, 2), loop.context())
    assert not equal(before, weights(loop))
    assert all(torch.isfinite(param).all() for param in weights(loop))


def test_critic_update_shared_trains_the_torso_of_the_policy(build: Build) -> None:
    """With advantages of 0 only the values are learned. The torso still changes, and the optimiser holds it once."""
    agent: Any = build(toy("a2c", **{"algo.critic_update.name": "shared"})).agent
    assert agent.critic.network.torso is agent.policy.torso
    assert len(agent.optim.params) == len([*agent.parameters()])
    rollout = {key: flat(value) for key, value in made(8, 2).items()}
    before = [param.clone() for param in agent.policy.parameters()]
    agent.update_minibatch(rollout | {"advantage": torch.zeros(16), "value": torch.zeros(16), "return": torch.ones(16)})
    moved = [not torch.equal(*pair) for pair in zip(before, agent.policy.parameters(), strict=True)]
    names = [name for name, _ in agent.policy.named_parameters()]
    assert dict(zip(names, moved, strict=True)) == {name: name.startswith("torso") for name in names}


def test_a2c_action_noise_is_in_the_action_and_its_log_probability(build: Build) -> None:
    """A standard deviation of 0.3 of the policy and 0.4 of the noise give 0.5 together."""
    noise = {"name": "gaussian", "mean": 0.0, "std": 0.4, "random_action": 0.0}
    agent: Any = build(put_on_pendulum("algo.init_std", 0.3, "algo.noise", noise)).agent
    obs = torch.zeros(4000, 3)
    carry = {"first": torch.ones(4000, dtype=torch.bool)}
    action, extras = agent.act(obs, carry, explore=True)
    mean = agent.act(obs, carry, explore=False)[0]
    assert (action - mean).std().item() == pytest.approx(0.5, rel=0.03)
    exact = torch.distributions.Normal(mean, 0.5).log_prob(action).sum(-1)
    torch.testing.assert_close(extras["log_prob"], exact)
    torch.testing.assert_close(agent.policy(obs).log_std.exp(), torch.full((4000, 1), 0.3))


def test_a2c_minibatch_critic_learns_discounted_returns(build: Build) -> None:
    agent: Any = build(toy("a2c_minibatch", **{"algo.gamma": 0.9})).agent
    rollout = made(4, 1)
    _, next_value = agent.critic.values(rollout)
    expected, following = [], next_value[-1]
    for reward in reversed(rollout["reward"]):
        following = reward + 0.9 * following
        expected.insert(0, following)
    torch.testing.assert_close(agent.advantages(rollout)["return"], torch.stack(expected))


@pytest.mark.parametrize("own", [1, 2, 3])
def test_critic_loss_averages_own_columns_and_adds_those_of_bonuses(own: int, build: Build) -> None:
    critic: Any = build(toy("a2c")).agent.critic
    critic.own_rewards = own
    critic.network = torch.nn.Identity()
    errors = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [9.0, 9.0, 9.0]])
    zero = torch.zeros(3, 3)
    loss = critic.loss({"obs": errors, "value": zero, "return": zero, "weight": torch.tensor([1.0, 1.0, 0.0])})
    squares = 0.5 * errors[:2] ** 2
    torch.testing.assert_close(loss, (squares[:, :own].mean(1) + squares[:, own:].sum(1)).mean())


@pytest.mark.parametrize("name", ["joint", "shared", "split", "first"])
def test_critic_gradient_is_limited_beyond_huber_delta(name: str, build: Build) -> None:
    words = [
        "algo=ppo",
        "env=CartPole",
        "preset=none",
        f"algo.critic_update={name}",
        "algo.critic_update.huber_delta=2",
    ]
    critic: Any = build(jobs(words)[0].values).agent.critic
    critic.network = torch.nn.Identity()
    value = torch.tensor([-5.0, -1.5, 1.5, 5.0], requires_grad=True)
    zero = torch.zeros(4)
    loss = critic.loss({"obs": value, "value": zero, "return": zero, "weight": torch.ones(4)})
    (gradient,) = torch.autograd.grad(loss, value)
    assert (4 * gradient).tolist() == [-2.0, -1.5, 1.5, 2.0]


@pytest.mark.parametrize("columns", [1, 2])
def test_critic_loss_is_in_units_of_the_standard_deviation_of_returns_by_option(columns: int) -> None:
    settings = registry.lookup("critic_update", "joint").Config
    critics: list[Any] = []
    for normalize in (False, True):
        cfg = settings(value_coef=1.0, clip_value=None, huber_delta=None, normalize_target=normalize)
        parts: Any = SimpleNamespace(spec=SimpleNamespace(reward_dim=columns, own_rewards=columns))
        critics.append(CriticUpdate(cfg, None, parts))
        critics[-1].network = torch.nn.Identity()
    shape = (3, columns) if columns > 1 else (3,)
    returns = torch.tensor([[1.0, 10.0], [5.0, 30.0], [800.0, 800.0]])[:, :columns].view(shape)
    value = torch.randn(shape, requires_grad=True)
    batch = {"obs": value, "value": torch.zeros(shape), "return": returns, "weight": torch.tensor([1.0, 1.0, 0.0])}
    gradients = []
    for critic in critics:
        critic.observe(batch)
        gradients.append(torch.autograd.grad(critic.loss(batch), value)[0])
    var = torch.tensor([4.0, 100.0])[:columns]
    torch.testing.assert_close(gradients[1], gradients[0] / (var if columns > 1 else var[0]))
    assert critics[1].loss(batch | {"obs": returns}) == 0, "the same minimum"


@pytest.mark.parametrize("name", ["joint", "phasic"])
def test_returns_of_every_rollout_enter_the_scale_of_the_critic_once(name: str, build: Build) -> None:
    word = {"algo.critic_update.normalize_target": True}
    loop: Any = train(build(toy({"joint": "a2c", "phasic": "ppg"}[name], **word)), 2)
    assert loop.agent.critic.moments.count == loop.steps


@pytest.mark.parametrize("shuffle", [True, False])
def test_a2c_minibatches_are_shuffled_by_option(shuffle: bool, build: Build) -> None:
    loop: Any = build(toy("a2c", **{"algo.shuffle": shuffle, "algo.minibatch_size": 4}))
    agent, seen, rollout = loop.agent, [], made(8, 2)
    update = agent.update_minibatch
    object.__setattr__(agent, "update_minibatch", lambda batch: (seen.append(batch["obs"]), update(batch))[1])
    agent.update(rollout, loop.context())
    in_order = torch.cat([flat(rollout["obs"])] * 2)
    assert torch.equal(torch.cat(seen), in_order) != shuffle
    assert torch.equal(torch.cat(seen).sort(0).values, in_order.sort(0).values)


def test_critic_update_first_has_its_own_minibatches(build: Build) -> None:
    loop: Any = build(toy("ppo_critic_first", **{"algo.critic_update.minibatch_size": 2, "algo.minibatch_size": 8}))
    loop.agent.update(made(8, 2), loop.context())
    assert loop.agent.critic.optim.steps == 2 * 8 and loop.agent.optim.steps == 2 * 2


@pytest.mark.parametrize("algo", ["a2c", "ppo_critic_first"])
def test_a2c_takes_the_number_of_minibatches(algo: str, build: Build) -> None:
    changes: Any = {"algo.num_minibatches": 4, "algo.minibatch_size": None}
    if algo == "ppo_critic_first":
        changes["algo.critic_update.minibatch_size"] = None
    loop: Any = build(toy(algo, **changes))
    loop.agent.update(made(8, 2), loop.context())
    assert {optim.steps.item() for _, optim in optims(loop)} == {2 * 4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "algo.num_minibatches=3: contradicts algo.minibatch_size=8; set algo.minibatch_size=null"),
        ({"algo.minibatch_size": None}, "algo.num_minibatches=3: must divide env.num_envs=2"),
    ],
)
def test_a2c_refuses_contradicting_minibatches(changes: Any, message: str, build: Build) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        build(toy("ppo_lstm", **{"algo.num_minibatches": 3} | changes))


def test_a2c_values_of_successors_equal_those_of_the_next_rows(build: Build) -> None:
    """Each observation passes through the critic once; results equal those of two passes over all rows."""
    loop: Any = build(toy("a2c", **{"env.max_episode_steps": 3}))
    agent, rollout = loop.agent, loop.collect_rollout()
    seen: list[int] = []
    forward = agent.critic.network.forward
    agent.critic.network.forward = lambda obs: (seen.append(len(obs)), forward(obs))[1]
    value, next_value = agent.critic.values(rollout)
    ended = (rollout["terminated"] | rollout["truncated"])[:-1].sum().item()
    assert ended > 0 and len(seen) == 1 and 8 * 2 + 2 + ended <= seen[0] < 8 * 2 + 2 + ended + BLOCK
    torch.testing.assert_close(value, forward(dense(rollout["obs"])), rtol=0, atol=1e-6)
    torch.testing.assert_close(next_value, forward(dense(rollout["next_obs"])), rtol=0, atol=1e-6)


def test_a2c_reports_the_explained_variance(build: Build) -> None:
    loop: Any = build(toy("a2c", **{"algo.gamma": 0.5}))
    rollout = made(4, 2)
    data = loop.agent.advantages(rollout)
    errors = data["return"] - data["value"]
    expected = 1 - errors.var(correction=0) / data["return"].var(correction=0)
    metrics = loop.agent.update(rollout, loop.context())
    torch.testing.assert_close(metrics["loss/explained_variance"], expected)
    assert metrics["loss/grad_norm"] > 0


@pytest.mark.parametrize("rate", [1e-2, 1e-30])
@pytest.mark.parametrize("algo", FAMILY)
def test_losses_after_a_single_epoch_are_those_of_the_new_weights(algo: str, rate: float, build: Build) -> None:
    values = toy(algo, **{"algo.epochs": 1, "algo.learning_rate": rate, "algo.loop.lag": 0})
    own = values["algo"]["critic_update"]
    own |= {key: value for key, value in {"epochs": 1, "learning_rate": rate}.items() if key in own}
    loops = [build(put(values, {"algo.loss_after": after})) for after in (False, True)]
    without, metrics = [loop.tick() for loop in loops]
    assert equal(*map(weights, loops)), "nothing else is learned"
    losses = [name for name in ("loss/actor", "loss/critic") if name in without]
    ends = {f"{name}_{end}_epoch" for name in losses for end in ("first", "last")}
    assert len(losses) == 2 - (algo == "vpg") and metrics.keys() - without.keys() == ends
    for name in losses:
        assert metrics[f"{name}_first_epoch"] == metrics[name] == without[name], "the loss before the update"
        stays = metrics[f"{name}_last_epoch"].isclose(metrics[name], rtol=1e-4, atol=1e-6)
        assert bool(stays) == (rate < 1e-9)


def test_a2c_gaussian_policy_finds_the_best_action(build: Build) -> None:
    """The reward is -(a - 0.7)^2, in one-step episodes."""
    loop: Any = build(put_on_pendulum("algo.learning_rate", 0.01))
    obs, yes = torch.zeros(512, 3), torch.ones(1, 512, dtype=torch.bool)
    for _ in range(200):
        action, extras = loop.agent.act(obs, {"first": yes[0]}, explore=True)
        rows = {"obs": obs, "next_obs": obs, "action": action, "log_prob": extras["log_prob"]}
        batch = {key: value.unsqueeze(0) for key, value in rows.items()}
        batch |= {"reward": -((action[:, 0] - 0.7) ** 2).unsqueeze(0), "weight": torch.ones(1, 512)}
        loop.agent.update(batch | {"terminated": yes, "truncated": ~yes, "first": yes}, loop.context())
    assert loop.agent.act(obs, {"first": yes[0]}, explore=False)[0][0].item() == pytest.approx(0.7, abs=0.05)


def put_on_pendulum(*given: Any) -> Any:
    """Returns A2C on Pendulum, with these keys and values."""
    words = ["algo=a2c", "env=Pendulum", "preset=none"]
    small = {"env.num_envs": 2, "network.hidden": [8], "algo.loop.rollout_steps": 8, "algo.learning_rate": 0.01}
    return put(jobs(words)[0].values, small | dict(zip(given[::2], given[1::2], strict=True)))
