"""Snapshots of which only a part is read: evaluation without critics, and `init_from` of parts and add-ons by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import BY_FAMILY, equal, toy, train

import rlrun
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.loop import Loop
from rlrun.run.assemble import eval_env
from rlrun.run.evaluation import evaluate
from rlrun.run.lifecycle import build_new
from rlrun.run.weights import ADDONS, load_acting, names_outside, read_by_acting
from rlrun.snapshot.store import Store

Build = Callable[..., Loop]
SMALL = ["algo=sac", "env=Pendulum", "preset=none", "network.hidden=[8]", "trainer.eval_episodes=0", "logger=[]",
         "algo.loop.warmup_steps=10", "algo.loop.batch_size=4", "trainer.total_steps=20"]  # fmt: skip


def read_alone(loop: Loop) -> dict[str, Any]:
    """Returns the state of agent and add-ons that acting reads."""
    state = {}
    read = read_by_acting(loop.agent, loop.addons)
    for part, prefix in ((loop.agent, "agent"), (loop.addons, ADDONS)):
        unread = names_outside(part, prefix, read)
        names = part.state_dict(prefix=f"{prefix}.")
        state |= {name: value for name, value in names.items() if name not in unread}
    return state


@pytest.mark.parametrize("algo", BY_FAMILY)
def test_what_acting_reads_is_enough_to_evaluate(algo: str, build: Build) -> None:
    """Everything else, such as critics, is missing in the snapshot, and NaN after it was loaded."""
    loop: Any = train(build(toy(algo)), 2)
    fresh: Any = build(toy(algo), begin=False)
    for weight in (*fresh.agent.parameters(), *fresh.addons.parameters()):
        weight.detach().add_(1.0)
    load_acting(fresh.agent, fresh.addons, read_alone(loop))
    returns = []
    for part in (loop, fresh):
        env = eval_env(run_config(toy(algo)), 3, "eval", 3, torch.device("cpu"))
        returns.append(evaluate(part.agent, part.addons, env, 3)["eval/return_mean"])
        env.close()
    assert returns[0] == returns[1]


def test_weights_that_a_snapshot_lacks_are_nan(build: Build) -> None:
    loop: Any = build(toy("sac"))
    fresh: Any = build(toy("sac", seed=7), begin=False)
    state = read_alone(loop)
    assert {name.split(".")[1] for name in state} == {"actor"}
    load_acting(fresh.agent, fresh.addons, state)
    assert all(weight.isnan().all() for weight in fresh.agent.critic.parameters())
    assert all(map(torch.equal, fresh.agent.actor.parameters(), loop.agent.actor.parameters()))


def stripped(run: Path, lacks: str) -> None:
    """Removes the entries whose names begin with `lacks` from the latest snapshot."""
    store = Store(run, keep=1)
    snapshot = store.load(store.names()[-1])
    state = {name: value for name, value in snapshot.state.items() if not name.startswith(lacks)}
    assert len(state) < len(snapshot.state)
    state = {name: value for name, value in state.items() if name.startswith(("agent.", "addons."))}
    store.save(store.names(), state, {}, snapshot.header, snapshot.clocks)
    store.close()


def test_a_run_without_critics_is_evaluated_and_one_without_its_actor_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rlrun.train(*SMALL, run_dir=str(tmp_path / "run")).path
    before = rlrun.load(run).act(torch.tensor([1.0, 0.0, 2.0]).numpy())
    stripped(run, "agent.critic.")
    assert rlrun.load(run).act(torch.tensor([1.0, 0.0, 2.0]).numpy()) == before
    assert main(["eval", str(run), "episodes=1"]) == 0
    capsys.readouterr()
    stripped(run, "agent.actor.")
    assert main(["eval", str(run), "episodes=1"]) == 2
    error = capsys.readouterr().err
    assert "agent.actor." in error and "is missing there" in error and error.count("\n") == 1


REPRESENTATION = ["algo.representation=predictive", "algo.representation.latent=4", "algo.representation.hidden=[8]"]


def loaded(*words: str) -> Any:
    """Returns the new loop of a run."""
    _, loop = build_new(run_config(jobs([*SMALL, *words])[0].values))
    loop.env.close()
    return loop


def test_add_ons_and_parts_start_from_runs_by_name(tmp_path: Path) -> None:
    """Add-ons are found by the section of the config that they are built from, at whatever position they stand."""
    predicting, both = tmp_path / "predicting", tmp_path / "both"
    rlrun.train(*SMALL, *REPRESENTATION, "env.normalize=obs", "seed=1", run_dir=str(predicting))
    rlrun.train(*SMALL, "env.normalize=both", "seed=2", run_dir=str(both))
    chosen = f"init_from={{addons.representation: {predicting}, agent.actor: {predicting}, addons.normalize: {both}}}"
    words = [*REPRESENTATION, "env.normalize=both"]
    loop, fresh = loaded(*words, chosen), loaded(*words)
    assert loop.addons.sections == ["normalize", "normalize", "representation"]
    there, of_both = (Store(run).load().state for run in (predicting, both))
    origins = {"addons.0.": of_both, "addons.1.": of_both, "addons.2.": there, "agent.actor.": there}
    others = 0
    for name, value in loop.state_dict().items():
        if "_extra_state" not in name and ".optim." not in name and name.startswith(("agent.", "addons.")):
            origin = next((state for prefix, state in origins.items() if name.startswith(prefix)), None)
            if origin is None:
                others += 1
                assert equal(value, fresh.state_dict()[name])
            else:
                there_name = name.replace("addons.2.", "addons.1.")
                assert equal(value, origin[there_name]), name
    assert others
    part = f"init_from={{addons.representation.encoder: {predicting}}}"
    of_part = loaded(*words, part).addons[2]
    assert equal([*of_part.encoder.parameters()], [*loop.addons[2].encoder.parameters()])
    assert not equal([*of_part.decoders.parameters()], [*loop.addons[2].decoders.parameters()])


def test_a_resume_keeps_what_training_made_of_a_preloaded_part(tmp_path: Path) -> None:
    source, run = tmp_path / "source", tmp_path / "run"
    rlrun.train(*SMALL, "seed=1", run_dir=str(source))
    half = rlrun.train(*SMALL, f"init_from={{actor: {source}}}", "trainer.stop_at=15", run_dir=str(run))
    straight = rlrun.train(*SMALL, f"init_from={{actor: {source}}}", run_dir=str(tmp_path / "straight"))
    half.resume()
    assert equal(*({name: state[name] for name in state if name.startswith("agent.actor")}
                   for state in (Store(half.path).load().state, Store(straight.path).load().state)))  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["addons.goals: {run}"],
            "addons.goals stands for 0 add-ons here and addons.goals for 0 there (",
        ),
        (
            ["addons.normalize: {run}", "env.normalize=both"],
            "addons.normalize stands for 2 add-ons here and",
        ),
        (["addons.normalize.momentum: {run}"], "the add-on has no part momentum"),
        (["agent.acter: {run}"], "the agent has no acter (it has: actor"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    rlrun.train(*SMALL, "env.normalize=obs", run_dir=str(source))
    chosen = "init_from={" + words[0].format(run=source) + "}"
    capsys.readouterr()
    assert main(["train", *SMALL, "env.normalize=obs", *words[1:], chosen, f"run_dir={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert f"error: init_from={source}: {message}" in error and error.count("\n") == 1
