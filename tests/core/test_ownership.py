"""Every trained weight has one optimiser. Another may share it only by `within`."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlrun.cli import main
from rlrun.core import ownership
from rlrun.core.addon import Addon, Addons
from rlrun.core.agent import Agent
from rlrun.core.state import Optim, RMSprop, Target
from rlrun.errors import ConfigError


class Tree(Agent):
    """Three levels of modules, with a shared torso, a target network, and optimisers in a list and a dict."""

    registered = "tree"

    def __init__(self, **changed: Any):
        nn.Module.__init__(self)
        self.torso = nn.Linear(2, 2)
        self.policy = nn.Sequential(self.torso, nn.Linear(2, 1))
        self.part = Part(**changed)
        self.target = Target(self.policy, 0.1)
        self.optims = [Optim(self.policy.parameters(), 0.1)]


class Part(nn.Module):
    def __init__(self, inner: Any = Optim, extra: bool = False):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(1, 1, bias=False))
        self.by_name = {"inner": inner(self.inner.parameters(), 0.1)}
        self.frozen = nn.Linear(1, 1, bias=False).requires_grad_(False)
        if extra:
            self.extra = nn.Linear(3, 1)


class Bonus(Addon):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 1, bias=False)
        self._adam = torch.optim.Adam(self.head.parameters())


def test_owners_of_a_tree_of_three_levels_are_found() -> None:
    found = ownership.weights(Tree(), Addons([Bonus()]))
    assert [(weight.names, weight.shape, weight.is_trained, weight.optimisers) for weight in found] == [
        (["agent.torso.weight", "agent.policy.0.weight"], (2, 2), True, ["agent.optims.0"]),
        (["agent.torso.bias", "agent.policy.0.bias"], (2,), True, ["agent.optims.0"]),
        (["agent.policy.1.weight"], (1, 2), True, ["agent.optims.0"]),
        (["agent.policy.1.bias"], (1,), True, ["agent.optims.0"]),
        (["agent.part.inner.0.weight"], (1, 1), True, ["agent.part.by_name.inner"]),
        (["addons.0.head.weight"], (1, 1), True, ["addons.0._adam"]),
        (["agent.part.frozen.weight"], (1, 1), False, []),
        (["agent.target.module.0.weight"], (2, 2), False, []),
        (["agent.target.module.0.bias"], (2,), False, []),
        (["agent.target.module.1.weight"], (1, 2), False, []),
        (["agent.target.module.1.bias"], (1,), False, []),
    ]  # fmt: skip
    assert all(weight.owners == weight.optimisers for weight in found)
    ownership.check(Tree(), Addons([Bonus()]))
    assert ownership.untrained(Tree(), Addons([Bonus()])) == ""


def test_two_optimisers_of_one_weight_are_refused_unless_one_lies_within_the_other() -> None:
    agent = Tree()
    agent.second = torch.optim.SGD(agent.torso.parameters(), 0.1)
    line = (
        "algo=tree: agent.optims.0 and agent.second train agent.torso.weight, agent.torso.bias; give every weight "
        "to one optimiser, or make one with within=<the other>"
    )
    with pytest.raises(ConfigError) as refused:
        ownership.check(agent, Addons())
    assert refused.value.faults == (line,)
    within = Tree()
    within.second = Optim(within.torso.parameters(), 0.1, within=within.optims[0])
    within.third = Optim([within.torso.bias], 0.1, within=within.second)
    ownership.check(within, Addons())
    assert ownership.weights(within, Addons())[1].optimisers == ["agent.optims.0", "agent.second", "agent.third"]


def test_an_optimiser_that_is_kept_in_two_places_is_one_owner() -> None:
    agent = Tree()
    agent.kept = (agent.optims[0], agent.part.by_name)
    ownership.check(agent, Addons())
    assert all(len(weight.owners) <= 1 for weight in ownership.weights(agent, Addons()))


def test_weights_without_an_optimiser_are_named() -> None:
    agent = Tree(extra=True, inner=lambda params, rate: None)
    assert ownership.untrained(agent, Addons()) == (
        "no optimiser trains agent.part.inner.0.weight, agent.part.extra.weight, agent.part.extra.bias; if that is so "
        "on purpose, set requires_grad_(False)"
    )
    agent.part.more = nn.Linear(1, 1)
    assert "agent.part.extra.bias, 2 more; if" in ownership.untrained(agent, Addons())


def losses(net: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    return net(x).square().mean(), net[0](x).sin().mean()


@pytest.mark.parametrize(("kind", "torchs"), [(Optim, torch.optim.Adam), (RMSprop, torch.optim.RMSprop)])
def test_an_optimiser_within_another_steps_the_same_weights_as_two_of_torch(kind: Any, torchs: Any) -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    theirs = copy.deepcopy(ours)
    options = {} if kind is Optim else {"alpha": 0.99, "eps": 1e-8}
    outer = kind([*ours[1].parameters(), *ours[0].parameters()], 0.01)
    inner = kind(ours[0].parameters(), 0.03, within=outer)
    pair = torchs(theirs.parameters(), 0.01, **options), torchs(theirs[0].parameters(), 0.03, **options)
    for step in range(3):
        x = torch.randn(5, 3)
        for index, (mine, other) in enumerate(zip((outer, inner), pair, strict=True)):
            mine.step(losses(ours, x)[index])
            other.zero_grad()
            losses(theirs, x)[index].backward()
            other.step()
        for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, two, atol=1e-6, rtol=0, msg=f"step {step}")
    assert [*nn.ModuleDict({"outer": outer, "inner": inner}).state_dict()] == [
        f"{name}.{key}"
        for name in ("outer", "inner")
        for key in ("exp_avg", "exp_avg_sq", "steps", "learning_rate", "fault")
    ], "the state of each once"


def test_optimisers_within_others_resume_bit_for_bit() -> None:
    def build() -> nn.Module:
        torch.manual_seed(0)
        made = nn.Module()
        made.net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        made.outer = Optim(made.net.parameters(), 0.01)
        made.inner = Optim(made.net[0].parameters(), 0.03, within=made.outer)
        return made

    def train(made: Any, first: int, last: int) -> None:
        for step in range(first, last):
            x = torch.full((2, 3), 0.1 * step)
            for optim, loss in zip((made.outer, made.inner), (0, 1), strict=True):
                optim.step(losses(made.net, x)[loss])

    straight, stopped, resumed = build(), build(), build()
    train(straight, 0, 6)
    train(stopped, 0, 3)
    resumed.load_state_dict(stopped.state_dict())
    train(resumed, 3, 6)
    for key, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


@pytest.mark.parametrize("order", [(1, 0), (0, 2)])
def test_parameters_that_are_no_neighbours_cannot_lie_within(order: tuple[int, int]) -> None:
    params = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    outer = Optim(params, 0.1)
    with pytest.raises(ValueError, match="must be neighbours, in the same order"):
        Optim([params[index] for index in order], 0.1, within=outer)


def test_show_prints_the_weights_with_their_optimisers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["show", "algo=dqn", "env=CartPole", "network.hidden=[8]", "algo.buffer.capacity=100"]
    assert main([*words, "weights=true"]) == 0
    header, first, *_, last = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert header == ["weight", "shape", "numbers", "optimiser"]
    assert first == ["agent.q.torso.stack.layers.0.weight", "[4,", "8]", "32", "agent.optim"]
    assert last == ["all", str(2 * (4 * 8 + 8 + 8 * 2 + 2))]
    assert main([*words, "weights=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[0] == {
        "names": ["agent.q.torso.stack.layers.0.weight"], "shape": [4, 8], "is_trained": True,
        "optimisers": ["agent.optim"], "owners": ["agent.optim"],
    }  # fmt: skip
    assert [entry["is_trained"] for entry in found] == [True] * 4 + [False] * 4
    assert main(["show", "algo=dqn,sac", "env=CartPole", "weights=true"]) == 2
    assert "several values; rlrun show prints one config" in capsys.readouterr().err


MINE = """
from torch import nn
from rlrun.agents.value.dqn import DQN
from rlrun.core.state import Optim
from rlrun.settings import register

@register("algo", "{name}")
class Mine(DQN):
    def __init__(self, cfg, spec, parts):
        super().__init__(cfg, spec, parts)
        {line}
"""


@pytest.mark.parametrize(
    ("name", "line", "code", "said"),
    [
        (
            "two",
            "self.second = Optim(self.q.parameters(), 0.1)",
            2,
            "algo=two: agent.optim and agent.second train",
        ),
        (
            "none",
            "self.more = nn.Linear(1, 1)",
            0,
            "no optimiser trains agent.more.weight, agent.more.bias; if that is so",
        ),
        ("frozen", "self.more = nn.Linear(1, 1).requires_grad_(False)", 0, ""),
    ],
)
def test_a_plug_in_is_told_about_weights_with_two_optimisers_or_none(
    name: str,
    line: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text(MINE.format(name=name, line=line))
    (tmp_path / f"{name}.yaml").write_text(f"defaults: [dqn, _self_]\nalgo:\n  name: {name}\n")
    words = [f"algo=./{name}.py", "env=CartPole", "network.hidden=[4]", "total_steps=20", "trainer.eval_every=0"]
    assert main(["train", *words, "logger=[console]", "algo.buffer.capacity=100", "run_dir=run"]) == code
    out, err = capsys.readouterr()
    assert ("optimiser" in out + err) == bool(said)
    assert (out + err).count(said or "step") >= 1
    assert (tmp_path / "run").exists() == (code == 0)
