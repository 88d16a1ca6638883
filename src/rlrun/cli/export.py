"""Implements `rlrun export`, which writes the policy of a run as a program that acts without rlrun."""

from collections.abc import Sequence
from pathlib import Path

from rlrun.cli import settings
from rlrun.errors import printable

USAGE = "rlrun export RUN [format=onnx|torch] [output=PATH] [plugins=[package]]"
HELP = f"""\
usage: {USAGE}

Writes the policy of the best snapshot (else the latest) as one file that maps raw observations to actions, with the
normalisation of observations, action masks and the scaling of actions inside. Recurrent states are inputs and outputs.
RUN is a run's folder, or one of its snapshots: RUN/snapshots/<name>.

The file is written only if it acts as the agent does on 1,000 observations of the environment. OUTPUT.json beside it
has the names, shapes and dtypes of inputs and outputs.

  format=onnx          RUN/policy.onnx, for ONNX Runtime and others; needs pip install 'rlrun[export]'
  format=torch         RUN/policy.pt2, for torch.export.load
  output=PATH          write to this file instead
  plugins=[package]    packages that the run was started with

  rlrun export runs/sac-HalfCheetah/<run>
  rlrun export runs/sac-HalfCheetah/<run> format=torch output=cheetah.pt2"""

FORMATS = ("onnx", "torch")
RULES = {
    "format": settings.ValueRule(" or ".join(FORMATS), lambda value: value in FORMATS, FORMATS),
    "output": settings.PATH,
    "plugins": settings.NAMES,
}


def export(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    places, given = settings.read(words, RULES)
    run = settings.run_folder(places, USAGE)
    output = None
    if "output" in given:
        output = Path(given["output"])
    from rlrun.export.write import export as write
    from rlrun.settings import registry

    registry.load(given.get("plugins", ()))
    written = write(run, given.get("format", "onnx"), output)
    about = written.metadata
    for group in ("inputs", "outputs"):
        for name, tensor in about[group].items():
            print(printable(f"{group.removesuffix('s'):8} {name}: {tensor['dtype']} {tensor['shape']}"))
    count = about["compared"]["observations"]
    largest = about["compared"]["largest_difference"]
    print(f"compared {count:,} observations, largest difference {largest:.2g}")
    print(printable(f"wrote    {written.path} and {written.path.name}.json"))
    return 0
