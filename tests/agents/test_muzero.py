"""MuZero's targets, masks, losses and search, compared with slow versions that loop over indices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from toys import Values, put, toy, train

from rlrun.agents.model_based.muzero import MuZero
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop

Build = Callable[..., Loop]
K = 2


def short(**changes: Any) -> Values:
    """Returns a run on CartPole with episodes of at most five steps, and a buffer that is overwritten continually."""
    values = toy("muzero", **{"algo.unroll_steps": K, "algo.td_steps": 3, "algo.buffer.capacity": 100} | changes)
    return put(values, {"env.max_episode_steps": 12, "algo.gamma": 0.9})


def batch_of(loop: Loop) -> dict[str, Any]:
    """Returns everything that is stored, as sequences."""
    buffer = loop.buffer
    return buffer.read(torch.arange(buffer.first * 2, buffer.first * 2 + len(buffer)))


@pytest.mark.parametrize("two_player", [False, True])
@pytest.mark.parametrize("td_lambda", [None, 0.7])
def test_muzero_targets_equal_a_loop_over_every_index(build: Build, two_player: bool, td_lambda: Any) -> None:
    loop = train(build(short(**{"algo.two_player": two_player, "algo.td_lambda": td_lambda})), 80)
    agent, batch, ends = loop.agent, batch_of(loop), set()
    assert loop.buffer.first > 0, "rows were overwritten"
    returns, rewards, known = agent.targets(batch)
    sign = -1.0 if two_player else 1.0
    value = agent.target(batch["next_obs"].flatten(0, 1)).view_as(returns)
    for b in range(returns.shape[1]):
        end = int(batch["mask"][:, b].sum())
        over = bool(batch["terminated"][end - 1, b])
        ends.add((end, over))
        for t in range(K + 1):
            there = t < end
            assert known[t, b] == (there or over)
            assert rewards[t, b] == (batch["reward"][t, b] if there else 0.0)
            lengths, total, share = [], 0.0, 1.0
            for step in range(t, min(t + 3, end) if td_lambda is None else end):
                total += share * float(batch["reward"][step, b])
                share *= sign * 0.9 * (1 - float(batch["terminated"][step, b]))
                lengths.append(total + share * float(value[step, b]))
            longest, trace = len(lengths) - 1, 1.0 if td_lambda is None else td_lambda
            mix = [(1 - trace) * trace**i for i in range(longest)] + [trace**longest]
            expected = sum(m * g for m, g in zip(mix, lengths, strict=True)) if there else 0.0
            assert returns[t, b].item() == pytest.approx(expected, abs=1e-3)
    assert {over for _, over in ends} == {True, False} and len(ends) > 4


def test_muzero_losses_equal_the_model_step_by_step(build: Build) -> None:
    agent = (loop := train(build(short()), 60)).agent
    batch = batch_of(loop)
    targets = agent.targets(batch)
    value_loss, reward_loss, policy_loss, error = agent.unroll(batch, batch["policy"][: K + 1], *targets)
    model, (returns, rewards, known) = agent.model, targets
    latent = model.encode(batch["obs"][0])
    for k in range(K + 1):
        logits, value = model.predict(latent)
        torch.testing.assert_close(value_loss[k], model.scalar.loss(value, returns[k]) * known[k])
        cross = -(batch["policy"][k] * logits.log_softmax(-1)).sum(-1)
        torch.testing.assert_close(policy_loss[k], cross * batch["mask"][k])
        if k == 0:
            torch.testing.assert_close(error, (model.scalar.mean(value) - returns[0]).detach())
        if k < K:
            latent, reward = model.step(latent, batch["action"][k])
            torch.testing.assert_close(reward_loss[k], model.scalar.loss(reward, rewards[k]) * known[k])
    past = (batch["mask"][: K + 1] == 0) & (batch["terminated"][: K + 1] == 0)
    assert past.any() and not value_loss[past].any(), "nothing is known past a cut"
    ended = (batch["mask"][: K + 1] == 0) & (batch["terminated"][: K + 1] == 1)
    assert ended.any() and (value_loss[ended] > 0).all() and not policy_loss[ended].any()


def test_muzero_scales_gradients_through_each_step(build: Build) -> None:
    """Between the reward of step k and the encoder there are k + 1 steps of the model, and each scales gradients."""
    grads = {}
    for scale in (1.0, 0.5):
        agent = (loop := train(build(short()), 1)).agent
        agent.cfg = type(agent.cfg)(**vars(agent.cfg) | {"gradient_scale": scale})
        batch = batch_of(loop)
        _, reward_loss, _, _ = agent.unroll(batch, batch["policy"][: K + 1], *agent.targets(batch))
        weight = agent.model.representation.output.weight
        grads[scale] = [torch.autograd.grad(loss.sum(), weight, retain_graph=True)[0] for loss in reward_loss]
    for k in range(K):
        torch.testing.assert_close(grads[0.5][k], grads[1.0][k] * 0.5 ** (k + 1))


def test_muzero_reanalyze_with_the_same_network_repeats_the_stored_search(build: Build) -> None:
    """Stored policies come from a search without noise; Reanalyze uses the network of that search."""
    agent = (loop := train(build(short(**{"algo.reanalyze_ratio": 1.0})), 1)).agent
    batch = batch_of(loop)
    agent.target.module.load_state_dict(agent.model.state_dict())
    obs = batch["obs"][: K + 1]
    carry = {"first": torch.ones(obs[0].shape[0], dtype=torch.bool)}
    stored = torch.stack([agent.act(step, carry, explore=False)[1]["policy"] for step in obs])
    fresh, value = agent.reanalyzed(batch)
    torch.testing.assert_close(fresh, stored)
    expected = torch.stack([agent.search.best(*agent.root(agent.model, step)).value for step in obs])
    torch.testing.assert_close(value, expected * batch["mask"][: K + 1])
    assert (batch["mask"][: K + 1] == 0).any(), "past its end an episode is worth nothing"
    agent.cfg = type(agent.cfg)(**vars(agent.cfg) | {"reanalyze_ratio": 0.5})
    half = round(0.5 * len(batch["weight"]))
    mixed, some = agent.reanalyzed(batch)
    torch.testing.assert_close(mixed[:, :half], stored[:, :half])
    assert torch.equal(mixed[:, half:], batch["policy"][: K + 1, half:])
    torch.testing.assert_close(some, value[:, :half])


def test_muzero_reanalyzed_values_replace_returns(build: Build) -> None:
    """The target of the first value is computed back from its error."""
    agent = (loop := train(build(short()), 60)).agent
    batch = batch_of(loop)
    policy, (returns, _, _) = batch["policy"][: K + 1], agent.targets(batch)
    before, share = agent.model(batch["obs"][0]), 3
    value = torch.arange(1.0, share + 1).expand(K + 1, share)
    _, error = agent.update_model(batch, policy, value)
    expected = torch.cat([value[0], returns[0, share:]])
    torch.testing.assert_close(before.detach() - error, expected, atol=1e-4, rtol=1e-4)


def test_muzero_unrolls_random_actions_after_the_end(build: Build) -> None:
    agent = (loop := train(build(short()), 60)).agent
    batch = batch_of(loop)
    draws = torch.stack([agent.unrolled_actions(batch) for _ in range(20)])
    there = (batch["mask"] > 0).expand_as(draws)
    assert torch.equal(draws[there], batch["action"].expand_as(draws)[there])
    assert (~there).any() and 0.4 < draws[~there].float().mean() < 0.6, "CartPole has two actions"


@pytest.mark.parametrize("algo", ["muzero", "gumbel_muzero"])
def test_muzero_plays_and_learns_only_legal_moves(build: Build, algo: str) -> None:
    changes = {"algo.two_player": True, "algo.loop.warmup_steps": 0, "env.max_episode_steps": None}
    board = {"env.id": "rlrun/TicTacToe-v0", "env.kwargs": {"opponent": "none"}}
    loop = build(toy(algo, **changes | board))
    results = []
    for _ in range(60):
        obs = loop.obs
        loop.tick()
        results += [episode.returned for episode in loop.metrics.drain_episodes()]
        newest = (loop.buffer.ring.total - 1) % loop.buffer.ring.capacity
        row = loop.buffer.packing.take(2 * newest + torch.arange(2))
        assert not row["policy"][obs["action_mask"] == 0].any()
        torch.testing.assert_close(row["policy"].sum(-1), torch.ones(2))
    assert len(results) > 10 and min(results) >= 0.0, "an illegal move costs the mover -1"


def test_muzero_counts_sampled_moves_from_the_start_of_the_episode(build: Build) -> None:
    """With one sampled move, exploring differs from the best action in the first step only."""
    loop = build(
        short(
            **{
                "algo.search.sampled_moves": 1,
                "algo.search.temperature.start": 1e6,
                "algo.search.dirichlet_fraction": 0.0,
            }
        )
    )
    agent: MuZero = loop.agent
    obs = torch.randn(400, 4, generator=torch.Generator().manual_seed(0))
    first = {"first": torch.ones(400, dtype=torch.bool)}
    best, _ = agent.act(obs, first, explore=False)
    drawn, extras = agent.act(obs, first, explore=True)
    assert 100 < int((drawn != best).sum()) < 300
    later = {"first": torch.zeros(400, dtype=torch.bool), "carry.moves": extras["carry.moves"]}
    again, extras = agent.act(obs, later, explore=True)
    assert torch.equal(again, best) and np.unique(extras["carry.moves"]).tolist() == [1]


def test_muzero_priorities_are_value_errors(build: Build) -> None:
    """With prioritised replay, the priority of a sequence is the error of its first value."""
    words = ["algo=muzero", "env=CartPole", "preset=none", "algo.buffer=prioritized", "network.hidden=[8]"]
    words += ["algo.search.num_simulations=4", "algo.loop.warmup_steps=64", "algo.loop.batch_size=16"]
    loop = train(build(jobs([*words, "algo.buffer.alpha=1.0", "algo.buffer.capacity=512"])[0].values), 1)
    batch, buffer = loop.batch, loop.buffer
    _, error = loop.agent.update(batch, loop.context())
    buffer.feedback(batch, error)
    place = batch["index"] % (buffer.ring.capacity * 16)
    last = {int(p): abs(float(e)) + 1e-5 for p, e in zip(place, error, strict=True)}
    for at, priority in last.items():
        assert float(buffer.tree.get(torch.tensor([at]))) == pytest.approx(priority, rel=1e-4)
