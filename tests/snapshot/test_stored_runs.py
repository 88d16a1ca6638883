"""Runs of earlier versions that were killed: resumed now, they end as with the earlier version."""

import json
import tarfile
from pathlib import Path
from typing import Any

import make_fixtures
import numpy as np
import pytest
import torch
from bits.run_difference import Outcome, outcome, run_difference

from rlrun.cli import main
from rlrun.engine.hardware_profile import cpu_name
from rlrun.rundir import META

ARCHIVES = sorted(make_fixtures.FOLDER.glob("format_*/runs/*.tar.xz"))
TOLERANCE = 1e-3  # relative and absolute tolerance, because other CPUs or versions round differently


def test_every_family_has_a_stored_run() -> None:
    assert {path.name.removesuffix(".tar.xz") for path in ARCHIVES} == make_fixtures.FAMILIES.keys()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parts[-3]}-{path.name.partition('.')[0]}")
def test_stored_run_resumes_and_ends_as_the_uninterrupted_run(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    killed, alone = tmp_path / make_fixtures.KILLED, tmp_path / make_fixtures.ALONE
    assert main(["resume", str(killed)]) == 0
    if is_exact(killed):
        assert run_difference(alone, killed) == ""
    else:
        assert_close(outcome(alone), outcome(killed))


def is_exact(run: Path) -> bool:
    """Whether a resumed run must have the bits of the undisturbed run: its verdict is exact, and the CPU is the same
    model, because libraries for matrix products choose their code by the model."""
    meta = json.loads((run / META).read_text())
    return bool(meta["resumed"][-1]["verdict"] == "exact" and meta[make_fixtures.CPU] == cpu_name())


def assert_close(expected: Outcome, found: Outcome) -> None:
    """Checks for equal keys and paths, and numbers within the tolerance. Rings are stored as hashes only."""
    assert [row.keys() for row in found.rows] == [row.keys() for row in expected.rows]
    for row, other in zip(found.rows, expected.rows, strict=True):
        assert row == pytest.approx(other, rel=TOLERANCE, abs=TOLERANCE)
    assert found.state.keys() == expected.state.keys()
    for path, value in found.state.items():
        if isinstance(value, torch.Tensor | np.ndarray | float):
            torch.testing.assert_close(
                numbers(value), numbers(expected.state[path]), rtol=TOLERANCE, atol=TOLERANCE, msg=path
            )


def numbers(value: Any) -> torch.Tensor:
    """Any numbers or truth values as a tensor of floats."""
    return torch.as_tensor(value).double()
