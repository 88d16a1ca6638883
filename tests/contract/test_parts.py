"""Every combination of parts around an agent is built, learns, and resumes from disk bit for bit."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from toys import Values, equal, optims, put, small, toy, train

from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.dotted import leaves
from rlrun.run import postmortem
from rlrun.rundir import RunDir
from rlrun.testing import check_resuming, rows_until

Build = Callable[..., Loop]

PARTS = {
    "representation": "predictive",
    "goals": "categorical",
    "intrinsic": "icm",
    "entropy": "staged",
}
LEARNERS = {"ppo": "CartPole", "sac": "Pendulum"}
SUBSETS = ["+".join(name for name, wanted in zip(PARTS, chosen, strict=True) if wanted) or "none"
           for chosen in product([True, False], repeat=4)]  # fmt: skip
QUICK = (SUBSETS[0], *PARTS)  # all parts together, and each part alone; the other combinations are marked `slow`


def composed(algo: str, subset: str) -> Values:
    """Returns values composed with these parts, as a user types them on the command line."""
    words = [f"algo.{part}={PARTS[part]}" for part in subset.split("+") if part != "none"]
    values = jobs([f"algo={algo}", f"env={LEARNERS[algo]}", "preset=none", *words])[0].values
    known = dict(leaves(values))
    return put(values, small(known))


@pytest.mark.parametrize(
    "subset", [pytest.param(subset, marks=[] if subset in QUICK else pytest.mark.slow) for subset in SUBSETS]
)
@pytest.mark.parametrize("algo", LEARNERS)
def test_every_subset_of_parts_learns_and_resumes_bit_for_bit(
    algo: str, subset: str, build: Build, tmp_path: Path
) -> None:
    values = composed(algo, subset)
    loop = train(build(values), 3)
    metrics = loop.tick() or loop.tick()
    assert not any(optim.fault for _, optim in optims(loop))
    logged = {"representation": "loss/representation_obs", "intrinsic": "loss/icm_forward", "goals": None}
    expected = {logged.get(part) for part in subset.split("+")} - {None}
    assert expected <= metrics.keys()
    assert all(torch.isfinite(value) for value in metrics.values())
    check_resuming(loop, build(values, begin=False))


@pytest.mark.parametrize("algo", ["a2c", "vpg", "vtrace", "td3", "dqn", "rainbow", "discrete_sac", "ppo_lstm", "svpg"])
def test_any_policy_learner_takes_the_parts(algo: str, build: Build) -> None:
    """Rainbow has 3-step returns, which ICM's one-step forward model does not support, so it uses RND."""
    own: Values = {
        "algo.representation": composed("ppo", "representation")["algo"]["representation"],
        "algo.goals": {"name": "categorical", "num_goals": 3},
        "algo.intrinsic": toy("ppo_rnd")["algo"]["intrinsic"],
    }
    loop: Any = train(build(put(toy(algo), own)), 3)
    assert [name for name in loop.agent.spec.obs] == ["goal", "obs"]
    assert not any(optim.fault for _, optim in optims(loop))
    assert {"loss/representation_obs", "loss/rnd", "loss/bonus"} <= list(rows_until(loop.updates + 1, loop))[-1].keys()


@pytest.mark.parametrize("algo", LEARNERS)
def test_the_batch_of_a_broken_run_can_be_read_with_all_parts(algo: str, build: Build, tmp_path: Path) -> None:
    loop = train(build(composed(algo, SUBSETS[0])), 1)
    postmortem.write(RunDir(tmp_path), loop, "by a test", {})
    kept = safetensors.torch.load_file(tmp_path / postmortem.FOLDER / "batch.safetensors")
    assert loop.batch is not None and equal(kept["batch.obs.goal"], loop.batch["obs"]["goal"].contiguous())
    assert any(name.startswith("batch.training_batch.") for name in kept)
