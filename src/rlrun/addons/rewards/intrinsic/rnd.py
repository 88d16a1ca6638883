"""Random network distillation (Burda et al. 2018, arXiv 1810.12894): the error in predicting a random network.

As in the paper, the input is the newest frame of stacked images by default, and boxes are standardised and clipped.
Unlike in the paper, no random agent collects observations for the initial statistics: they start with the first
rollout.
"""

from torch import Tensor, nn

from rlrun.addons.rewards.intrinsic.inputs import IntrinsicInputs
from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.agent import kernel
from rlrun.core.state import Optim
from rlrun.functional.losses import masked_mean
from rlrun.networks.heads import Head
from rlrun.settings import NonNegativeInt, Units, config, register
from rlrun.types import Batch, Metrics, Spec


@register("intrinsic", "rnd")
class RND(Intrinsic):
    """Rewards the error of a network that is trained to predict the outputs of a fixed random network."""

    @config
    class Config(Intrinsic.Config):
        embedding: Units
        frames: NonNegativeInt

    view: IntrinsicInputs

    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        self.target = self.embedding().requires_grad_(False)
        self.predictor = self.embedding()
        self.optim = Optim(self.predictor.parameters(), cfg.learning_rate)

    def inputs(self, spec: Spec) -> IntrinsicInputs:
        return IntrinsicInputs(spec.obs, spec.frame_stack, self.cfg.obs_clip, self.cfg.obs_statistics, self.cfg.frames)

    def embedding(self) -> nn.Module:
        """Returns a new network that maps preprocessed observations to embeddings."""
        return Head(self.network_of(self.view.space), self.cfg.embedding)

    def preprocess(self, rows: Batch) -> Batch:
        return {"next_obs": self.view(rows["next_obs"]), "weight": rows["weight"]}

    def raw_reward(self, rows: Batch) -> Tensor:
        """Returns the mean squared prediction error, [batch]."""
        next_obs = rows["next_obs"]
        error = self.predictor(next_obs) - self.target(next_obs)
        return error.square().mean(-1)

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        error = self.raw_reward(rows)
        loss = masked_mean(error, rows["weight"])
        self.optim.step(loss)
        return {"loss/rnd": loss.detach()}
