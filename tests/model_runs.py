"""Small runs whose representation is the latent state of a model, and models that learn alone."""

from typing import Any

import torch
from gymnasium import Space
from torch import Tensor
from toys import Values, put, small

from rlrun.config.jobs import jobs
from rlrun.core.random import Stream
from rlrun.core.state import Optim
from rlrun.dotted import leaves
from rlrun.functional.losses import batch_mean
from rlrun.models.model import LearnedModel
from rlrun.settings import registry

SIZES = {"variables": 2, "categories": 3, "codes": 4, "revive_after": 2}  # beside those of `toys.SMALL`
ENVS = {"sac": "Pendulum", "ppo": "CartPole", "dqn": "CartPole"}


def composed(algo: str, model: str, *words: str, env: str | None = None) -> Values:
    """Returns small values of a run, composed as a user types them on the command line."""
    parts = ["algo.representation=encoding", f"algo.representation.model={model}"]
    values = jobs([f"algo={algo}", f"env={env or ENVS[algo]}", "preset=none", *parts, *words])[0].values
    values = put(values, small(dict(leaves(values))) | {"trainer.engine": "eager"})
    section = values["algo"]["representation"]["model"]
    section |= {key: size for key, size in SIZES.items() if key in section}
    return values


def model_of(name: str, obs: Space, **changes: Any) -> LearnedModel:
    """Returns a model with the settings of its YAML file, and changes by dotted keys."""
    values = jobs(["algo=sac", "env=Pendulum", "algo.representation=encoding", f"algo.representation.model={name}"])
    settings = put(values[0].values["algo"]["representation"]["model"], changes)
    model: LearnedModel = registry.build("model", settings, obs, path="model")
    return model


def learn(model: LearnedModel, rows: Tensor, steps: int, batch: int, start: float, end: float) -> dict[str, Tensor]:
    """Takes gradient steps on random rows, with learning rates from start to end. Returns the last metrics."""
    optim, draws = Optim(model.parameters(), start), Stream(0, "draws")
    metrics: dict[str, Tensor] = {}
    for step in range(steps):
        optim.learning_rate.fill_(start + (end - start) * step / steps)
        index = torch.randint(len(rows), (batch,))
        given = {"obs": rows[index], "weight": torch.ones(batch)}
        loss, metrics = model.loss(given, model.noise(given, draws))
        optim.step(batch_mean(loss))
    return metrics
