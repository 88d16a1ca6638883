"""Supervised classification: a network learns the labels of a table by maximum likelihood.

The environment shows rows of the table and reports their labels; the action is the predicted class, and its reward is 1
if it is right. So the mean return of an evaluation is the accuracy.
"""

from gymnasium.spaces import Discrete
from torch import Tensor
from torch.nn import functional as F

from rlrun.core.agent import Agent, kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.networks.choices import legal
from rlrun.networks.heads import Head
from rlrun.settings import Fraction, NonNegativeFloat, PositiveFloat, Scheduled, config, register
from rlrun.tensors import flat
from rlrun.types import Batch, Context, Metrics, Obs, Spec

LABEL = "label"  # the report that holds the class of a row


@register("algo", "classifier")
class Classifier(Agent):
    """Softmax classification by a network."""

    actions = Discrete
    reads = (LABEL,)

    @config
    class Config:
        learning_rate: Scheduled[PositiveFloat]
        weight_decay: NonNegativeFloat
        label_smoothing: Fraction

    cfg: Config

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        labels = spec.reports.get(LABEL)
        if labels is not None and labels != spec.action:
            raise ConfigError(f"algo={self.registered}: the labels are {labels}, but the actions are {spec.action}")
        self.logits = Head(parts.torso(), int(spec.action.n))
        self.optim = Optim(self.logits.parameters(), cfg.learning_rate, weight_decay=cfg.weight_decay)

    @policy
    def act(self, obs: Obs, carry: Batch, explore: bool, params: Tensor | None = None) -> tuple[Tensor, Batch]:
        return legal(self.logits(obs), obs).argmax(-1), {}

    def update(self, rollout: Batch, ctx: Context) -> Metrics:
        return self.fit(flat({name: rollout[name] for name in ("obs", LABEL, "weight")}))

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        """Takes a step on the mean cross-entropy of rows [batch, ...]."""
        logits = self.logits(rows["obs"])
        error = F.cross_entropy(logits, rows[LABEL], reduction="none", label_smoothing=self.cfg.label_smoothing)
        loss = masked_mean(error, rows["weight"])
        self.optim.step(loss)
        return {"loss/cross_entropy": loss.detach()}
