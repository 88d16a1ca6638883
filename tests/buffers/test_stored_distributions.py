"""Distributions as tensors: through rollouts and replay and back, with log-probabilities that are equal to the bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.buffers.replay import Reading, Replay
from rlrun.buffers.rollout import Rollout
from rlrun.core.random import Stream
from rlrun.functional.distributions import (
    Beta,
    Categorical,
    Deterministic,
    Independent,
    Joint,
    Mixture,
    Normal,
    SquashedNormal,
    TruncatedNormal,
    from_tensors,
    to_tensors,
)
from rlrun.networks.distribution_spaces import space_of
from rlrun.types import Spec, Step

TIME, ENVS = 125, 8
INF = float("inf")
VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(TIME, ENVS, *shape, generator=torch.Generator().manual_seed(seed))


def log_std(*shape: int) -> Tensor:
    return torch.tensor([0.1, -1.0, 0.5]).expand(TIME, ENVS, *shape, 3)


def masked_logits(*shape: int) -> Tensor:
    logits = draw(*shape)
    logits[..., -1] = -INF
    return logits


KINDS: dict[str, tuple[Any, Space]] = {
    "normal": (Normal(draw(3), log_std()), VECTOR),
    "squashed": (SquashedNormal(draw(3), log_std()), VECTOR),
    "truncated": (TruncatedNormal(draw(3), log_std().exp(), -1.0, 1.0), VECTOR),
    "categorical": (Categorical(masked_logits(4)), spaces.Discrete(4)),
    "independent": (Independent(Categorical(masked_logits(2, 3))), spaces.MultiDiscrete([3, 3])),
    "joint": (
        Joint(Independent(Categorical(masked_logits(2, 3))), Normal(draw(1), draw(1, seed=1))),
        VECTOR,
    ),
    "mixture": (Mixture(draw(4), Normal(draw(4, 3), log_std(4))), VECTOR),
    "mixture of betas": (Mixture(draw(2), Beta(draw(2, 3).exp(), draw(2, 3, seed=1).exp(), -1.0, 1.0)), VECTOR),
    "beta": (Beta(draw(3).exp(), draw(3, seed=1).exp(), -1.0, 1.0), VECTOR),
    "deterministic": (Deterministic(draw(3)), VECTOR),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def drawn(dist: Any) -> Tensor:
    """Returns an action of every timestep and environment, [time, env, ...]."""
    sample = dist.sample(dist.noise(Stream(0, "test")))
    if isinstance(sample, tuple):
        sample = sample[0]
    action: Tensor = sample
    return action


def collect(dist: Any, action: Tensor, add: Callable[[Step], None]) -> None:
    """Adds steps whose extras are the tensors of their distribution."""
    tensors = to_tensors(dist)
    never = torch.zeros(ENVS, dtype=torch.bool)
    obs = torch.zeros(ENVS, 1)
    for t in range(TIME):
        step = {
            "obs": obs,
            "next_obs": obs,
            "following": obs,
            "action": action[t],
            "executed": action[t],
            "reward": torch.zeros(ENVS),
            "terminated": never,
            "truncated": never,
            "weight": torch.ones(ENVS),
            "first": never,
        }
        add(step | {name: tensor[t] for name, tensor in tensors.items()})


def assert_same(found: Any, dist: Any, action: Tensor) -> None:
    assert type(found) is type(dist)
    for name, tensor in to_tensors(dist).items():
        assert torch.equal(to_tensors(found)[name], tensor), name
    log_prob = dist.log_prob(action)
    assert log_prob.numel() == 1000
    assert torch.equal(found.log_prob(action), log_prob)


@kinds
def test_distribution_through_a_rollout_has_the_same_log_prob(kind: str) -> None:
    dist, space = KINDS[kind]
    action = drawn(dist)
    spec = Spec(spaces.Box(-1, 1, (1,)), space, ENVS)
    rollout = Rollout(spec, {"obs": "float16"})
    collect(dist, action, rollout.add)
    batch = rollout.batch()
    assert torch.equal(batch["action"], action)
    assert_same(from_tensors(dist, batch), dist, action)


@kinds
def test_distribution_through_replay_has_the_same_log_prob(kind: str) -> None:
    dist, space = KINDS[kind]
    action = drawn(dist)
    spec = Spec(spaces.Box(-1, 1, (1,)), space, ENVS)
    first = from_tensors(dist, {name: tensor[0] for name, tensor in to_tensors(dist).items()})
    extras = space_of(first)
    assert {name: tensor.shape[2:] for name, tensor in to_tensors(dist).items()} == {
        name: box.shape for name, box in extras.items()
    }
    rewards: Any = {"reward_clip": None, "reward_scale": 1.0, "standardize_reward": False, "compression": None}
    cfg = Replay.Config(capacity=2000, dtypes={"obs": "float16"}, **rewards)
    replay = Replay(cfg, spec, Reading(0.9, extras=extras), 0, torch.device("cpu"))
    collect(dist, action, replay.add)
    batch = replay.read(torch.arange(TIME * ENVS))
    rows = from_tensors(dist, {name: tensor.flatten(0, 1) for name, tensor in to_tensors(dist).items()})
    assert_same(from_tensors(dist, batch), rows, action.flatten(0, 1))


def test_tensors_of_a_distribution_have_dotted_names() -> None:
    assert [*to_tensors(KINDS["joint"][0])] == [
        "dist.discrete.decisions.logits",
        "dist.continuous.mean",
        "dist.continuous.log_std",
    ]
    assert [*to_tensors(KINDS["mixture"][0], "")] == ["logits", "components.mean", "components.log_std"]


def test_constants_of_a_distribution_are_those_of_its_model() -> None:
    like = Beta(torch.ones(1), torch.ones(1), -3.0, 5.0)
    found = from_tensors(like, {"dist.alpha": torch.tensor([2.0]), "dist.beta": torch.tensor([4.0]), "weight": INF})  # type: ignore[dict-item]
    assert (found.alpha.item(), found.beta.item(), found.low, found.high) == (2.0, 4.0, -3.0, 5.0)


def test_distribution_that_is_no_dataclass_is_refused() -> None:
    class Logistic:
        mean = torch.zeros(1)

    with pytest.raises(TypeError, match="Logistic cannot be stored: write it as a @dataclass of tensors"):
        to_tensors(Logistic())
