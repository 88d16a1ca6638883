"""Bootstrap ensemble (Osband et al. 2016, arXiv 1602.04621): every network learns from a different random subset of
the data, and every decision follows a randomly chosen network."""

from typing import Any

from torch import Tensor

from rlrun.agents.bandits.neural_greedy import NeuralGreedy, RewardHead, Training, chosen
from rlrun.core.parts import Parts
from rlrun.functional.losses import sum_over_members
from rlrun.functional.membership import belongs
from rlrun.settings import Fraction, Units, config, register
from rlrun.types import Batch, Obs


@register("algo", "bootstrap_bandit")
class Bootstrap(NeuralGreedy):
    """An ensemble of networks that predict rewards.

    A hash of a transition's index in the replay buffer decides which members learn from the transition, so their
    subsets need no storage.
    """

    @config
    class Config(Training):
        members: Units
        add_prob: Fraction

    def build(self, parts: Parts) -> None:
        self.q = RewardHead(parts.torso(members=self.cfg.members), self.arms, self.cfg.members)
        self.num_features = self.q.torso.features

    def value(self, obs: Obs) -> Tensor:
        return self.q(obs).mean(0)

    def score(self, obs: Obs, mask: Tensor | None = None) -> Tensor:
        values = self.q(obs, mask)  # [members, batch, arms]
        member = self.noise.integers(self.cfg.members, 1, values.shape[1], 1)
        return values.gather(0, member.expand(-1, -1, self.arms)).squeeze(0)

    def draws(self, batch: Batch) -> Batch:
        members = self.cfg.members
        learns = belongs(batch["index"], members, self.cfg.add_prob)
        mask: Any = self.dropout_mask(self.learn_noise, members, len(batch["reward"]))
        return {"learns": learns, "mask": mask}

    def loss(self, batch: Batch, draws: Batch) -> Tensor:
        rewards = self.q(batch["obs"], draws["mask"])
        predicted = chosen(rewards, batch)
        error = (predicted - batch["reward"]) ** 2  # [members, batch]
        return sum_over_members(error * draws["learns"], batch["weight"])
