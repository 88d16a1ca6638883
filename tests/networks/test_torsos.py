"""Torsos: alone, in ensembles, and with parameters that are passed in."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from rlrun.config.sources import CONF, content
from rlrun.errors import ConfigError
from rlrun.networks.heads import DiscretePolicy, GaussianPolicy, Head, SquashedGaussianPolicy, Value
from rlrun.networks.stacked import Stacked
from rlrun.networks.torsos import NATURE, SMALL_KERNELS, Cnn, Convolutions, Mlp, Pixels, ResidualSections, overlooked
from rlrun.settings import registry

VECTOR, ACTION = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))
IMAGE = spaces.Box(0, 255, (2, 36, 36), np.uint8)
HIDDEN = {"hidden": [8, 5], "activation": "tanh", "init": "uniform", "norm": {"name": "none"}}
OWN = {"linear": {}, "mlp": HIDDEN, "auto": HIDDEN, "cnn": HIDDEN | {"convolutions": NATURE}}
OWN["impala"] = HIDDEN | {"sections": [16, 32, 32]}


def torso(name: str, inputs: list[Space], members: int | None = None, **changes: Any) -> nn.Module:
    values = {"name": name} | OWN[name] | changes
    return registry.build("network", values, inputs, members, path="network")


def member(net: nn.Module, inputs: list[Space], name: str, i: int) -> nn.Module:
    """Returns a single network with the weights of one member."""
    alone = torso(name, inputs)
    state = {}
    for key, value in net.state_dict().items():
        if key.startswith("convolutions."):
            if key.startswith(f"convolutions.0.{i}."):
                state[key.replace(f"convolutions.0.{i}.", "convolutions.0.0.")] = value
        else:
            state[key] = value[i].squeeze(0) if key.endswith("bias") else value[i]
    alone.load_state_dict(state)
    return alone


@pytest.mark.parametrize("name", ["mlp", "cnn", "impala"])
def test_torso_ensemble_members_equal_single_networks(name: str) -> None:
    inputs = [VECTOR if name == "mlp" else IMAGE, ACTION]
    net = torso(name, inputs, members=3)
    seen = torch.randn(6, 3) if name == "mlp" else torch.randint(256, (6, 2, 36, 36), dtype=torch.uint8)
    action = torch.randn(6, 2)
    out = net(seen, action)
    assert out.shape == (3, 6, net.features)
    for i in range(3):
        torch.testing.assert_close(out[i], member(net, inputs, name, i)(seen, action))
    assert not torch.equal(out[0], out[1])


def test_mlp_equals_its_layers_with_activations() -> None:
    net, x = torso("mlp", [VECTOR]), torch.randn(4, 3)
    first, second = net.stack.layers
    expected = torch.tanh(torch.tanh(x @ first.weight + first.bias) @ second.weight + second.bias)
    torch.testing.assert_close(net(x), expected)
    assert net.features == 5


def test_mlp_activations_differ() -> None:
    outputs = set()
    for activation in ("relu", "tanh", "elu", "gelu", "silu"):
        torch.manual_seed(0)
        outputs.add(torso("mlp", [VECTOR], activation=activation)(torch.ones(1, 3)).sum().item())
    assert len(outputs) == 5


def test_linear_torso_joins_its_inputs_and_has_no_weights() -> None:
    net = torso("linear", [VECTOR, ACTION])
    assert net(torch.ones(2, 3), torch.zeros(2, 2)).tolist() == [[1, 1, 1, 0, 0]] * 2
    assert not list(net.parameters()) and net.features == 5


def test_auto_torso_is_cnn_for_images_and_mlp_otherwise() -> None:
    torch.manual_seed(0)
    seeing, seen = torso("auto", [IMAGE]), torch.randint(256, (2, 2, 36, 36), dtype=torch.uint8)
    torch.manual_seed(0)
    assert isinstance(seeing, Cnn) and torch.equal(seeing(seen), torso("cnn", [IMAGE])(seen))
    assert isinstance(torso("auto", [VECTOR, ACTION]), Mlp)
    assert isinstance(torso("auto", [spaces.Discrete(4)]), Mlp)


@pytest.mark.parametrize("space", [VECTOR, spaces.Box(0, 255, (3, 15, 36), np.uint8), spaces.Discrete(3)], ids=str)
def test_cnn_refuses_spaces_without_images_and_suggests_mlp(space: Space) -> None:
    with pytest.raises(ConfigError, match=r"network=cnn needs images .* network=mlp"):
        torso("cnn", [space])


def test_cnn_scales_bytes_to_0_to_1() -> None:
    net = Convolutions(IMAGE, SimpleNamespace(init="orthogonal", convolutions=NATURE, pixel_range=[0.0, 1.0]))
    x = torch.full((1, 2, 36, 36), 255, dtype=torch.uint8)
    expected = torch.ones(1, 2, 36, 36)
    for layer in net.layers:
        expected = layer(expected).relu()
    torch.testing.assert_close(net(x), expected.flatten(1))
    assert net.features == 64


@pytest.mark.parametrize("largest", [1, 3, 255])
def test_cnn_and_mlp_scale_bytes_by_their_upper_bound(largest: int) -> None:
    planes = spaces.Box(0, largest, (2, 36, 36), np.uint8)
    bright = torch.as_tensor(planes.high[None])
    net, mlp = torso("cnn", [planes]), torso("mlp", [planes])
    ones = torch.ones(1, 2, 36, 36)
    expected = ones
    for layer in net.convolutions[0][0].layers:
        expected = layer(expected).relu()
    torch.testing.assert_close(net(bright), net.stack(expected.flatten(1)))
    torch.testing.assert_close(mlp(bright), mlp.stack(ones.flatten(1)))


def test_cnn_has_the_configured_convolutions() -> None:
    net = torso("cnn", [IMAGE], convolutions=[[4, 5, 3], [6, 2, 1]]).convolutions[0][0]
    assert [tuple(layer.weight.shape) for layer in net.layers] == [(4, 2, 5, 5), (6, 4, 2, 2)]
    assert net.features == 6 * 10 * 10  # 36 pixels become 11, then 10


@pytest.mark.parametrize(("convolutions", "side"), [([[4, 17, 1]], 17), ([[4, 3, 2], [4, 9, 1]], 19), ([], 16)])
def test_cnn_refuses_images_smaller_than_its_convolutions_take(convolutions: list[list[int]], side: int) -> None:
    assert torso("cnn", [spaces.Box(0, 255, (2, side, side), np.uint8)], convolutions=convolutions)
    with pytest.raises(ConfigError, match=f"{side} a side or more"):
        torso("cnn", [spaces.Box(0, 255, (2, side - 1, side), np.uint8)], convolutions=convolutions)


def test_cnn_names_the_kernels_that_small_images_need() -> None:
    small = spaces.Box(0, 255, (3, 16, 16), np.uint8)
    space = spaces.Dict({"camera": small, "speed": VECTOR})
    with pytest.raises(
        ConfigError, match=r"\[64, 3, 1\]\]: need images of 36 .* has Box.*; set smaller kernels"
    ) as refused:
        torso("cnn", [space])
    assert SMALL_KERNELS in str(refused.value) and SMALL_KERNELS in next(iter(overlooked(small)))
    assert torso("cnn", [space], convolutions=yaml.safe_load(SMALL_KERNELS.partition("=")[2]))


def test_cnn_refuses_small_images_of_many_channels() -> None:
    with pytest.raises(ConfigError, match="36 a side or more"):
        torso("cnn", [spaces.Box(0, 255, (64, 20, 40), np.uint8)])


def test_impala_has_the_configured_sections() -> None:
    net = torso("impala", [IMAGE], sections=[3, 7]).convolutions[0][0]
    assert net.features == 7 * 9 * 9  # 36 pixels become 18, then 9


def test_cnn_has_an_encoder_per_image_and_concatenates_the_other_inputs() -> None:
    space = spaces.Dict({"left": IMAGE, "right": IMAGE, "speed": VECTOR, "action_mask": spaces.MultiBinary(2)})
    net = torso("cnn", [space, ACTION])
    obs = {key: torch.randint(256, (4, 2, 36, 36), dtype=torch.uint8) for key in ("left", "right")}
    obs |= {"speed": torch.randn(4, 3), "action_mask": torch.ones(4, 2)}
    action, (left, right) = torch.randn(4, 2), (encoders[0] for encoders in net.convolutions)
    joined = torch.cat([left(obs["left"]), right(obs["right"]), obs["speed"], action], -1)
    torch.testing.assert_close(net(obs, action), net.stack(joined))
    assert not torch.equal(left.layers[0].weight, right.layers[0].weight)


def test_auto_torso_finds_nested_images() -> None:
    assert isinstance(torso("auto", [spaces.Dict({"a": spaces.Dict({"b": IMAGE}), "c": VECTOR})]), Cnn)
    small = spaces.Box(0, 255, (3, 20, 20), np.uint8)
    net = torso("auto", [small])
    assert isinstance(net, Mlp)
    bright = net(torch.full((1, 3, 20, 20), 255, dtype=torch.uint8))
    torch.testing.assert_close(bright, net.stack(torch.ones(1, 1200)))


@pytest.mark.parametrize(
    ("space", "is_overlooked"),
    [
        (spaces.Box(0.0, 1.0, (3, 64, 64), np.float32), True),
        (spaces.Box(0.0, 255.0, (64, 64, 3), np.float32), True),
        (spaces.Box(0, 255, (64, 64), np.uint8), True),
        (spaces.Box(0, 255, (64, 64, 5), np.uint8), True),
        (spaces.Box(0, 255, (3, 20, 20), np.uint8), True),
        (spaces.Dict({"seen": IMAGE, "unseen": spaces.Box(0.0, 1.0, (3, 64, 64), np.float32)}), True),
        (spaces.Box(0, 1, (3, 64, 64), np.uint8), False),
        (spaces.Box(0, 255, (40, 400, 3), np.uint8), False),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), False),
        (spaces.Box(-1.0, 1.0, (64, 20), np.float32), False),
        (VECTOR, False),
        (spaces.Discrete(4), False),
    ],
    ids=str,
)
def test_images_that_auto_gives_to_an_mlp_are_announced(space: Space, is_overlooked: bool) -> None:
    lines = [*overlooked(space)]
    assert len(lines) == is_overlooked
    assert all("for an mlp; images for a cnn are uint8" in line for line in lines)


@pytest.mark.parametrize("kind", [Convolutions, ResidualSections])
def test_bytes_are_scaled_to_the_pixel_range(kind: Any) -> None:
    sizes = {"init": "uniform", "convolutions": [[2, 3, 1]], "sections": [2]}
    x = torch.tensor([0.0, 127.5, 255.0])
    for pixel_range, expected in (
        ([-1.0, 1.0], [-1.0, 0.0, 1.0]),
        ([0.0, 1.0], [0.0, 0.5, 1.0]),
        ([1.0, 3.0], [1, 2, 3]),
    ):
        net = kind(IMAGE, SimpleNamespace(**sizes, pixel_range=pixel_range))
        assert net.scaled(x).tolist() == expected
    image = torch.randint(256, (1, *IMAGE.shape), dtype=torch.uint8)
    plain = kind(IMAGE, SimpleNamespace(**sizes, pixel_range=[0.0, 1.0]))
    plain.load_state_dict(net.state_dict())
    assert not torch.equal(net(image), plain(image))


@pytest.mark.parametrize("name", ["auto", "cnn", "impala", "gru"])
def test_networks_of_images_have_a_pixel_range(name: str) -> None:
    values = {"name": name} | dict(content(CONF / "network" / f"{name}.yaml"))
    values = {key: value for key, value in values.items() if key != "defaults"} | {"norm": {"name": "none"}}
    space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    net = registry.build("network", values | {"pixel_range": [-1.0, 1.0]}, [space], None)
    (pixels,) = [module for module in net.modules() if isinstance(module, Pixels)]
    assert pixels.scaled(torch.tensor(0.0)) == -1


def test_impala_equals_its_formula() -> None:
    """Compared with the formula in torch's functions; 36 pixels become 18, 9 and 5."""
    cfg = SimpleNamespace(init="orthogonal", sections=[16, 32, 32], pixel_range=[0.0, 1.0])
    net, x = ResidualSections(IMAGE, cfg), torch.randint(256, (2, 2, 36, 36), dtype=torch.uint8)
    assert net.features == 32 * 5 * 5
    y, params = (x * (1 / 255)).contiguous(memory_format=torch.channels_last), iter(net.parameters())

    def conv(y: Tensor) -> Tensor:
        return F.conv2d(y, next(params), next(params), padding=1)

    for _ in range(3):
        y = F.max_pool2d(conv(y), 3, 2, padding=1)
        for _ in range(2):
            y = y + conv(conv(y.relu()).relu())
        y = y.relu()
    torch.testing.assert_close(net(x), y.flatten(1))


def test_stacked_equals_one_network_per_parameter_vector() -> None:
    template = Head(torso("mlp", [VECTOR], members=1), 2, members=1)
    stacked, obs = Stacked(template), torch.randn(6, 3)
    params = torch.randn(3, stacked.size)
    out = stacked(obs, params)
    assert out.shape == (6, 2)
    for i in range(3):  # environments 2i and 2i + 1 belong to member i
        nn.utils.vector_to_parameters(params[i], template.parameters())
        torch.testing.assert_close(out[2 * i : 2 * i + 2], template(obs[2 * i : 2 * i + 2])[0])


def test_stacked_holds_no_weights_and_splits_dicts() -> None:
    space = spaces.Dict({"a": VECTOR, "n": spaces.Discrete(2)})
    stacked = Stacked(Head(torso("linear", [space], members=1), 2, members=1))
    assert not list(stacked.parameters()) and not stacked.state_dict()
    obs = {"a": torch.randn(4, 3), "n": torch.tensor([0, 1, 0, 1])}
    params = torch.randn(1, stacked.size)
    together, alone = stacked(obs, params.expand(4, -1)), stacked(obs, params)
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("channels", [1, 4])
def test_stacked_refuses_convolutions(channels: int) -> None:
    with pytest.raises(ConfigError, match="network"):
        Stacked(Head(torso("cnn", [IMAGE], members=1, convolutions=[[channels, 3, 2]]), 2, members=1))


def test_heads_return_the_shapes_of_their_roles() -> None:
    x, a = torch.randn(4, 3), torch.randn(4, 2)
    assert Value(torso("mlp", [VECTOR]))(x).shape == (4,)
    assert Value(torso("mlp", [VECTOR, ACTION], members=3), members=3)(x, a).shape == (3, 4)
    squashed = SquashedGaussianPolicy(torso("mlp", [VECTOR]), 2)(x)
    assert squashed.mean.shape == squashed.log_std.shape == (4, 2)
    gaussian = GaussianPolicy(torso("mlp", [VECTOR]), 2, std=0.5)(x)
    assert gaussian.log_std.exp().eq(0.5).all() and gaussian.log_std.shape == (4, 2)
    assert DiscretePolicy(torso("mlp", [VECTOR]), spaces.Discrete(5))(x).logits.shape == (4, 5)


def test_squashed_gaussian_policy_bounds_its_log_std() -> None:
    policy = SquashedGaussianPolicy(torso("mlp", [VECTOR]), 1)
    with torch.no_grad():
        policy.output.bias.copy_(torch.tensor([0.0, 50.0]))
        assert policy(torch.zeros(1, 3)).log_std.item() == 2
        policy.output.bias.copy_(torch.tensor([0.0, -50.0]))
        assert policy(torch.zeros(1, 3)).log_std.item() == -20


@pytest.mark.parametrize(("name", "obs"), [("mlp", VECTOR), ("cnn", IMAGE)])
@pytest.mark.parametrize("members", [slice(1), slice(1, 3), torch.tensor([2, 0])])
def test_head_selected_members_equal_those_of_the_ensemble(name: str, obs: Space, members: slice | Tensor) -> None:
    """Convolutional ensembles cannot evaluate single members, so they evaluate all and select."""
    head = Value(torso(name, [obs, ACTION], members=3), 3)
    inputs = [torch.as_tensor(np.stack([space.sample() for _ in range(5)])) for space in (obs, ACTION)]
    theirs = head(*inputs)[members]
    with FlopCounterMode(display=False) as counted:
        torch.testing.assert_close(head.select(members, *inputs), theirs)
    with FlopCounterMode(display=False) as all_of_them:
        head(*inputs)
    share = len(theirs) / 3 if name == "mlp" else 1
    assert counted.get_total_flops() == share * all_of_them.get_total_flops()


def test_cnn_takes_the_frames_of_stacked_colour_images_as_channels() -> None:
    stacked = spaces.Box(0, 255, (2, 36, 40, 3), np.uint8)
    net = torso("auto", [stacked])
    x = torch.randint(256, (4, 2, 36, 40, 3), dtype=torch.uint8)
    encoder = net.convolutions[0][0]
    expected = torch.cat([x[:, 0], x[:, 1]], -1).permute(0, 3, 1, 2) / 255  # [batch, frames * channels, height, width]
    for layer in encoder.layers:
        expected = F.relu(layer(expected))
    torch.testing.assert_close(encoder(x), expected.flatten(1))
    with torch.no_grad():
        torch.testing.assert_close(encoder(x), expected.flatten(1))
