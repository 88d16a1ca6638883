"""Writes files about a run that stopped because of a number that is not finite: last batch, norms of the weights.

Snapshots are not changed.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

from rlrun import files
from rlrun.core.loop import Loop
from rlrun.core.state import Optim
from rlrun.indexed import dense
from rlrun.nested import dotted
from rlrun.rundir import RunDir
from rlrun.snapshot import atomic
from rlrun.snapshot.tensors import dump

FOLDER, FACTS = "postmortem", "facts.json"


def write(run: RunDir, loop: Loop, reason: str) -> Path:
    """Writes the folder RUN/postmortem and returns it.

    It holds the batch of the last update, and facts.json with the step and the norms of weights and Adam moments.
    """
    folder = run.path / FOLDER
    files.make_folder(folder)
    tensors = {}
    broken = []
    for name, value in dotted("batch", dense(loop.batch or {})).items():
        if isinstance(value, Tensor):
            # a copy, because safetensors refuses tensors that share memory, such as a goal and its observation
            tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
            if not torch.isfinite(tensors[name]).all():
                broken.append(name)
    atomic.replace_file(folder / "batch.safetensors", dump(tensors))
    facts: dict[str, object] = {
        "reason": reason,
        "step": loop.steps,
        "updates": loop.updates,
        "not_finite": broken,
        "optimisers": {name: _norms(module) for name, module in loop.named_modules() if isinstance(module, Optim)},
    }
    run.write_json(f"{FOLDER}/{FACTS}", facts)
    return folder


def _norms(optim: Optim) -> dict[str, float | str]:
    """Returns the norms of an optimiser's weights and moments, and its number of steps."""
    found = {"steps": float(optim.steps)}
    for name, part in (("weights", optim.flat), ("exp_avg", optim.exp_avg), ("exp_avg_sq", optim.exp_avg_sq)):
        found[name] = float(torch.linalg.vector_norm(part))
    broken = {name: str(value) for name, value in found.items() if not math.isfinite(value)}
    return found | broken  # JSON cannot represent inf and NaN
