"""Exports the policy of a run: builds the program, compares it with the agent, and writes it with its metadata."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rlrun.errors import ConfigError, RlrunError
from rlrun.export.comparison import OBSERVATIONS, arrays, compare
from rlrun.export.formats import FORMATS
from rlrun.export.metadata import described
from rlrun.export.program import build, trace
from rlrun.imports import check_extra
from rlrun.run.trained import restored
from rlrun.run.weights import locate
from rlrun.snapshot.atomic import replace_file, replace_text

ROWS = 4  # number of environments in the comparison
LONGEST_NAME = 240  # bytes, so that `.json` and the prefix of a temporary file fit into the 255 of file systems
PLAIN = {"device": "cpu", "trainer.engine": "eager"}  # replaces the settings of the run


class Exported(NamedTuple):
    """An exported policy on disk."""

    path: Path
    metadata: dict[str, Any]  # the content of `path` with `.json` appended


def export(run: Path, format: str, output: Path | None = None) -> Exported:
    """Writes the policy of a run to `output` (default: RUN/policy.onnx or RUN/policy.pt2), and OUTPUT.json beside it.

    run: the folder of the run, whose best snapshot is used (else the latest), or one of its snapshots. The run may be
    untrusted. Nothing is written unless the exported policy acts as the agent does.
    Raises ConfigError, SnapshotError, and RlrunError if the file cannot be written.
    """
    chosen = FORMATS[format]
    if chosen.extra is not None:
        check_extra(chosen.extra, f"format={format}")
    folder = locate(run)[0]
    if output is None:
        output = folder / chosen.filename
    metadata_path = output.with_name(f"{output.name}.json")
    check_output(output, folder)
    with restored(run, ROWS, None, {}, changes=PLAIN) as trained, torch.no_grad():
        obs = trained.env.reset()
        policy = build(trained.agent, trained.addons, trained.env, obs)
        content = chosen.encode(trace(policy, obs))
        act = chosen.load(content)
        largest = compare(policy, act, trained.env)
        inputs = arrays(policy.first_inputs(obs))
        metadata = described(trained, chosen, inputs, act(inputs))
    metadata = {
        "file": output.name,
        "format": format,
        "sha256": hashlib.sha256(content).hexdigest(),
        "compared": {"observations": OBSERVATIONS, "largest_difference": largest},
        **metadata,
    }
    text = json.dumps(metadata, indent=2, allow_nan=False) + "\n"
    try:
        metadata_path.unlink(missing_ok=True)  # old metadata must never lie beside a new policy
        replace_file(output, [content])
        replace_text(metadata_path, text)
    except OSError as error:
        raise RlrunError(f"output={output}: cannot be written ({error.strerror})") from None
    return Exported(output, metadata)


def check_output(path: Path, run: Path) -> None:
    """Raises ConfigError if no file can be written to this path, or if it could replace a file of the run."""
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise ConfigError(f"output={path}: a name may have {LONGEST_NAME} bytes")
    if not path.parent.is_dir():
        raise ConfigError(f"output={path}: there is no folder {path.parent}")
    if path.is_dir():
        raise ConfigError(f"output={path}: is a folder; name a file in it")
    for file in (path, path.with_name(f"{path.name}.json")):
        if os.path.lexists(file) and (file.is_symlink() or not file.is_file()):
            raise ConfigError(
                f"output={path}: {file.name} is a link, a pipe or a device, which an export does not replace"
            )
    folder = path.parent.resolve()
    home = run.resolve()
    if home in folder.parents or (folder == home and path.stem != "policy"):
        raise ConfigError(
            f"output={path}: lies in the folder of the run; there it must be named policy, like policy.pt2"
        )
