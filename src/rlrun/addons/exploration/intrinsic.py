"""What intrinsic rewards share: their scale, and a model that learns what surprised it."""

from typing import ClassVar

from torch import Tensor, nn

from rlrun.config.schema import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt, Size, Units, config
from rlrun.core.parts import Parts
from rlrun.core.state import RunningMoments
from rlrun.types import Batch, Metrics, Spec


class Intrinsic(nn.Module):
    """Subclasses say what surprises (`surprise`) and learn it (`fit`). How it is paid for: bonus.py.

    The surprise is divided by the running deviation of its discounted sum, its mean is not taken away (arXiv
    1810.12894, sec. 2.4). It is that of the model before it learns from the step.
    """

    single_steps: ClassVar[bool] = False  # whether it learns from an action and the very next observation

    @config
    class Config:
        gamma: Fraction
        separate: bool | None
        episodic: bool
        coef: NonNegativeFloat
        coef_end: NonNegativeFloat | None
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
        self.moments = RunningMoments(())
        self.shuffle = parts.stream("shuffle")

    def scaled(self, surprise: Tensor) -> Tensor:
        scaled = surprise * (self.moments.var + 1e-16).rsqrt().to(surprise)
        return scaled if self.cfg.clip is None else scaled.clamp(max=self.cfg.clip)

    def watch(self, rows: Batch) -> None:
        """Statistics of what is collected, [..., env, ...]."""

    def seen(self, rows: Batch) -> Batch:
        """The same as the model sees it."""
        return rows

    def surprise(self, rows: Batch) -> Tensor:
        """Of every transition, [batch]."""
        raise NotImplementedError

    def fit(self, rows: Batch) -> Metrics:
        """One step of what the model learns."""
        raise NotImplementedError
