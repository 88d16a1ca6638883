"""Ensembles of networks: which share all weights, and which do not."""

import pytest
import torch
from torch import Tensor, nn

from rlrun.networks.heads import Value
from rlrun.networks.linear import Linear
from rlrun.networks.members import sharing

MEMBERS = 3


class Listed(nn.Module):
    """A network for each member; none has a weight whose first size is the number of members."""

    def __init__(self) -> None:
        super().__init__()
        self.networks = nn.ModuleList(nn.Linear(4, 8) for _ in range(MEMBERS))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([network(x) for network in self.networks])


class OneForAll(Listed):
    def forward(self, x: Tensor) -> Tensor:
        return self.networks[0](x).expand(MEMBERS, -1, -1)


class Rescaled(Listed):
    """Members that differ only in a constant factor."""

    def forward(self, x: Tensor) -> Tensor:
        factors = torch.arange(1.0, MEMBERS + 1)
        return self.networks[0](x) * factors.view(-1, 1, 1)


class Unstacked(Listed):
    def forward(self, x: Tensor) -> Tensor:
        return self.networks[0](x)


class LayersOnSharedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = 8
        self.convolution = nn.Conv1d(1, 2, 2, bias=False)
        self.layer = Linear(6, 8, MEMBERS)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.convolution(x.unsqueeze(1)).flatten(1))


class Centred(OneForAll):
    """The sum of the features of a row is always 0."""

    def forward(self, x: Tensor) -> Tensor:
        features = super().forward(x)
        return torch.cat([features, -features], -1)


class StartsAtZero(LayersOnSharedConvolution):
    """All members return zeros at first, as residual blocks with a factor of 0 do."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)


class Dead(Listed):
    """No gradient reaches a weight yet, as behind a ReLU whose inputs are all negative."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(super().forward(x) - 100)


@pytest.mark.parametrize("kind", [Listed, LayersOnSharedConvolution, StartsAtZero, Dead])
def test_members_with_weights_of_their_own_are_an_ensemble(kind: type[nn.Module]) -> None:
    assert sharing(kind(), [torch.randn(2, 4)], MEMBERS) is None


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (OneForAll, "members 0 and 1 of an ensemble return the same features, because they share all weights"),
        (Centred, "members 0 and 1 of an ensemble return the same features, because they share all weights"),
        (Rescaled, "members 0 and 1 of an ensemble share all weights"),
        (Unstacked, "ignores members=3, so an ensemble would share its weights; rlrun.networks.linear.Linear has "),
    ],
)
def test_members_that_share_all_weights_are_no_ensemble(kind: type[nn.Module], fault: str) -> None:
    assert (sharing(kind(), [torch.randn(2, 4)], MEMBERS) or "").startswith(fault)


def test_network_of_another_number_of_members_is_no_ensemble() -> None:
    fault = sharing(Listed(), [torch.randn(2, 4)], 2)
    assert fault == "returns [3, 2, 8] with members=2; expected [members, batch, features]"


def test_network_without_trained_weights_may_serve_all_members() -> None:
    assert sharing(Unstacked().requires_grad_(False), [torch.randn(2, 4)], MEMBERS) is None


def test_selected_members_have_the_whole_shared_convolution() -> None:
    head = Value(LayersOnSharedConvolution(), MEMBERS)
    x = torch.randn(2, 4)
    torch.testing.assert_close(head.select(slice(1, 3), x), head(x)[1:3])
