"""Writes files about a run that stopped because of a number that is not finite: last batch, norms of the weights.

Snapshots are not changed.
"""

import math

import torch
from torch import Tensor

from rlrun import files
from rlrun.core.loop import Loop
from rlrun.core.state import Optim
from rlrun.dotted import ABSENT, lookup
from rlrun.errors import printable
from rlrun.indexed import dense
from rlrun.nested import dotted
from rlrun.rundir import RunDir
from rlrun.snapshot import atomic
from rlrun.snapshot.tensors import dump

FOLDER, FACTS = "postmortem", "facts.json"
EXPLODED = 1e6  # norm of weights above which a fault elsewhere, such as in the environment, is blamed on them


def write(run: RunDir, loop: Loop, reason: str, algo: dict[str, object]) -> str:
    """Writes the folder RUN/postmortem. Returns what to print after the error, lines that begin with a line break.

    It holds the batch of the last update, and facts.json with the step and the norms of weights and Adam moments.
    algo: the section of the run's config.
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
    cause = _cause(loop, algo)
    if not cause:
        return ""
    return f"\n  {cause}; see docs/not_learning.md\n  facts: {printable(folder / FACTS)}"


def _cause(loop: Loop, algo: dict[str, object]) -> str:
    """Returns what to change if an optimiser or its weights are at fault, else ""."""
    optims = {name: module for name, module in loop.named_modules() if isinstance(module, Optim)}
    norms = {name: _norm(optim.flat) for name, optim in optims.items()}
    largest = max(norms, key=lambda name: norms[name], default="")
    is_faulty = any(optim.fault for optim in optims.values())
    if not largest or not (is_faulty or norms[largest] > EXPLODED):
        return ""
    _, *sections, attribute = largest.replace(".critic.", ".critic_update.").split(".")
    keys = [".".join([*sections, f"{attribute.removesuffix('optim')}learning_rate"]), "learning_rate"]
    known = [f"algo.{key}" for key in keys if lookup(key, algo) is not ABSENT]
    rate = "learning rate"
    if known:
        rate = known[0]
    return f"the largest weights, of {largest}, have the norm {norms[largest]:.3g}; try a lower {rate}"


def _norm(values: Tensor) -> float:
    """Returns the norm of a tensor, inf if one of its values is not finite."""
    norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
    return math.inf if math.isnan(norm) else norm


def _norms(optim: Optim) -> dict[str, float | str]:
    """Returns the norms of an optimiser's weights and moments, and its number of steps."""
    found = {"steps": float(optim.steps)}
    for name, part in (("weights", optim.flat), ("exp_avg", optim.exp_avg), ("exp_avg_sq", optim.exp_avg_sq)):
        found[name] = float(torch.linalg.vector_norm(part))
    broken = {name: str(value) for name, value in found.items() if not math.isfinite(value)}
    return found | broken  # JSON cannot represent inf and NaN
