"""A network for observations Dict(image=..., vector=...): convolutions over the image, then a layer over all inputs.

rlrun train algo=sac env=./my_env.py:MyEnv network=./image_and_vector.py
"""

import torch
from torch import nn

from rlrun.settings import Units, config, register


class Fusion(nn.Module):
    """The network of one member. features: the size of its output."""

    def __init__(self, image, numbers, features):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(image.shape[-1], 16, 4, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU()
        )
        self.layer = nn.LazyLinear(features)
        self(torch.zeros(1, *image.shape, dtype=torch.uint8), torch.zeros(1, numbers))  # sets the sizes of the layer

    def forward(self, image, *vectors):
        x = image.permute(0, 3, 1, 2).float() / 255  # to [batch, channels, height, width]
        x = self.convolutions(x).flatten(1)
        return torch.relu(self.layer(torch.cat([x, *vectors], -1)))


@register("network", "image_and_vector")
class ImageAndVector(nn.Module):
    """A network for each member of an ensemble, or a single one."""

    @config
    class Config:
        units: Units = 64

    def __init__(self, cfg, spaces, members):
        super().__init__()
        obs, *actions = spaces  # an action space only if the network predicts Q(s, a)
        numbers = obs["vector"].shape[0] + sum(action.shape[0] for action in actions)
        self.features = cfg.units
        self.networks = nn.ModuleList(Fusion(obs["image"], numbers, cfg.units) for _ in range(members or 1))
        self.is_ensemble = members is not None

    def forward(self, obs, *actions):
        outputs = [network(obs["image"], obs["vector"], *actions) for network in self.networks]
        return torch.stack(outputs) if self.is_ensemble else outputs[0]
