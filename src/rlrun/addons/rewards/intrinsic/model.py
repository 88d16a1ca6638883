"""Base class of the models that compute intrinsic rewards."""

from typing import Annotated, ClassVar

from gymnasium import Space
from torch import Tensor, nn

from rlrun.addons.rewards.intrinsic.inputs import IntrinsicInputs
from rlrun.core.parts import Parts
from rlrun.core.statistics import NoStatistics, statistics_of
from rlrun.errors import ConfigError
from rlrun.networks.recurrent import is_recurrent
from rlrun.settings import (
    Fraction,
    NonNegativeFloat,
    Part,
    PositiveFloat,
    PositiveInt,
    Scheduled,
    Size,
    Units,
    config,
    registry,
)
from rlrun.types import Batch, Metrics, Spec


class Intrinsic(nn.Module):
    """Subclasses compute the intrinsic reward (`raw_reward`) and learn (`fit`). bonus.py adds it to the batch.

    The reward is divided by the running standard deviation of its discounted sum; no mean is subtracted (arXiv
    1810.12894, sec. 2.4). The reward of a step is computed before the model learns from that step. `space` is the space
    of the observations that the model gets.
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
        statistics: Annotated[dict[str, object], Part("statistics")]
        clip: PositiveFloat | None
        obs_statistics: Annotated[dict[str, object], Part("statistics")]
        obs_clip: PositiveFloat
        network: Annotated[dict[str, object], Part("network")] | None
        hidden: list[Units]
        learning_rate: PositiveFloat
        epochs: PositiveInt
        minibatch_size: Size | None

    def __init__(self, cfg, spec: Spec, parts: Parts):
        super().__init__()
        self.cfg = cfg
        self.layers = {"hidden": cfg.hidden, "activation": "relu", "init": "orthogonal", "norm": {"name": "none"}}
        self.network = cfg.network or {"name": "auto"} | self.layers
        name = str(self.network["name"])
        if is_recurrent(name):
            raise ConfigError(
                f"algo.intrinsic.network={name}: is recurrent, but intrinsic rewards are those of single steps"
            )
        # of discounted sums of raw rewards
        self.statistics = statistics_of(cfg.statistics, (), "algo.intrinsic.statistics")
        self.shuffle = parts.stream("shuffle")
        self.view = self.inputs(spec)
        self.space: Space = spec.obs
        if self.view is not None:
            self.space = self.view.space

    def network_of(self, space: Space) -> nn.Module:
        """Returns a new network of observations, as `algo.intrinsic.network` chooses it."""
        network: nn.Module = registry.build("network", self.network, [space], None, path="algo.intrinsic.network")
        return network

    def inputs(self, spec: Spec) -> IntrinsicInputs | None:
        """Returns what preprocesses observations, or None if they stay as they are."""
        if self.cfg.obs_statistics["name"] == NoStatistics.registered:
            return None
        return IntrinsicInputs(spec.obs, 1, self.cfg.obs_clip, self.cfg.obs_statistics)

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
        if self.view is not None:
            self.view.add(rows["next_obs"], rows["weight"])

    def publish(self) -> None:
        """Makes all pending statistics live. Called whenever a batch is learned from."""
        self.statistics.publish()
        if self.view is not None:
            self.view.publish()

    def preprocess(self, rows: Batch) -> Batch:
        """Returns the rows in the form that `raw_reward` and `fit` take."""
        if self.view is None:
            return rows
        return rows | {name: self.view(rows[name]) for name in ("obs", "next_obs")}

    def raw_reward(self, rows: Batch) -> Tensor:
        """Returns the unscaled intrinsic reward of preprocessed rows, [batch]."""
        raise NotImplementedError

    def fit(self, rows: Batch) -> Metrics:
        """Takes one gradient step on preprocessed rows."""
        raise NotImplementedError
