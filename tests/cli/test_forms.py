"""For command lines in the form of other tools, the error message shows the equivalent rlrun command."""

import shlex

import pytest

from rlrun.cli import main
from rlrun.config.jobs import jobs

FORMS = {
    "train --algo ppo --env CartPole-v1 -n 100000": "algo=ppo env=CartPole-v1 trainer.total_steps=100000",
    "train algo ppo env CartPole": "algo=ppo env=CartPole",
    "train ppo CartPole": "algo=ppo env=CartPole",
    "ppo CartPole": "algo=ppo env=CartPole",
    "train PPO cartpole trainer=quick seed 3": "algo=ppo env=CartPole trainer=quick seed=3",
    "train algo=ppo env=CartPole --seed 1": "algo=ppo env=CartPole seed=1",
    "--algo=sac --env-id=Pendulum-v1 --learning-rate 3e-4 --total-timesteps 1e6": (
        "algo=sac env=Pendulum-v1 algo.actor_learning_rate=3e-4 trainer.total_steps=1e6"
    ),
    "train --algo dqn --env CartPole --n-steps 3 --double": "algo=dqn env=CartPole algo.n_step=3 algo.double=true",
    "train algo=cma_es env=Sphere --sigma0 0.5 device cpu": "algo=cma_es env=Sphere algo.sigma0=0.5 device=cpu",
}


@pytest.mark.parametrize(("typed", "meant"), FORMS.items())
def test_forms_translate_flags_and_bare_names(typed, meant, capsys):
    assert main(typed.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    command = line.partition("did you mean: rlrun train ")[2]
    assert command == f"{meant}?"
    assert len(jobs(shlex.split(meant))) == 1


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("--algo ppo", "no command given; did you mean: rlrun train algo=ppo env=...?"),
        ("show ppo", "settings are written key=value; did you mean: rlrun show algo=ppo?"),
        (
            "train -m ppo CartPole --seed 0,1 --num-minibatches 4 --track",
            "settings are written key=value; did you mean: rlrun train -m algo=ppo env=CartPole seed=0,1? "
            "(left out: --num-minibatches 4, --track)",
        ),
        (
            "train algo=ppo env=CartPole --env-kwargs gravity:1 seed=1",
            "unrecognized arguments: --env-kwargs (rlrun train --help)",
        ),
        ("train --fast --faster", "unrecognized arguments: --fast --faster (rlrun train --help)"),
    ],
)
def test_forms_name_words_without_translation(typed, line, capsys):
    assert main(typed.split()) == 2
    assert capsys.readouterr().err == f"error: {line}\n"
