"""What is left of a run whose numbers broke: enough to see why, beside the snapshots and never over them."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlrun import files
from rlrun.core.loop import Loop
from rlrun.core.state import Optim
from rlrun.nested import dotted
from rlrun.rundir import RunDir
from rlrun.snapshot import atomic
from rlrun.snapshot.tensors import dump

FOLDER = "postmortem"


def write(run: RunDir, loop: Loop, reason: str) -> Path:
    """RUN/postmortem: the batch of the last update, the step, the norms of weights and moments. Returns the folder."""
    folder = run.path / FOLDER
    files.make_folder(folder)
    batch = {name: value for name, value in dotted("batch", loop.batch or {}).items() if isinstance(value, Tensor)}
    # parts may share their memory, a goal with the observation it stands in
    tensors = {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in batch.items()}
    atomic.replace_file(folder / "batch.safetensors", dump(tensors))
    broken = [name for name, value in tensors.items() if not torch.isfinite(value).all()]
    optims = {name: module for name, module in loop.named_modules() if isinstance(module, Optim)}
    facts: dict[str, Any] = {
        "reason": reason, "step": loop.steps, "updates": loop.updates, "not_finite": broken,
        "optimisers": {name: _norms(optim) for name, optim in optims.items()},
    }  # fmt: skip
    run.write_json(f"{FOLDER}/facts.json", facts)
    return folder


def _norms(optim: Optim) -> dict[str, float | str]:
    parts = {"weights": optim.flat, "exp_avg": optim.exp_avg, "exp_avg_sq": optim.exp_avg_sq}
    norms = {name: float(torch.linalg.vector_norm(part)) for name, part in parts.items()}
    known = {name: norm if math.isfinite(norm) else str(norm) for name, norm in norms.items()}  # JSON has no inf
    return known | {"steps": float(optim.steps)}
