"""Gradient bandit (Sutton and Barto, 2nd edition, section 2.8): gradient ascent on preferences for the arms."""

import torch
from torch import Tensor

from rlrun.agents.bandits.multi_armed import MultiArmed
from rlrun.core.agent import kernel
from rlrun.core.parts import Parts
from rlrun.functional.choices import one_hot
from rlrun.functional.distributions import Categorical
from rlrun.settings import PositiveFloat, config, register
from rlrun.types import Batch, Metrics, Spec


@register("algo", "gradient_bandit")
class Gradient(MultiArmed):
    """Gradient ascent on the preferences of a softmax policy."""

    @config
    class Config:
        learning_rate: PositiveFloat
        temperature: PositiveFloat

    cfg: Config

    preference: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__(cfg, spec, parts)
        self.register_buffer("preference", torch.zeros_like(self.counts))

    def value(self, context: Tensor) -> Tensor:
        return self.preference[context]

    def score(self, context: Tensor) -> Tensor:
        """Returns preference / temperature plus Gumbel noise, [batch, arms].

        The argmax is a sample from softmax(preference / temperature) (Gumbel 1954).
        """
        noise = self.noise.uniform(len(context), self.arms).clamp(min=torch.finfo().tiny)
        logits = self.preference[context] / self.cfg.temperature
        return logits - (-noise.log()).log()

    def action_values(self, obs: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]
        return super().value(self.context(obs))  # `value` here returns preferences

    def action_distribution(self, obs: Tensor, carry: Batch) -> Categorical:  # type: ignore[override]
        """Returns softmax(preference / temperature), from which `act` samples."""
        return Categorical(self.preference[self.context(obs)] / self.cfg.temperature)

    @kernel
    def learn(self, pulls: Batch) -> Metrics:
        """Updates the preferences. The baseline is the mean reward of all earlier pulls of the bandit, of any arm."""
        context = self.context(pulls["obs"])
        total = self.totals[context].sum(-1)
        count = self.counts[context].sum(-1)
        baseline = total / count.clamp(min=1)
        advantage = (pulls["reward"] - baseline) * pulls["weight"]
        chosen = one_hot(pulls["action"], self.arms)
        policy = (self.preference[context] / self.cfg.temperature).softmax(-1)
        change = self.cfg.learning_rate * advantage.unsqueeze(-1) * (chosen - policy)
        self.preference.index_add_(0, context, change)
        return super().learn(pulls)
