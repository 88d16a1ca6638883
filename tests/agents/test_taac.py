"""TAAC: compare-through targets, the switch, trajectories of actions, and what is stored with a timestep."""

import random
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import Tensor
from toys import equal, toy, train

from rlrun.agents.actor_critic.taac import TAAC, binary_entropy
from rlrun.buffers.replay import Reading, Replay
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.errors import ConfigError
from rlrun.functional.returns import compare_through
from rlrun.settings import registry
from rlrun.types import Batch, Context, Spec

Build = Callable[..., Loop]
VARIANTS = ("taac", "taac_l", "taac_q")
GAMMA = 0.9
PRIORITIZED = {
    "name": "prioritized", "reward_clip": None, "reward_scale": 1.0, "standardize_reward": False, "compression": None,
    "dtypes": {}, "alpha": 0.6, "beta": 0.4, "divide_weights": True, "epsilon": 1e-3,
}  # fmt: skip


def scripted_replay(rng: random.Random) -> tuple[Replay, list[list[dict[str, float]]], int]:
    """Returns a buffer with random scripted timesteps, these timesteps by environment and row, and the length of its
    sequences. The observation of a timestep is its flat index."""
    num_envs, capacity, length = rng.choice([1, 2]), rng.randint(4, 9), rng.randint(1, 4)
    spec = Spec(Box(-1e6, 1e6, (1,), np.float32), Box(-1.0, 1.0, (1,), np.float32), num_envs)
    flag = Box(0.0, 1.0, (), np.float32)
    reading = Reading(sequence_length=length, extras={"switch": flag})
    cfg = Replay.Config(
        capacity=capacity * num_envs, reward_clip=None, reward_scale=1.0, standardize_reward=False, compression=None,
        dtypes={},
    )  # fmt: skip
    buffer = Replay(cfg, spec, reading, 0, torch.device("cpu"))
    script: list[list[dict[str, float]]] = [[] for _ in range(num_envs)]
    for row in range(rng.randint(length, 3 * capacity)):
        for steps in script:
            end = rng.choice(["no", "no", "no", "terminated", "truncated"])
            drawn = {"reward": rng.gauss(0, 1), "value": rng.gauss(0, 1), "weight": float(rng.random() < 0.9)}
            ends = {"terminated": float(end == "terminated"), "truncated": float(end == "truncated")}
            switches = {"switch": float(rng.random() < 0.3), "next_switch": float(rng.random() < 0.3)}
            steps.append(drawn | ends | switches)
        now = {key: torch.tensor([steps[row][key] for steps in script]) for key in script[0][0]}
        obs = (row * num_envs + torch.arange(num_envs, dtype=torch.float32)).unsqueeze(-1)
        step = {
            "obs": obs,
            "next_obs": obs,
            "executed": torch.zeros(num_envs, 1),
            "reward": now["reward"],
            "terminated": now["terminated"] > 0,
            "truncated": now["truncated"] > 0,
            "weight": now["weight"],
            "switch": now["switch"],
        }
        buffer.add(step)
    return buffer, script, length


def brute_force(steps: list[dict[str, float]], row: int, last: int) -> float:
    """The compare-through target of a row, by a loop. last: the last row of the sequence."""
    total, discount = 0.0, 1.0
    while True:
        step = steps[row]
        total += discount * step["reward"]
        discount *= GAMMA
        if step["terminated"]:
            return total
        newest = row == len(steps) - 1
        if row == last or step["truncated"] or step["next_switch"] or newest:
            return total + discount * step["value"]
        following = steps[row + 1]
        if following["switch"] or not following["weight"]:
            return total + discount * step["value"]
        row += 1


def test_taac_targets_equal_a_brute_force_loop_over_scripted_switches() -> None:
    agent: Any = SimpleNamespace(cfg=SimpleNamespace(gamma=GAMMA))
    rng, cases, boundaries = random.Random(0), 0, set()
    while cases < 500:
        buffer, script, length = scripted_replay(rng)
        first, last = buffer.span
        batch = buffer.read(torch.tensor([rng.randrange(first, last)]))
        rows = [divmod(int(index), buffer.spec.num_envs) for index in batch["obs"].flatten()]
        values = torch.tensor([[script[env][row]["value"]] for row, env in rows])
        switches = torch.tensor([[script[env][row]["next_switch"] > 0] for row, env in rows])
        target = TAAC.targets(agent, batch, values, switches)
        start, env = rows[0]
        for k in range(length):
            if batch["mask"][k] > 0:
                expected = brute_force(script[env], start + k, start + length - 1)
                assert target[k].item() == pytest.approx(expected, abs=1e-5), f"case {cases}"
                cases += 1
        if start + length > len(script[env]):
            boundaries.add("write head")
        boundaries |= {key for row, _ in rows for key in ("terminated", "truncated") if script[env][row][key]}
    assert boundaries == {"write head", "terminated", "truncated"}


def test_compare_through_by_hand() -> None:
    """The second row's successor is a stored switch, the third's a sampled one, and the fourth terminates."""
    r, v = torch.ones(5), torch.full((5,), 10.0)
    stored = torch.tensor([True, False, True, False, False])
    sampled = torch.tensor([False, False, True, False, False])
    terminated = torch.tensor([False, False, False, True, False])
    target = compare_through(r, v, stored, sampled, terminated, terminated, gamma=0.5)
    assert target.tolist() == [1 + 0.5 * 6, 6, 6, 1, 6]


def sequences(agent: Any, time: int = 4, batch: int = 3) -> Batch:
    size = agent.trajectory.size
    tau, previous = 2 * torch.rand(2, time, batch, size) - 1
    return {
        "obs": torch.randn(time, batch, 3), "next_obs": torch.randn(time, batch, 3), "carry.trajectory": tau,
        "trajectory": previous, "switch": torch.ones(time, batch), "reward": torch.randn(time, batch),
        "terminated": torch.zeros(time, batch), "mask": torch.ones(time, batch), "weight": torch.ones(time, batch),
    }  # fmt: skip


def test_taac_target_with_every_switch_on_is_the_one_step_target_of_sac(build: Build) -> None:
    agent: Any = build(toy("taac", **{"algo.advantage_clip": [1e9, 1e9], "algo.gamma": GAMMA})).agent
    sac: Any = build(toy("sac", **{"algo.entropy": {"name": "fixed", "ent_coef": 0.0}, "algo.gamma": GAMMA})).agent
    sac.target_critic.module.load_state_dict(agent.target_critic.module.state_dict())
    agent.actor.forward = lambda obs, previous: sac.actor(obs)
    batch, noise = sequences(agent), torch.randn(12, 1)
    rows = {key: value.flatten(0, 1) for key, value in batch.items()} | {"n_steps": torch.ones(12)}
    with torch.no_grad():
        target = agent.target_q(batch, noise, torch.rand(4, 3), agent.target_critic)
        expected = sac.target_q(rows, noise, sac.target_critic)
    torch.testing.assert_close(target.flatten(), expected)


def test_taac_target_is_the_mean_of_both_target_values_over_the_switch(build: Build) -> None:
    """The critics give the probabilities of the switch, the target critics the values; the last rows have no next."""
    agent: Any = build(toy("taac", **{"algo.gamma": GAMMA, "algo.switch_entropy.initial_alpha": 0.1})).agent
    for param in agent.target_critic.parameters():
        param.mul_(2.0)  # the target critics are not the critics
    batch, noise = sequences(agent, time=1, batch=40), torch.randn(40, 1)
    with torch.no_grad():
        next_obs, tau = batch["next_obs"][0], batch["carry.trajectory"][0]
        new, _ = agent.actor(next_obs, tau).sample(noise)
        p = (torch.stack([agent.critic(next_obs, each).amin(0) for each in (tau, new)]) / 0.1).softmax(0)
        q = torch.stack([agent.target_critic(next_obs, each).amin(0) for each in (tau, new)])
        target = agent.target_q(batch, noise, torch.rand(1, 40), agent.target_critic)
    assert ((p > 0.1) & (p < 0.9)).any()
    torch.testing.assert_close(target, batch["reward"] + GAMMA * (p * q).sum(0))


def test_taac_samples_switches_by_their_probability_and_values_the_stored_trajectory(build: Build) -> None:
    agent: Any = build(toy("taac", **{"algo.switch_entropy.initial_alpha": 0.1})).agent
    batch = sequences(agent, time=2, batch=400) | {"switch": torch.zeros(2, 400)}
    seen: list[Tensor] = []
    agent.targets = lambda batch, value, switch: seen.append(switch) or value
    noise, switch_noise = torch.randn(800, 1), torch.rand(2, 400)
    with torch.no_grad():
        next_obs, tau = batch["next_obs"].flatten(0, 1), batch["carry.trajectory"].flatten(0, 1)
        new, _ = agent.actor(next_obs, tau).sample(noise)
        p = (torch.stack([agent.critic(next_obs, each).amin(0) for each in (tau, new)]) / 0.1).softmax(0)[1]
        q = agent.critic(batch["obs"].flatten(0, 1), tau).mean()
    metrics, _ = TAAC.update_critic(agent, batch, noise, switch_noise)
    assert torch.equal(seen[0], switch_noise < p.view(2, 400))
    torch.testing.assert_close(metrics["loss/q"], q)


def test_taac_switch_is_the_softmax_of_both_q_values(build: Build) -> None:
    agent: Any = build(toy("taac", **{"algo.switch_entropy.initial_alpha": 0.5})).agent
    q = torch.randn(2, 6)
    torch.testing.assert_close(agent.switch_logit(q).sigmoid(), (q / 0.5).softmax(0)[1])
    clipped: Any = build(toy("taac", **{"algo.advantage_clip": [0.0, 1.0]})).agent
    assert clipped.switch_logit(torch.tensor([[3.0, 0.0], [0.0, 3.0]])).tolist() == [0.0, 1.0]


def test_taac_switch_entropy_equals_that_of_torch() -> None:
    logit = torch.tensor([-40.0, -1.0, 0.0, 3.0])
    torch.testing.assert_close(binary_entropy(logit), torch.distributions.Bernoulli(logits=logit).entropy())


@pytest.mark.parametrize("algo", VARIANTS)
def test_taac_actor_gradient_is_that_of_q_times_the_probability_of_a_switch(algo: str, build: Build) -> None:
    agent: Any = build(toy(algo, **{"algo.entropy.initial_alpha": 0.3})).agent
    batch, noise = sequences(agent), torch.randn(12, 1)
    obs, previous = batch["obs"].flatten(0, 1), batch["trajectory"].flatten(0, 1)
    output, log_prob = agent.actor(obs, previous).sample(noise)
    taus = agent.candidates(previous, output)
    q = agent.critic(obs, taus[1]).amin(0)
    p = (torch.stack([agent.critic(obs, taus[0]).amin(0), q]) / agent.switch_entropy.alpha).softmax(0)[1].detach()
    expected = agent.actor_optim.grads((0.3 * log_prob - p * q).mean())
    found: list[Tensor] = []
    agent.actor_optim.step = lambda loss: found.append(agent.actor_optim.grads(loss))
    TAAC.update_actor(agent, batch, noise)
    torch.testing.assert_close(found[0], expected)


def test_taac_priorities_are_those_of_sequences_without_masked_steps(build: Build) -> None:
    agent: Any = build(toy("taac")).agent
    batch, noise, switch_noise = sequences(agent), torch.randn(12, 1), torch.rand(4, 3)
    batch["mask"][2:, 1] = 0
    batch["weight"] = batch["mask"]
    with torch.no_grad():
        target = agent.target_q(batch, noise, switch_noise, agent.target_critic)
        q = agent.critic(batch["obs"].flatten(0, 1), batch["carry.trajectory"].flatten(0, 1))
    errors = ((q - target.flatten()) ** 2).mean(0).sqrt().view(4, 3)
    expected = [0.9 * rows.max() + 0.1 * rows.mean() for rows in (errors[:, 0], errors[:2, 1], errors[:, 2])]
    _, priority = agent.update_critic(batch, noise, switch_noise)
    torch.testing.assert_close(priority, torch.stack(expected))


def test_taac_with_prioritized_replay_updates_the_priorities(build: Build) -> None:
    values = toy("taac")
    values["algo"]["buffer"] = PRIORITIZED | {"capacity": values["algo"]["buffer"]["capacity"]}
    loop: Any = train(build(values), 3)
    priorities = loop.buffer.tree.get(loop.buffer.storage_index(torch.arange(*loop.buffer.span)))
    assert len(priorities.unique()) > 2, "new rows have priority 1"


def test_taac_maximises_the_mean_of_the_critics_if_targets_use_a_subset(build: Build) -> None:
    critic = {"name": "min", "members": 3, "target_members": 2, "normalize_target": False}
    agent: Any = build(toy("taac", **{"algo.critic": critic})).agent
    obs, tau = torch.randn(5, 3), torch.randn(5, 1)
    torch.testing.assert_close(agent.values(obs, tau[None])[0], agent.critic(obs, tau).mean(0))


@pytest.mark.parametrize("name", ["fixed", "sgd", "staged"])
def test_taac_switch_entropy_is_chosen_by_name(name: str) -> None:
    values = jobs(["algo=taac", "env=Pendulum", f"algo.switch_entropy={name}"])[0].values
    assert values["algo"]["switch_entropy"]["name"] == name and values["algo"]["entropy"]["name"] == "auto"


def test_taac_switch_entropy_is_named_in_errors(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"algo\.switch_entropy\.target_entropy=minus_dimensions: needs Box actions"):
        build(toy("taac", **{"algo.switch_entropy.target_entropy": "minus_dimensions"}))


def test_taac_each_temperature_follows_its_own_target_entropy(build: Build) -> None:
    targets = {"algo.entropy.target_entropy": 100.0, "algo.switch_entropy.target_entropy": -100.0}
    agent: Any = train(build(toy("taac", **targets)), 4).agent
    assert agent.entropy.alpha > 1 > agent.switch_entropy.alpha


def trajectory(name: str, **options: Any) -> Any:
    return registry.build("trajectory", {"name": name, **options}, path="algo.trajectory")


def inside(*shape: int) -> Tensor:
    return 2 * torch.rand(*shape) - 1


@pytest.mark.parametrize(("name", "size"), [("linear", 2), ("quadratic", 3)])
def test_inverse_trajectories_begin_with_the_chosen_action(name: str, size: int) -> None:
    part = trajectory(name, inverse=True)
    chosen, tau = inside(9, 2), inside(9, 2 * size)
    torch.testing.assert_close(part.start(chosen, tau)[:, :2], chosen)


def test_hold_trajectory_repeats_the_action() -> None:
    part, chosen = trajectory("hold"), inside(9, 2)
    assert part.go_on(chosen) is chosen and part.start(chosen, inside(9, 2)) is chosen


def test_linear_trajectory_moves_by_a_constant_up_to_the_bounds() -> None:
    part = trajectory("linear", inverse=False)
    tau = part.start(torch.tensor([[0.25]]), torch.tensor([[-0.5, 0.9]]))
    actions = []
    for _ in range(4):
        actions.append(tau[0, 0].item())
        tau = part.go_on(tau)
    assert actions == [0.0, 0.5, 1.0, 1.0]
    inverse = trajectory("linear", inverse=True).start(torch.tensor([[0.0]]), torch.tensor([[-0.5, 0.9]]))
    assert inverse.tolist() == [[0.0, 0.25]]


def test_quadratic_trajectory_accelerates_from_rest_up_to_the_bounds() -> None:
    part = trajectory("quadratic", inverse=False)
    tau = part.start(torch.tensor([[0.0625]]), torch.tensor([[-1.0, 0.9, 0.9]]))
    taus = []
    for _ in range(3):
        taus.append(tau[0].tolist())
        tau = part.go_on(tau)
    assert taus == [[-0.75, 0.125, 0.0625], [-0.25, 0.25, 0.0625], [0.5, 0.375, 0.0625]]
    fast = part.go_on(torch.tensor([[0.0, 0.5, 0.9]]))
    assert fast.tolist() == [[1.0, 1.0, pytest.approx(0.9)]]
    inverse = trajectory("quadratic", inverse=True).start(torch.tensor([[0.0]]), torch.tensor([[-0.5, 0.9, 0.9]]))
    assert inverse.tolist() == [[0.0, 0.25, 0.125]]


def acted(agent: Any, steps: int, explore: bool = True) -> list[Batch]:
    """Returns the extras of some steps in two environments; the first episode has three timesteps."""
    carry: Batch = {"first": torch.tensor([True, True])}
    found = []
    for step in range(steps):
        action, extras = agent.act(torch.randn(2, 3), carry, explore)
        found.append(extras | {"action": action, "first": carry["first"]})
        carry = {name: value for name, value in extras.items() if name.startswith("carry.")}
        carry["first"] = torch.tensor([step == 2, False])
    return found


@pytest.mark.parametrize("algo", VARIANTS)
def test_taac_acts_on_its_trajectory_and_begins_episodes_at_rest(algo: str, build: Build) -> None:
    agent: Any = build(toy(algo)).agent
    steps = acted(agent, 8)
    for before, now in pairwise(steps):
        expected = torch.where(now["first"].unsqueeze(-1), 0.0, before["carry.trajectory"])
        assert torch.equal(now["trajectory"], expected)
    for step in steps:
        assert torch.equal(step["action"], step["carry.trajectory"][:, :1])
        kept = step["switch"] == 0
        going_on = agent.trajectory.go_on(step["trajectory"])
        assert torch.equal(step["carry.trajectory"][kept], going_on[kept])
    switches = torch.stack([step["switch"] for step in steps])
    assert 0 < switches.mean() < 1


@pytest.mark.parametrize("explore", [True, False])
def test_taac_replaces_a_trajectory_after_max_repeats(explore: bool, build: Build) -> None:
    never = {"algo.advantage_clip": [-1e9, -1e9], "algo.max_repeats": 2}
    steps = acted(build(toy("taac", **never)).agent, 7, explore)
    assert [step["switch"][1].item() for step in steps] == [0, 0, 1, 0, 0, 1, 0]
    assert [step["switch"][0].item() for step in steps] == [0, 0, 1, 0, 0, 1, 0]
    assert [step["carry.repeats"][1].item() for step in steps] == [1, 2, 0, 1, 2, 0, 1]


def test_taac_random_start_is_of_training_episodes_alone(build: Build) -> None:
    agent: Any = build(toy("taac", **{"algo.random_start": True})).agent
    training, evaluation = acted(agent, 4), acted(agent, 4, explore=False)
    assert training[0]["trajectory"].ne(0).all() and training[3]["trajectory"][0].ne(0)
    assert evaluation[0]["trajectory"].eq(0).all()
    assert torch.equal(training[1]["trajectory"], training[0]["carry.trajectory"])


def test_taac_random_start_is_uniform_between_the_bounds(build: Build) -> None:
    agent: Any = build(toy("taac_l", **{"algo.random_start": True})).agent
    start = agent.previous({"first": torch.ones(4000, dtype=torch.bool)}, explore=True)
    assert start.shape == (4000, 2)
    assert start.mean().abs() < 0.05 and start.var().item() == pytest.approx(1 / 3, abs=0.02)
    assert -1 <= start.min() < -0.99 and 0.99 < start.max() <= 1


def test_taac_learns_nothing_from_masked_rows(build: Build) -> None:
    """The first sequence ends after two timesteps, and the second one has weight 0."""
    batch = sequences(build(toy("taac")).agent) | {"weight": torch.tensor([1.0, 0.0, 1.0])}
    batch["mask"][2:, 0] = 0
    counts = batch["mask"] * batch["weight"] > 0
    learned = []
    for scale in (1.0, 9.0):
        rows = dict(batch)
        for name in ("obs", "next_obs", "reward", "trajectory", "carry.trajectory"):
            shape = [*counts.shape, *[1] * (batch[name].dim() - 2)]
            rows[name] = torch.where(counts.view(shape), batch[name], scale * batch[name])
        agent: Any = build(toy("taac")).agent
        agent.update(rows, Context(0, 0, 0.0))
        learned.append([agent.actor_optim.flat, agent.critic_optim.flat, agent.entropy.alpha])
    assert equal(*learned)


def test_taac_warm_up_switches_with_probability_one_half_between_uniform_actions(build: Build) -> None:
    loop: Any = build(toy("taac", **{"algo.loop.warmup_steps": 4000, "algo.buffer.capacity": 8000}))
    for _ in range(1000):
        loop.tick()
    stored = loop.buffer.all()
    assert stored["switch"].mean().item() == pytest.approx(0.5, abs=0.05)
    assert torch.equal(stored["action"], stored["carry.trajectory"])
    new = stored["action"][stored["switch"] > 0]
    assert new.mean().abs() < 0.05 and new.var().item() == pytest.approx(1 / 3, abs=0.03)
    assert loop.updates == 0


@pytest.mark.parametrize(("max_repeats", "length"), [(2, 3.0), (1, 2.0), (None, 1.0)])
def test_taac_reports_how_long_trajectories_are_held(max_repeats: int | None, length: float, build: Build) -> None:
    """The switch never chooses a new trajectory, or always; holds that an episode cuts short count as they are."""
    clip = [-1e9, -1e9] if max_repeats else [1e9, 1e9]
    loop = build(toy("taac", **{"algo.advantage_clip": clip, "algo.max_repeats": max_repeats}))
    loop.tick()
    assert "train/hold_length" not in loop.metrics.drain_measures(), "nothing has ended yet"
    train(loop, 4)
    loop.metrics.drain_measures()
    lengths, held = [], [0, 0]
    for _ in range(30):
        ends = [index for index in range(2) if loop.carry["first"][index]]
        loop.tick()
        for index, begins in enumerate(loop.carry["carry.held"] == 1):
            if held[index] and begins:
                lengths.append(held[index])
            held[index] = int(loop.carry["carry.held"][index])
        assert all(held[index] == 1 for index in ends), "an episode begins a new one"
    reported = loop.metrics.drain_measures()["train/hold_length"]
    assert reported == pytest.approx(length, abs=0.35)
    assert sum(lengths) / len(lengths) == pytest.approx(length, abs=0.35)
    assert max(lengths) == length


def test_taac_reports_the_mean_repeats_of_a_trajectory(build: Build) -> None:
    loop = build(toy("taac", **{"algo.advantage_clip": [-1e9, -1e9], "algo.max_repeats": 2}))
    train(loop, 4)
    loop.metrics.drain_measures()
    for _ in range(30):
        loop.tick()
    assert loop.metrics.drain_measures()["train/repeats"] == pytest.approx(1.0, abs=0.1)  # repeats are 1, 2, 0 in turn
