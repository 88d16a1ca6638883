"""Algorithms, parts and networks that a script or a notebook cell registers are found by their names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import rlrun
from rlrun.addons.rewards.intrinsic.model import Intrinsic
from rlrun.agents.policy.ppo import PPO
from rlrun.buffers.replay import Replay
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.agent import Agent
from rlrun.errors import ConfigError
from rlrun.settings import PositiveFloat, config, register, registry

SMALL = ["env=CartPole", "env.num_envs=2", "algo.loop.rollout_steps=16", "trainer.eval_episodes=0",
         "network.hidden=[8]", "trainer.engine=eager", "logger=[]"]  # fmt: skip


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    """Removes the classes of `__main__` after a test."""
    yield
    for classes in registry._registry.values():
        for name in [name for name, cls in classes.items() if cls.__module__ == "__main__"]:
            classes.pop(name)


def spo(penalty: float = 0.25) -> Any:
    """The class as a cell defines it; a cell that is executed again defines it anew."""

    class SPO(PPO):
        __module__, __qualname__ = "__main__", "SPO"

        @config
        class Config(PPO.Config):
            penalty: float = 0.25

        def policy_loss(self, log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, weight: Tensor) -> Any:
            loss, metrics = super().policy_loss(log_prob, log_ratio, advantage, weight)
            return loss + self.cfg.penalty * (log_ratio**2).mean(), metrics  # type: ignore[attr-defined]

    for field in SPO.Config.__dataclass_fields__.values():  # type: ignore[attr-defined]
        if field.name == "penalty":
            field.default = penalty
    return register("algo", "nbspo")(SPO)


def composed(*words: str) -> dict[str, Any]:
    (job,) = jobs([*words])
    return job.values


def test_algorithm_of_a_cell_has_the_settings_and_the_preset_of_its_base(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="algo=nbspo: unknown name"):
        composed("algo=nbspo", *SMALL)
    spo()
    own, base = composed("algo=nbspo", *SMALL), composed("algo=ppo", *SMALL)
    assert own["algo"] == base["algo"] | {"name": "nbspo", "penalty": 0.25}
    assert own["preset"] == base["preset"] == "ppo-CartPole"
    spo(0.75)
    assert composed("algo=nbspo", *SMALL)["algo"]["penalty"] == 0.75
    with pytest.raises(ConfigError, match=r"algo\.penalti: unknown key; did you mean algo\.penalty\?"):
        composed("algo=nbspo", *SMALL, "algo.penalti=1")
    run = rlrun.train("algo=nbspo", *SMALL, "trainer.total_steps=32", "algo.penalty=0.5", run_dir=tmp_path / "run")
    assert run.resume(total_steps=64).summary["step"] == 64
    assert type(run.load().agent).__name__ == "SPO"


def test_folder_without_yaml_is_refused_beside_an_algorithm_of_a_cell(tmp_path: Path) -> None:
    spo()
    with pytest.raises(ConfigError, match=r"^--config-dir: .* has no YAML file"):
        composed("algo=nbspo", *SMALL, f"--config-dir={tmp_path}")


def test_run_of_an_algorithm_of_a_cell_is_refused_elsewhere_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spo()
    run = rlrun.train("algo=nbspo", *SMALL, "trainer.total_steps=32", run_dir=tmp_path / "run")
    registry._registry["algo"].pop("nbspo")
    assert main(["resume", str(run.path), "total_steps=64"]) == 2
    assert "error: algo: unknown name 'nbspo'" in capsys.readouterr().err


def test_algorithm_of_a_cell_may_choose_its_loop() -> None:
    @register("algo", "nbown")
    class Own(Agent):
        __module__, __qualname__ = "__main__", "Own"
        loop = {"name": "onpolicy", "rollout_steps": 8}  # noqa: RUF012

        @config
        class Config:
            learning_rate: PositiveFloat
            sizes: Any = None

    with pytest.raises(ConfigError, match=r"algo\.learning_rate: missing"):
        composed("algo=nbown", "env=CartPole")
    found = composed("algo=nbown", "env=CartPole", "algo.learning_rate=0.1")["algo"]
    assert found["loop"]["rollout_steps"] == 8 and found["learning_rate"] == 0.1 and found["sizes"] is None
    Own.loop = {"name": "onpolici"}
    with pytest.raises(ConfigError, match="onpolici: unknown name; did you mean onpolicy"):
        composed("algo=nbown", "env=CartPole", "algo.learning_rate=0.1")
    del Own.loop
    with pytest.raises(
        ConfigError, match=r"^algo=nbown: class Own needs its loop, .* or a shipped algorithm as its base"
    ):
        composed("algo=nbown", "env=CartPole", "algo.learning_rate=0.1")


def test_buffer_of_a_cell_has_the_settings_of_its_base_class() -> None:
    @register("buffer", "nbbuffer")
    class Recent(Replay):
        __module__, __qualname__ = "__main__", "Recent"

        @config
        class Config(Replay.Config):
            power: float = 2.0

    shipped = composed("algo=dqn", "env=CartPole")["algo"]["buffer"]
    found = composed("algo=dqn", "env=CartPole", "algo.buffer=nbbuffer")["algo"]["buffer"]
    assert found == shipped | {"name": "nbbuffer", "power": 2.0}


def test_intrinsic_reward_of_a_cell_has_the_settings_of_all_intrinsic_rewards() -> None:
    @register("intrinsic", "nbbonus")
    class Bonus(Intrinsic):
        __module__, __qualname__ = "__main__", "Bonus"

    shipped = composed("algo=dqn", "env=CartPole", "algo.intrinsic=icm")["algo"]["intrinsic"]
    del shipped["forward_coef"]
    found = composed("algo=dqn", "env=CartPole", "algo.intrinsic=nbbonus")["algo"]["intrinsic"]
    assert found == shipped | {"name": "nbbonus"}


def test_network_of_a_cell_is_found() -> None:
    @register("network", "nbnet")
    class Net(nn.Module):
        __module__, __qualname__ = "__main__", "Net"

        @config
        class Config:
            width: int = 7

    assert composed("algo=ppo", "env=CartPole", "network=nbnet")["network"] == {
        "name": "nbnet", "width": 7, "actor": {}, "critic": {},
    }  # fmt: skip
    Net.Config = None  # type: ignore[misc, assignment]
    with pytest.raises(ConfigError, match=r"^network=nbnet: class Net needs an inner class Config$"):
        composed("algo=ppo", "env=CartPole", "network=nbnet")
