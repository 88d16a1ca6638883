"""The registry: names become classes, and only the modules that are needed are imported."""

import copy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.core.addon import RewardModule
from rlrun.core.agent import Agent
from rlrun.errors import ConfigError
from rlrun.settings import config, parse, registry
from rlrun.settings.groups import GROUPS

SOURCE = Path(registry.__file__).parents[1]


@pytest.fixture
def plugin_parts() -> Iterator[None]:
    """Removes the class that a test registers."""
    yield
    for classes in registry._registry.values():
        classes.pop("of_a_test", None)


def test_registry_finds_every_register_line_of_the_source() -> None:
    files = [file for file in SOURCE.rglob("*.py") if not file.is_relative_to(SOURCE / "templates")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    written = [line for line in lines if line.startswith("@register(")]
    found = [name for group in registry.modules().values() for name in group]
    assert len(found) == len(written) > 90


def test_registered_names_are_those_that_the_modules_register() -> None:
    for group, modules in registry.modules().items():
        for name, cls in registry.registered(group).items():
            if name in modules:
                assert (cls.__module__, cls.registered) == (modules[name], name)


def test_lookup_imports_the_module_of_the_name_only() -> None:
    program = (
        "import sys\n"
        "from rlrun.settings import registry\n"
        "registry.lookup('algo', 'sac')\n"
        "print(*[name for name in sys.modules if name.startswith('rlrun.agents.')])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = run.stdout.split()
    assert "rlrun.agents.actor_critic.sac" in imported
    others = ("tabular", "bandits", "evolution", "meta", "model_based")
    assert not [name for name in imported if name.split(".")[2] in others]


def test_lookup_of_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="algo: unknown name 'sacc'; did you mean sac"):
        registry.lookup("algo", "sacc")


@pytest.mark.usefixtures("plugin_parts")
def test_registering_a_name_of_rlrun_is_refused_before_its_module_is_imported() -> None:
    with pytest.raises(ValueError, match=r"algo 'muzero' is registered twice: rlrun\.agents\.model_based\.muzero and"):

        @registry.register("algo", "muzero")
        class Mine: ...


@pytest.mark.usefixtures("plugin_parts")
def test_registering_a_name_twice_is_refused() -> None:
    @registry.register("search", "of_a_test")
    class First(nn.Module): ...

    assert registry.lookup("search", "of_a_test") is First
    assert "of_a_test" in registry.names("search")
    with pytest.raises(ValueError, match="is registered twice"):

        @registry.register("search", "of_a_test")
        class Second: ...


def test_settings_may_be_a_dataclass_with_slots() -> None:
    @dataclass(slots=True)
    class Config:
        beta: float

    assert parse(Config, {"beta": 0.5}, "algo") == Config(0.5)


@pytest.mark.parametrize(("path", "line"), [("", "bet: unknown key; did you mean beta?"),
                                            ("algo", "algo.bet: unknown key; did you mean algo.beta?")])  # fmt: skip
def test_an_unknown_key_is_followed_by_the_most_similar_one(path: str, line: str) -> None:
    @config
    class Config:
        beta: float = 1.0

    with pytest.raises(ConfigError) as refused:
        parse(Config, {"bet": 0.5}, path)
    assert str(refused.value) == line


@pytest.mark.parametrize("decorated", [config, dataclass], ids=["config", "dataclass"])
def test_settings_refuse_assignment_and_name_schedules(plugin_parts: None, decorated: Any) -> None:
    class Config:
        beta: float

    Config = decorated(Config)

    @registry.register("algo", "of_a_test")
    class Part(Agent):
        pass

    Part.Config = Config  # type: ignore[attr-defined]
    _, cfg = registry.configured("algo", "of_a_test", {"beta": 0.5}, "algo")
    with pytest.raises(FrozenInstanceError, match=r"^cfg\.beta=0\.1: .* Scheduled\[.*algo\.schedule\.beta"):
        cfg.beta = 0.1
    assert cfg.beta == 0.5 and isinstance(cfg, Config) and repr(cfg).endswith("Config(beta=0.5)")
    assert replace(cfg, beta=0.1).beta == 0.1 and copy.deepcopy(cfg) == cfg


@pytest.mark.parametrize("group", registry.modules())
def test_every_shipped_part_is_of_the_base_class_of_its_group(group: str) -> None:
    assert group in GROUPS
    for name, cls in registry.registered(group).items():
        registry.check_base(group, name, cls)


def test_part_of_another_base_class_is_refused(plugin_parts: None) -> None:
    @registry.register("intrinsic", "of_a_test")
    class Count(RewardModule): ...

    with pytest.raises(ConfigError) as refused:
        registry.lookup("intrinsic", "of_a_test")
    expected = "algo.intrinsic=of_a_test: Count is no Intrinsic (rlrun.addons.rewards.intrinsic.model)"
    assert str(refused.value) == expected


def test_part_without_the_settings_of_its_base_class_is_refused(plugin_parts: None) -> None:
    @registry.register("intrinsic", "of_a_test")
    class Count(Intrinsic):
        @config
        class Config:
            power: float = 1.0

    expected = r"algo\.intrinsic=of_a_test: Count needs the settings of Intrinsic: class Config\(Intrinsic\.Config\)"
    with pytest.raises(ConfigError, match=expected):
        registry.lookup("intrinsic", "of_a_test")
