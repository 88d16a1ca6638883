"""Settings of one algorithm in a grid: which jobs have them, which words the jobs store, and every error message."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from own_files import forget

from rlrun.cli import main
from rlrun.config.jobs import Job, jobs
from rlrun.errors import ConfigError

PAIR = ["algo=ppo,sac", "env=Pendulum"]
ALGO = """
from rlrun.agents.policy.ppo import PPO
from rlrun.settings import config, register

@register("algo", "file_spo")
class SPO(PPO):
    @config
    class Config(PPO.Config):
        penalty: float = 0.5
"""
NETWORK = """
from rlrun.settings import config, register

@register("network", "file_net")
class Net:
    @config
    class Config:
        width: int = 8
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("file_spo.py").write_text(ALGO)
    Path("file_net.py").write_text(NETWORK)
    Path("file_both.py").write_text(ALGO.replace("file_spo", "file_both") + NETWORK.replace("file_net", "file_wide"))
    yield
    forget()


def grid(*words: str) -> list[Job]:
    return jobs([*PAIR, *words], multirun=True)


def words_of(*words: str) -> list[str]:
    """Returns the words of the jobs of a grid without the environment."""
    return [" ".join(word for word in job.words if word != "env=Pendulum") for job in grid(*words)]


def faults(*words: str, multirun: bool = True) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        jobs(list(words), multirun)
    return list(caught.value.faults)


def test_setting_of_an_algorithm_reaches_its_jobs_alone_and_its_values_vary_last() -> None:
    found = grid("sac.algo.loop.updates_per_step=0.25,0.5", "seed=0,1", "ppo.env.num_envs=3")
    assert [" ".join(job.words) for job in found] == [
        "algo=ppo env=Pendulum seed=0 env.num_envs=3",
        "algo=ppo env=Pendulum seed=1 env.num_envs=3",
        "algo=sac env=Pendulum seed=0 algo.loop.updates_per_step=0.25",
        "algo=sac env=Pendulum seed=0 algo.loop.updates_per_step=0.5",
        "algo=sac env=Pendulum seed=1 algo.loop.updates_per_step=0.25",
        "algo=sac env=Pendulum seed=1 algo.loop.updates_per_step=0.5",
    ]
    for job in found:
        (single,) = jobs(job.words)
        assert single == job, "the stored words train the same run"
    assert [job.values["env"]["num_envs"] for job in found[::2]] == [3, 1, 1]


def test_setting_of_an_algorithm_replaces_that_of_all() -> None:
    assert words_of("seed=0,1", "algo.gamma=0.9", "ppo.algo.gamma=0.5,0.6", "sac.seed=7") == [
        "algo=ppo seed=0 algo.gamma=0.5",
        "algo=ppo seed=0 algo.gamma=0.6",
        "algo=ppo seed=1 algo.gamma=0.5",
        "algo=ppo seed=1 algo.gamma=0.6",
        "algo=sac algo.gamma=0.9 seed=7",
    ]
    assert words_of("total_steps=9", "ppo.trainer.total_steps=5") == [
        "algo=ppo trainer.total_steps=5",
        "algo=sac trainer.total_steps=9",
    ]


def test_jobs_that_are_typed_twice_run_twice() -> None:
    ppo, sac = "algo=ppo seed=0 algo.gamma=0.9", "algo=sac seed=0"
    assert words_of("seed=0,0", "ppo.algo.gamma=0.9") == [ppo, ppo, sac, sac]


def test_algorithm_has_choices_of_its_own() -> None:
    ppo, sac = grid("network=mlp", "ppo.network=cnn", "sac.algo.buffer=prioritized", "+ppo.preset=none")
    assert (ppo.values["network"]["name"], sac.values["network"]["name"]) == ("cnn", "mlp")
    assert sac.values["algo"]["buffer"]["name"] == "prioritized"
    assert (ppo.values["preset"], sac.values["preset"]) == (None, "sac-Pendulum")


def test_algorithm_may_lack_a_key_that_its_preset_sets() -> None:
    ppo, _ = grid("~ppo.algo.schedule.learning_rate")
    assert ppo.words[-1] == "~algo.schedule.learning_rate" and ppo.values["algo"]["schedule"] == {}


def test_algorithms_may_be_listed_in_the_other_forms_of_a_choice() -> None:
    found = jobs(["algo=choice(ppo,'sac')", "env=Pendulum", "ppo.seed=4"], multirun=True)
    assert [job.values["seed"] for job in found] == [4, 0]
    (single,) = jobs(["algo=ppo", "env=Pendulum", "+ppo.seed=4"], multirun=True)
    assert single.values["seed"] == 4


@pytest.mark.usefixtures("files")
def test_algorithm_of_a_file_has_settings_by_its_name() -> None:
    words = ["algo=./file_spo.py,ppo", "env=Pendulum", "file_spo.algo.penalty=2.0", "ppo.network=./file_net.py"]
    spo, ppo = jobs(words, multirun=True)
    assert spo.values["algo"]["penalty"] == 2.0 and ppo.values["network"]["name"] == "file_net"
    assert spo.words[-1] == "plugins=[./file_spo.py]" and spo.values["plugins"] == ["./file_spo.py"]
    assert ppo.words[-1] == "plugins=[./file_net.py]" and ppo.values["plugins"] == ["./file_net.py"]


@pytest.mark.usefixtures("files")
def test_job_records_typed_plugins_and_files_with_several_parts() -> None:
    words = ["algo=./file_spo.py,file_both,ppo", "env=Pendulum", "network=file_wide", "plugins=[./file_both.py]"]
    found = [job.values["plugins"] for job in jobs(words, multirun=True)]
    assert found == [["./file_both.py", "./file_spo.py"], ["./file_both.py"], ["./file_both.py"]]
    words = ["algo=./file_both.py,ppo", "env=Pendulum", "ppo.network=file_wide"]
    assert [job.values["plugins"] for job in jobs(words, multirun=True)] == [["./file_both.py"]] * 2
    words = ["algo=./file_spo.py,ppo", "env=Pendulum", "plugins=[./file_net.py]"]
    assert jobs(words, multirun=True)[1].values["plugins"] == ["./file_net.py"], "it may register more when imported"
    (_, ppo) = jobs(["algo=./file_spo.py,ppo", "env=Pendulum"], multirun=True)
    assert ppo.values["plugins"] == [] and ppo.words == ["algo=ppo", "env=Pendulum"]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("sca.algo.gamma=0.3", "sca.algo.gamma=0.3: sca is not trained here, only ppo and sac; did you mean sac?"),
        ("a2c.algo.gamma=0.3", "a2c.algo.gamma=0.3: a2c is not trained here, only ppo and sac\n"),
        ("spac.env.num_envs=3", "spac.env.num_envs=3: spac is not trained here, only ppo and sac; did you mean sac?"),
        ("a2c.gamma=0.3", "a2c.gamma=0.3: a2c is not trained here, only ppo and sac\n"),
        ("sac.algo.gama=0.3", "algo.gama: unknown key; did you mean algo.gamma? (algo=sac algo.gama=0.3)"),
        ("ppo.algo.tau=0.3", "algo.tau: unknown key (algo=ppo algo.tau=0.3)"),
        ("sac.gamma=0.3", "gamma: unknown key; did you mean algo.gamma? (algo=sac gamma=0.3)"),
        ("ppo.plugins=[x]", "ppo.plugins=[x]: plugins is a setting of all jobs; add [x] to plugins=..."),
        ("ppo.algo=sac", "ppo.algo=sac: algo is a setting of all jobs; add sac to algo=..."),
        ("ppo.submit=local", "submit=local: where a run is started is a setting of"),
        ("rollout.steps=0.3", "rollout.steps: unknown key"),
        ("env.env=3", "env.env: unknown key"),
        ("wandb.name=mine", "wandb.name: unknown key"),
    ],
)
def test_setting_that_no_job_can_have_is_one_line(word: str, line: str) -> None:
    (fault,) = faults(*PAIR, word)
    assert f"{fault}\n".startswith(line) and "\n" not in fault


@pytest.mark.parametrize(
    ("word", "line"),
    [
        (
            "ppo.algo.gamma=0.3",
            "ppo.algo.gamma=0.3: names an algorithm, as only a grid does (rlrun train -m); type algo.gamma=0.3",
        ),
        ("sac.algo.gamma=0.3,0.4", "sac.algo.gamma=0.3,0.4: sac is not trained here, only ppo"),
    ],
)
def test_single_run_and_sweep_have_no_settings_of_one_algorithm(
    word: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert faults("algo=ppo", "env=Pendulum", word, multirun=False) == [line]
    for command in ("sweep", "show"):
        if command == "sweep" or "," not in word:
            assert main([command, "algo=ppo", "env=Pendulum", word]) == 2
            assert capsys.readouterr().err == f"error: {line}\n"
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("files")
def test_single_run_reads_no_file_for_one_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    """The words of a stored sweep are composed like those of a single run."""
    for name, line in (("x", "x is not trained here, only ppo"), ("ppo", "names an algorithm, as only a grid does")):
        word = f"{name}.network=./none.py"
        assert faults("algo=ppo", "env=NoSuchThing-v0", word, multirun=False)[0].startswith(f"{word}: {line}")
