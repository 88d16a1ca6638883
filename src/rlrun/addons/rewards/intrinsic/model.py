"""Base class of the models that compute intrinsic rewards."""

from typing import ClassVar

from torch import Tensor, nn

from rlrun.core.parts import Parts
from rlrun.core.state import Statistics
from rlrun.settings import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt, Scheduled, Size, Units, config
from rlrun.types import Batch, Metrics, Spec


class Intrinsic(nn.Module):
    """Subclasses compute the intrinsic reward (`raw_reward`) and learn (`fit`). bonus.py adds it to the batch.

    The reward is divided by the running standard deviation of its discounted sum; no mean is subtracted (arXiv
    1810.12894, sec. 2.4). The reward of a step is computed before the model learns from that step.
    """

    reads: ClassVar[tuple[str, ...]] = ()  # reports of the environment that `rows` hold
    single_steps: ClassVar[bool] = False  # whether the model needs one-step transitions, so algo.n_step must be 1

    @config
    class Config:
        gamma: Fraction
        separate: bool | None
        episodic: bool
        coef: Scheduled[NonNegativeFloat]
        reward_coef: NonNegativeFloat
        clip: PositiveFloat | None
        hidden: list[Units]
        learning_rate: PositiveFloat
        epochs: PositiveInt
        minibatch_size: Size | None

    def __init__(self, cfg, spec: Spec, parts: Parts):
        super().__init__()
        self.cfg = cfg
        layers = {"hidden": cfg.hidden, "activation": "relu", "init": "orthogonal", "norm": {"name": "none"}}
        self.network = {"name": "auto"} | layers
        self.statistics = Statistics(())  # of discounted sums of raw rewards
        self.shuffle = parts.stream("shuffle")

    def scale(self, reward: Tensor) -> Tensor:
        """Returns raw rewards, divided by the running standard deviation of their discounted sums and clipped."""
        _, var = self.statistics.available()
        inverse_std = (var + 1e-16).rsqrt()
        return self.clip(reward * inverse_std.to(reward))

    def clip(self, reward: Tensor) -> Tensor:
        """Returns rewards clipped from above, if `clip` is set."""
        if self.cfg.clip is None:
            return reward
        return reward.clamp(max=self.cfg.clip)

    def observe(self, rows: Batch) -> None:
        """Adds collected rows [..., env, ...] to the pending statistics of observations."""

    def publish(self) -> None:
        """Makes all pending statistics live. Called whenever a batch is learned from."""
        self.statistics.publish()

    def preprocess(self, rows: Batch) -> Batch:
        """Returns the rows in the form that `raw_reward` and `fit` take."""
        return rows

    def raw_reward(self, rows: Batch) -> Tensor:
        """Returns the unscaled intrinsic reward of preprocessed rows, [batch]."""
        raise NotImplementedError

    def fit(self, rows: Batch) -> Metrics:
        """Takes one gradient step on preprocessed rows."""
        raise NotImplementedError
