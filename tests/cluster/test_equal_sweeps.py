"""The same sweep gives the same trials wherever its runs are started."""

import json
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from rlrun.cli import main
from rlrun.snapshot.store import Store
from rlrun.sweep import journal

WORDS = ["sweep", "algo=q_learning", "env=FrozenLake", "trainer.total_steps=400", "trainer.eval_every=200",
         "trainer.eval_episodes=2", "algo.learning_rate=log(1e-2,1)", "trials=3", "seeds=2", "order=generation",
         "order.size=3", "rungs=[0.5,1]", "prune.eta=2", "winners=1", "fresh_seeds=1"]  # fmt: skip
HERE = "submit.driver=here"
PLACES = {
    "one_worker": ["workers=1"],
    "local": ["workers=2", "submit=local"],
    "slurm": ["workers=2", "submit=slurm", HERE],
    "slurm_driver": ["workers=2", "submit=slurm"],
    "submitit_local": ["workers=2", "submit=slurm", "submit.executor=local", HERE],
    "ray": ["workers=2", "submit=ray", "submit.address=local"],
}


def table(home: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the events of a sweep, in an order that does not depend on speed, and the digests of all runs."""
    events = sorted(json.dumps(event) for event in journal.read(home / "journal.jsonl"))
    runs = [run for run in sorted((home / "trials").glob("*-s*")) if run.is_dir()]
    return events, {run.name: Store(run).load().digest for run in runs}


@pytest.mark.slow
@pytest.mark.parametrize("place", [place for place in PLACES if place != "one_worker"])
def test_sweep_does_not_depend_on_where_its_runs_are_started(place: str, slurm: FakeSlurm) -> None:
    if place == "ray":
        pytest.importorskip("ray")
    slurm.slots = 3  # a driver and two runs
    found = []
    for name in ("one_worker", place):
        assert main([*WORDS, *PLACES[name], f"name={name}"]) == 0
        home = Path("runs/sweeps", name)
        slurm.wait(lambda home=home: (home / "best.yaml").exists())  # the driver may be a job
        found.append(table(home))
    slurm.wait(lambda: "RUNNING" not in slurm.jobs().values())
    assert found[0] == found[1] and len(found[0][1]) > 4
