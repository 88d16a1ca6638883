"""A trial that pauses at its rungs ends as a run that never pauses."""

from pathlib import Path

import pytest

import rlrun
from rlrun.snapshot.store import Store
from rlrun.sweep.runs import Runs, RunTemplate
from rlrun.sweep.scoring import Scoring
from rlrun.sweep.settings import settings
from rlrun.sweep.trials import RungJob, Trial

STEPS = [400, 800, 1200]
EVALUATED = ["trainer.total_steps=1200", "trainer.eval_every=400", "trainer.eval_episodes=1", "logger=[]",
             "algo.schedule={learning_rate: {linear: {end: 0}}}", "network.hidden=[32,32]"]  # fmt: skip
RUNS = {
    "ppo": ["env=CartPole", "env.num_envs=4", "algo.loop.rollout_steps=50"],
    "sac": ["env=Pendulum", "algo.loop.warmup_steps=200", "algo.loop.batch_size=32"],
    "dqn": ["env=CartPole", "algo.loop.warmup_steps=200", "algo.buffer.capacity=700"],
}
CASES = [(algo, seed) for algo in RUNS for seed in range(7)][:20]


@pytest.mark.parametrize(("algo", "seed"), [pytest.param(*case, marks=pytest.mark.slow) for case in CASES])
def test_trial_promoted_over_three_rungs_equals_a_straight_run(algo: str, seed: int, tmp_path: Path) -> None:
    cfg = settings({})
    template = RunTemplate([f"algo={algo}", *RUNS[algo], *EVALUATED], STEPS)
    runs = Runs(tmp_path, {"E": template}, cfg.metric, Scoring(cfg, ["E"]))
    trial = Trial(0, [], {}, ["E"], 1)
    for rung, step in enumerate(STEPS):
        job = RungJob(0, rung, "E", seed)
        found = rlrun.train(*runs.command(job, trial)[1:])
        assert found.summary["step"] >= step
        outcome = runs.outcome(job)
        assert outcome is not None and outcome.result is not None and len(outcome.result.evaluations) == rung + 1
    straight = rlrun.train(*runs.words_to_end(job, trial, tmp_path / "straight"))
    assert Store(runs.path(job)).load().digest == Store(straight.path).load().digest
