"""Critics: values, reductions over the members, targets, losses and errors; what SAC, TD3 and DQN learn with them."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from toys import put, toy, train

from rlrun.agents.critics.ensemble import Ensemble
from rlrun.agents.critics.reward_columns import RewardColumns
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.core.random import Stream
from rlrun.errors import ConfigError
from rlrun.functional.losses import quantile_huber
from rlrun.settings import registry
from rlrun.types import Batch, Context

Build = Callable[..., Loop]
REWARD, DISCOUNT = torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.0])  # the second row terminates
CRITICS = ("min", "mean", "rescaled", "hl_gauss", "categorical", "quantile", "truncated")
SIZES: dict[str, dict[str, Any]] = {
    "min": {"normalize_target": False},
    "mean": {"huber_delta": 1.0, "normalize_target": False},
    "rescaled": {"huber_delta": None, "normalize_target": False},
    "hl_gauss": {"num_atoms": 40, "v_min": -2.0, "v_max": 2.0, "sigma": 0.75},
    "categorical": {"num_atoms": 3, "v_min": 0.0, "v_max": 2.0},
    "quantile": {"num_quantiles": 2, "huber_delta": 1.0, "sum_over_quantiles": True, "minimum_of": "quantiles"},
    "truncated": {"num_quantiles": 3, "huber_delta": 1.0, "sum_over_quantiles": True, "dropped_quantiles": 1},
}


def ensemble(name: str, **changes: Any) -> Ensemble:
    values = {"name": name, "members": 2, "target_members": None} | SIZES.get(name, {}) | changes
    critics: Ensemble = registry.build("critic", values, path="algo.critic")
    return critics


def test_mean_critics_have_the_huber_loss_and_the_td_error() -> None:
    critics = ensemble("mean")
    next_return = critics.target_return(torch.tensor([[2.0, 9.0], [5.0, 9.0]]))
    target = critics.backup(next_return, REWARD, DISCOUNT)
    losses, errors = critics.loss(torch.tensor([[4.0, 0.5], [2.0, 1.0]]), target)
    assert target.tolist() == [2.0, 1.0]
    assert errors.tolist() == [[2.0, -0.5], [0.0, 0.0]]
    assert losses.tolist() == [[1.5, 0.125], [0.0, 0.0]]


def test_backup_discounts_the_cost_of_the_next_step() -> None:
    target = ensemble("min").backup(torch.tensor([2.0, 9.0]), REWARD, DISCOUNT, torch.tensor([4.0, 4.0]))
    assert target.tolist() == [1 + 0.5 * (2 - 4), 1.0]


def test_regression_sums_the_losses_of_the_members_and_gives_their_errors_as_priorities() -> None:
    z, weight = torch.tensor([[4.0, 0.5], [2.0, 1.0]]), torch.tensor([1.0, 0.5])
    loss, metrics, priority = ensemble("min").regress(z, torch.tensor([1.0, 2.0]), weight)
    assert loss.item() == pytest.approx((4.5 + 0.5 + 0.5 * (1.125 + 0.5)) / 2)
    assert metrics == {"loss/critic": loss, "loss/q": torch.tensor(1.875)}
    assert priority.tolist() == pytest.approx([5**0.5, 1.625**0.5])


@pytest.mark.parametrize("name", ["quantile", "truncated"])
def test_quantile_backup_discounts_the_cost_of_the_next_step(name: str) -> None:
    returns = torch.tensor([[2.0, 8.0], [2.0, 8.0]])
    target = ensemble(name).backup(returns, REWARD, DISCOUNT, torch.tensor([4.0, 4.0]))
    assert target.tolist() == [[1 + 0.5 * (2 - 4), 1 + 0.5 * (8 - 4)], [1.0, 1.0]]


@pytest.mark.parametrize("name", ["quantile", "truncated"])
@pytest.mark.parametrize("sum_over_quantiles", [True, False])
def test_quantile_critics_have_the_loss_of_their_settings(name: str, sum_over_quantiles: bool) -> None:
    critics = ensemble(name, num_quantiles=4, huber_delta=0.5, sum_over_quantiles=sum_over_quantiles)
    assert critics.shape == (4,)
    z, target = torch.randn(2, 5, 4), torch.randn(5, 6)
    loss, priority = critics.loss(z, target)
    assert torch.equal(loss, quantile_huber(z, target, 0.5, sum_over_quantiles)) and torch.equal(priority, loss)


def test_normalised_targets_divide_the_loss_alone() -> None:
    z = torch.tensor([[4.0, 0.5, 7.0], [2.0, 1.0, 7.0]], requires_grad=True)
    target, weight = torch.tensor([1.0, 5.0, 900.0]), torch.tensor([1.0, 0.5, 0.0])
    plain, normalised = ensemble("min"), ensemble("min", normalize_target=True)
    with torch.no_grad():
        normalised.losses(torch.zeros(2, 1), torch.tensor([3.0]), torch.ones(1))  # of an earlier batch
    found = [critics.regress(z, target, weight) for critics in (plain, normalised)]
    gradients = [torch.autograd.grad(loss, z)[0] for loss, _, _ in found]
    var = torch.tensor([3.0, 1.0, 5.0]).var(correction=0)
    torch.testing.assert_close(gradients[1], gradients[0] / var)
    torch.testing.assert_close(found[1][2], found[0][2], msg="priorities are in the unit of returns")
    assert found[1][1]["loss/q"] == found[0][1]["loss/q"]
    assert normalised.regress(target.expand(2, 3), target, weight)[0] == 0, "the same minimum"

    huber = ensemble("mean", normalize_target=True, huber_delta=0.5)
    losses, errors = huber.losses(torch.tensor([[5.0, 2.0]]), torch.tensor([1.0, 5.0]), torch.ones(2))
    assert losses.tolist() == [pytest.approx([0.5 * (4 / 2 - 0.25), 0.5 * (3 / 2 - 0.25)])]
    assert errors.tolist() == [[4.0, -3.0]]


def test_every_reward_column_has_a_scale_of_its_own() -> None:
    columns = RewardColumns(ensemble("min", normalize_target=True), 2, entropy=True)
    target = torch.tensor([[1.0, 10.0, 0.0], [3.0, 50.0, 4.0]])
    losses, _ = columns.losses(target + 2, target, torch.ones(2))
    assert losses[0].tolist() == pytest.approx([2.0, 2 / 400, 2 / 4])


@pytest.mark.parametrize("algo", ["dqn", "sac", "crossq"])
def test_agents_learn_with_normalised_targets(algo: str, build: Build) -> None:
    values = toy(algo)
    values["algo"]["critic"] = {"name": "min", "members": 2, "target_members": None, "normalize_target": True}
    loop: Any = train(build(values), 2)
    assert loop.agent.ensemble.moments.count == 2 * values["algo"]["loop"]["batch_size"]


def test_rescaled_critics_squash_the_target() -> None:
    critics = ensemble("rescaled")
    squashed = lambda x: math.sqrt(x + 1) - 1 + 0.001 * x  # noqa: E731  # of positive numbers
    next_z = torch.tensor([[squashed(14.0), squashed(3.0)]])
    assert critics.value(next_z)[0].tolist() == pytest.approx([14.0, 3.0], rel=1e-4)
    target = critics.backup(critics.target_return(next_z), REWARD, DISCOUNT)
    losses, errors = critics.loss(torch.tensor([[0.5, 0.5]]), target)
    by_hand = [0.5 - squashed(1 + 0.5 * 14), 0.5 - squashed(1.0)]
    assert errors[0].tolist() == pytest.approx(by_hand, abs=1e-5)
    assert losses[0].tolist() == pytest.approx([0.5 * x * x for x in by_hand], abs=1e-5)


def test_categorical_critics_learn_the_projected_target() -> None:
    critics = ensemble("categorical")
    next_z = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]]).log()
    assert critics.value(next_z)[0].tolist() == pytest.approx([0.75, 1.7])
    # 1 + 0.5 * (0, 1, 2) = 1, 1.5, 2 with masses 0.5, 0.25, 0.25; and 1 alone
    by_hand = torch.tensor([[0.0, 0.625, 0.375], [0.0, 1.0, 0.0]])
    target = critics.backup(critics.target_return(next_z), REWARD, DISCOUNT)
    torch.testing.assert_close(target, by_hand)
    losses, errors = critics.loss(torch.zeros(1, 2, 3), target)
    entropy = [-(0.625 * math.log(0.625) + 0.375 * math.log(0.375)), 0.0]
    assert losses[0].tolist() == pytest.approx([math.log(3) - entropy[0], math.log(3)])
    assert torch.equal(losses, errors)
    learned, _ = critics.loss((by_hand + 1e-12).log().unsqueeze(0), target)
    assert learned[0].tolist() == pytest.approx([0.0, 0.0], abs=1e-5)


def test_categorical_backup_shifts_the_atoms_by_the_cost() -> None:
    probability = torch.tensor([[0.5, 0.25, 0.25]])
    target = ensemble("categorical").backup(probability, torch.zeros(1), torch.ones(1), torch.tensor([-0.5]))
    torch.testing.assert_close(target, torch.tensor([[0.25, 0.375, 0.375]]))


def test_categorical_target_is_the_member_with_the_lowest_mean() -> None:
    probability = torch.tensor([[[0.5, 0.0, 0.5], [0.0, 0.0, 1.0]], [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]])
    z = (probability + 1e-12).log()  # [members, batch, atoms]
    critics = ensemble("categorical")
    torch.testing.assert_close(critics.target_return(z), torch.stack([probability[0, 0], probability[1, 1]]))
    torch.testing.assert_close(critics.actor_value(z), torch.tensor([1.0, 0.0]))
    as_columns = critics.target_return(z.unsqueeze(1), torch.tensor([1.0, -1.0]))  # one row with two reward columns
    torch.testing.assert_close(as_columns, torch.stack([probability[0, 0], probability[0, 1]]).unsqueeze(0))


def test_hl_gauss_histogram_has_the_mean_of_the_target() -> None:
    critics = ensemble("hl_gauss")
    returns = torch.linspace(-1.5, 1.5, 31)
    histogram = critics.backup(returns, torch.zeros(31), torch.ones(31))
    torch.testing.assert_close(histogram.sum(-1), torch.ones(31))
    torch.testing.assert_close(critics.value(histogram.log()), returns, atol=2e-3, rtol=0)
    losses, _ = critics.loss((histogram + 1e-12).log().unsqueeze(0), histogram)
    assert losses.abs().max() < 1e-5
    width, far = 0.1, critics.backup(torch.tensor([99.0]), torch.zeros(1), torch.ones(1))
    phi = [0.5 * (1 + math.erf(-(i * width) / (0.75 * width) / math.sqrt(2))) for i in range(41)]
    by_hand = [(phi[i] - phi[i + 1]) / (phi[0] - phi[40]) for i in range(40)]
    assert far[0].flip(0).tolist() == pytest.approx(by_hand, abs=1e-6)


def test_quantile_critics_do_not_bootstrap_terminated_steps() -> None:
    critics = ensemble("quantile")
    z, next_z = torch.tensor([[[1.0, 3.0], [1.0, 3.0]]]), torch.tensor([[[2.0, 8.0], [2.0, 8.0]]])
    assert critics.value(z).tolist() == [[2.0, 2.0]]
    losses, _ = critics.loss(z, critics.backup(critics.target_return(next_z), REWARD, DISCOUNT))
    # row 0, samples 2 and 5: the quantile 1 has 0.25 (0.5 + 3.5) / 2, the quantile 3 (0.25 0.5 + 0.75 1.5) / 2
    # row 1, sample 1: the quantile 1 is exact, the quantile 3 is too high by 2: 0.25 * 1.5
    assert losses[0].tolist() == pytest.approx([0.5 + 0.625, 0.375])


@pytest.mark.parametrize(
    ("minimum_of", "sign", "expected"),
    [
        ("quantiles", None, [[0.0, 5.0], [1.0, 2.0]]),
        ("means", None, [[1.0, 5.0], [1.0, 2.0]]),
        ("quantiles", [1.0, -1.0], [[0.0, 5.0], [4.0, 4.0]]),
        ("means", [1.0, -1.0], [[1.0, 5.0], [4.0, 4.0]]),
    ],
)
def test_quantile_target_is_the_minimum_of_quantiles_or_of_means(
    minimum_of: str, sign: list[float] | None, expected: list[list[float]]
) -> None:
    critics = ensemble("quantile", minimum_of=minimum_of)
    z = torch.tensor([[[1.0, 5.0], [4.0, 4.0]], [[0.0, 9.0], [1.0, 2.0]]])  # [members, rows or columns, quantiles]
    signs = None if sign is None else torch.tensor(sign)
    assert critics.target_return(z, signs).tolist() == expected
    assert critics.actor_value(z, signs).tolist() == [sum(row) / 2 for row in expected]


def test_truncated_target_pools_the_quantiles_and_drops_the_highest() -> None:
    critics = ensemble("truncated")
    z = torch.tensor([[[3.0, 1.0, 9.0]], [[2.0, 8.0, 7.0]]])
    assert critics.target_return(z).tolist() == [[1.0, 2.0, 3.0, 7.0]]  # one per critic is dropped
    assert critics.actor_value(z).tolist() == [5.0]
    assert critics.target_return(z, torch.tensor([-1.0])).sort().values.tolist() == [[3.0, 7.0, 8.0, 9.0]]


@pytest.mark.parametrize("name", CRITICS)
def test_random_subset_of_members_computes_targets_and_their_mean_guides_the_actor(name: str) -> None:
    critics = ensemble(name, members=4, target_members=2)
    drawn = {tuple(critics.draw_members(stream).tolist()) for stream in [Stream(0, "x")] for _ in range(20)}  # type: ignore[union-attr]
    assert len(drawn) > 4 and all(len({*members}) == 2 for members in drawn)
    assert ensemble(name).draw_members(Stream(0, "x")) is None
    z = torch.randn(4, 5, *critics.shape)
    torch.testing.assert_close(critics.actor_value(z), critics.value(z).mean(0))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("min", {"target_members": 3}, r"algo\.critic\.target_members=3: must be at most algo\.critic\.members=2"),
        ("categorical", {"num_atoms": 1}, r"algo\.critic: needs num_atoms of at least 2"),
        ("categorical", {"v_min": 2.0}, r"algo\.critic: needs .* v_min below v_max"),
        ("hl_gauss", {"v_min": 3.0}, r"algo\.critic: needs .* v_min below v_max"),
        ("truncated", {"dropped_quantiles": 3}, r"algo\.critic\.dropped_quantiles=3: must be below .*num_quantiles=3"),
    ],
)
def test_critics_refuse_impossible_sizes(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ensemble(name, **changes)


def composed(algo: str, critic: str, *words: str, **changes: Any) -> Any:
    """Returns values of a small run of an algorithm with these critics, composed as on the command line."""
    values = toy(algo, **changes)
    chosen = jobs([f"algo={algo}", "env=CartPole", "preset=none", f"algo.critic={critic}", *words])[0].values
    return put(values, {"algo.critic": chosen["algo"]["critic"]})


AGENTS = ("sac", "td3", "crossq", "dqn", "sac_lagrangian", "recurrent_sac")
QUICK = {("sac", "hl_gauss"), ("sac", "truncated"), ("td3", "quantile"), ("crossq", "truncated"), ("dqn", "hl_gauss"),
         ("dqn", "quantile"), ("sac_lagrangian", "categorical"), ("recurrent_sac", "quantile")}  # fmt: skip
PAIRS = [pytest.param(algo, critic, marks=[] if (algo, critic) in QUICK else pytest.mark.slow)
         for algo in AGENTS for critic in CRITICS]  # fmt: skip


@pytest.mark.parametrize(("algo", "critic"), PAIRS)
def test_every_critic_learns_with_every_agent(algo: str, critic: str, build: Build) -> None:
    words = ["algo.critic.members=3", "algo.critic.target_members=2"]
    loop: Any = train(build(composed(algo, critic, *words)), 2)
    metrics = loop.tick() or loop.tick()
    assert all(torch.isfinite(value) for value in metrics.values())
    assert loop.agent.ensemble.members == 3


@pytest.mark.parametrize(
    ("algo", "critic"),
    [
        ("td3", "quantile"),
        ("td3", "categorical"),
        ("td3", "truncated"),
        ("td3", "hl_gauss"),
        ("discrete_sac", "hl_gauss"),
    ],
)
def test_reward_vectors_have_predictions_for_every_column(algo: str, critic: str, build: Build) -> None:
    env = {"env.id": "rlrun/PointRun-v0", "algo.reward_weights.weights": [2.0, -0.5]}
    if algo == "discrete_sac":
        env = {"env.id": "rlrun/Counter-v0", "env.kwargs": {"factors": [1.0, -2.0]}, "env.max_episode_steps": None}
    loop: Any = train(build(composed(algo, critic, **env)), 2)
    batch = loop.batch
    z = loop.agent.critic(batch["obs"], batch["action"])
    columns = loop.agent.ensemble.value(z).shape[2]
    assert columns == loop.agent.spec.reward_dim + (algo == "discrete_sac")


STATES = torch.eye(3)  # a chain of three states; the last one leads to the end


def chain(draw: torch.Generator, rows: int) -> Batch:
    """Returns `rows` transitions of every state. The reward is 1 or 0; an episode ends with a chance of 1 in 4."""
    state = torch.arange(3).repeat(rows)
    ended = (torch.rand(len(state), generator=draw) < 0.25) | (state == 2)
    return {
        "obs": STATES[state], "next_obs": STATES[(state + 1).clamp(max=2)], "action": torch.zeros(len(state), 1),
        "reward": torch.randint(2, (len(state),), generator=draw).float(), "n_steps": torch.ones(len(state)),
        "terminated": ended.float(), "weight": torch.ones(len(state)),
    }  # fmt: skip


def monte_carlo_quantiles(num_quantiles: int, gamma: float) -> torch.Tensor:
    """Returns the quantiles of 20,000 discounted returns from every state of the chain, [states, num_quantiles]."""
    draw = torch.Generator().manual_seed(1)
    returns = torch.zeros(3, 20_000)
    later = torch.zeros(20_000)
    for state in (2, 1, 0):
        goes_on = (torch.rand(20_000, generator=draw) >= 0.25).float() * (state < 2)
        later = torch.randint(2, (20_000,), generator=draw) + gamma * goes_on * later
        returns[state] = later
    levels = (torch.arange(num_quantiles) + 0.5) / num_quantiles
    return returns.quantile(levels, dim=1).T


@pytest.mark.parametrize("minimum_of", ["quantiles", "means"])
def test_qr_sac_return_distribution_equals_monte_carlo_quantiles(minimum_of: str, build: Build) -> None:
    values = jobs(["algo=qr_sac", "env=Pendulum", "preset=none", "network=linear"])[0].values
    changes = {
        "algo.gamma": 0.5, "algo.critic.num_quantiles": 10, "algo.critic.huber_delta": 0.01, "algo.tau": 0.1,
        "algo.critic.minimum_of": minimum_of, "algo.critic_learning_rate": 0.05,
        "algo.entropy.initial_alpha": 1e-9, "algo.buffer.capacity": 100,
    }  # fmt: skip
    agent: Any = build(put(values, changes)).agent
    draw = torch.Generator().manual_seed(0)
    for i in range(600):
        agent.critic_optim.learning_rate.fill_(0.05 * (1 - i / 600))
        agent.update_critic(chain(draw, 32), torch.zeros(96, 1))
        agent.target_critic.track()
    z = agent.critic(STATES, torch.zeros(3, 1)).detach().sort(-1).values
    distance = (z - monte_carlo_quantiles(10, 0.5)).abs().mean(-1)  # Wasserstein distance, [members, states]
    assert distance.max() < 0.05


@pytest.mark.parametrize("algo", ["dqn", "soft_q", "discrete_sac", "sac", "td3", "mdq", "continuous_sarsa"])
def test_targets_bootstrap_after_the_steps_of_the_return(algo: str, build: Build) -> None:
    """All values are 10, without entropy. The rewards sum three steps, one step, and two steps that end the episode."""
    changes: dict[str, Any] = {"algo.gamma": 0.9}
    if algo == "dqn":
        changes["algo.critic.huber_delta"] = None
    elif algo in ("soft_q", "discrete_sac", "sac"):
        changes["algo.entropy_reward"] = {"name": "none"}
    agent: Any = build(toy(algo, **changes)).agent
    target = agent.target_network if algo == "dqn" else agent.target_critic
    with torch.no_grad():
        for param in agent.parameters():  # the policy of MDQ is then uniform, so that its divergence from it is 0
            param.zero_()
        target.module.output.bias.fill_(10.0)
    obs, action = torch.randn(3, *agent.spec.obs.shape), torch.zeros(3, *agent.spec.action.shape)
    if not agent.spec.action.shape:
        action = action.long()
    batch = {
        "obs": obs, "next_obs": obs, "action": action, "reward": torch.tensor([1.0, 1.0, -2.0]),
        "n_steps": torch.tensor([3.0, 1.0, 2.0]), "terminated": torch.tensor([0.0, 0.0, 1.0]),
        "weight": torch.ones(3), "next_action": action, "has_next_action": torch.ones(3),
    }  # fmt: skip
    noise: Any = {"dqn": [()] * 3, "soft_q": None, "mdq": torch.rand(3, 1, 15)}.get(algo, torch.zeros(3, 1))
    update = agent.update_q if algo == "dqn" else agent.update_critic
    metrics, _ = update(batch, noise)
    targets = torch.tensor([1 + 0.9**3 * 10, 1 + 0.9 * 10, -2.0])
    assert metrics["loss/critic"].item() == pytest.approx(2 * 0.5 * (targets**2).mean().item(), rel=1e-5)


def overestimate(build: Build, **changes: Any) -> float:
    """Returns DQN's mean value of a state that leads to noisy arms: three actions end the episode with a reward of mean
    0, whatever the observation."""
    acrobot = {"env.id": "Acrobot-v1", "network.hidden": [32], "algo.learning_rate": 0.003, "algo.target_every": 20}
    agent: Any = build(toy("dqn", **acrobot, **{"algo.tau": 1.0}, **changes)).agent
    draw = torch.Generator().manual_seed(0)
    at_arm = torch.arange(48) >= 24
    values = []
    for i in range(300):
        arm = torch.randn(48, 6, generator=draw)
        batch = {
            "obs": arm * at_arm.unsqueeze(-1), "next_obs": arm, "action": torch.randint(3, (48,), generator=draw),
            "reward": torch.randn(48, generator=draw) * at_arm, "n_steps": torch.ones(48),
            "terminated": at_arm.float(), "weight": torch.ones(48),
        }  # fmt: skip
        agent.update(batch, Context(i, i, 1.0))
        values.append(agent.values(torch.zeros(1, 6)).mean().item())
    return sum(values[150:]) / 150


def test_dqn_overestimates_noisy_arms_double_dqn_less_and_the_minimum_of_critics_least(build: Build) -> None:
    single = overestimate(build, **{"algo.critic.members": 1})
    double = overestimate(build, **{"algo.critic.members": 1, "algo.double": True})
    pair = overestimate(build, **{"algo.critic.members": 2})
    assert single > 0.03
    assert 0 < double < single
    assert pair < 0.5 * double


@pytest.mark.parametrize(("double", "action_value"), [(False, 3.0), (True, 2.0)])
def test_dqn_target_is_the_minimum_of_the_critics_at_the_greedy_action(
    double: bool, action_value: float, build: Build
) -> None:
    """The minima of the target networks are 2 and 3, those of the online networks prefer the first action."""
    changes = {"algo.gamma": 0.5, "algo.double": double, "algo.critic.huber_delta": None}
    agent: Any = build(toy("dqn", **changes)).agent
    with torch.no_grad():
        for param in (*agent.q.parameters(), *agent.target_network.parameters()):
            param.zero_()
        agent.q.output.bias.copy_(torch.tensor([[[5.0, 1.0]], [[5.0, 9.0]]]))
        agent.target_network.module.output.bias.copy_(torch.tensor([[[2.0, 4.0]], [[9.0, 3.0]]]))
    batch = {
        "obs": torch.zeros(1, 4), "next_obs": torch.zeros(1, 4), "action": torch.tensor([0]),
        "reward": torch.ones(1), "n_steps": torch.ones(1), "terminated": torch.zeros(1), "weight": torch.ones(1),
    }  # fmt: skip
    assert agent.values(torch.zeros(1, 4)).tolist() == [[5.0, 1.0]]
    metrics, priority = agent.update_q(batch, [()] * 3)
    error = 5 - (1 + 0.5 * action_value)
    assert metrics["loss/critic"].item() == pytest.approx(2 * 0.5 * error**2)
    assert priority.tolist() == pytest.approx([error])
