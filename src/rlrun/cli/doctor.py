"""Implements `rlrun doctor`, which prints the versions and hardware of this installation and its problems."""

import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from rlrun import __version__
from rlrun.cli import learning_check
from rlrun.config import sources
from rlrun.errors import ConfigError
from rlrun.imports import EXTRAS
from rlrun.operating_system import usable_cpus

HELP = """\
usage: rlrun doctor [--learn] [--probe]

Prints versions, devices, the number of threads, the matmul backend, the effect of trainer.engine=auto, and the
installed extras; then lists problems. The exit code is 1 if there are problems.

  --learn  first train three agents for half a minute, and report a problem if one of them does not learn
  --probe  first measure which engine, matmul backend and number of threads are fastest on this machine, which takes a
           minute or two. The result is saved in $XDG_CONFIG_HOME/rlrun/machine.json (~/.config/rlrun/machine.json if
           XDG_CONFIG_HOME is unset), and new runs on this machine with trainer.engine=auto use it. Their results may
           then differ in the last bits from those of other runs. Delete the file to restore the defaults."""

OPTIONS = ("--learn", "--probe")
TAKES_RUNS = False
PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "hydra-core", "omegaconf", "pydantic", "safetensors")


def doctor(words: Sequence[str]) -> int:
    """Runs the command with these arguments. Returns the exit code, which is 1 if there are problems."""
    if words and words[0] in ("--help", "-h"):
        print(HELP)
        return 0
    if unknown := [word for word in words if word not in OPTIONS]:
        raise ConfigError(f"{' '.join(unknown)}: rlrun doctor accepts only {' and '.join(OPTIONS)}")
    if "--probe" in words:
        _probe()
    problems = [*_unmet("rlrun"), *_unmet("hydra-core"), *_configs()]
    if "--learn" in words:
        problems += learning_check.problems()
    rows = [("rlrun", __version__), ("python", f"{platform.python_version()} ({sys.executable})")]
    rows += [(name, _version(name) or "missing") for name in PACKAGES]
    try:
        rows += _hardware()
    except ImportError as error:
        problems.append(f"torch cannot be imported: {error}")
    rows += map(_extra, EXTRAS)
    for name, value in rows:
        print(f"{name:12} {value}")
    if not problems:
        verdict = "no problems found"
        if "--learn" in words:
            verdict += "; this installation learns"
        print(verdict)
        return 0
    for problem in problems:
        print(f"problem: {problem}")
    print(f"{len(problems)} problem{'s' * (len(problems) != 1)}")
    return 1


def _hardware() -> Iterator[tuple[str, str]]:
    import torch

    from rlrun.engine import about

    yield "threads", f"1 by default (trainer.threads); {usable_cpus()} CPUs are available"
    yield from about()
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        yield f"cuda:{index}", f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
    if not torch.cuda.is_available():
        yield "cuda", "none"


def _probe() -> None:
    """Measures this machine and prints the results. Saves them unless other programs affected them."""
    from rlrun.bench import doctor_probe
    from rlrun.bench.probe import MachineProbe

    print("measuring for a minute or two; do not run other programs meanwhile", flush=True)
    before = MachineProbe.take()
    profile = doctor_probe.probe()
    for name, value in profile.measured.items():
        print(f"{name:32} {value:12,.1f}")
    if MachineProbe.unsteady([before, MachineProbe.take()]):
        print("not saved: other programs affected the measurements; probe again when the machine is idle\n")
    else:
        print(f"saved in {profile.save()}\n")


def _unmet(package: str) -> Iterator[str]:
    """Yields one line for each requirement of a package that is missing or has a wrong version; extras do not count."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(line) for line in requires(package) or ()]
    except PackageNotFoundError:
        return  # rlrun runs from a checkout without being installed
    for requirement in wanted:
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        have = _version(requirement.name)
        if have is None:
            yield f"{package} needs {requirement.name}{requirement.specifier}, which is missing"
        elif not requirement.specifier.contains(have, prereleases=True):
            yield f"{package} needs {requirement.name}{requirement.specifier}, found {have}"


def _configs() -> Iterator[str]:
    """Yields a line if the YAML files of rlrun are missing."""
    if not (sources.CONF / "train.yaml").is_file():
        yield f"{sources.CONF} contains no configs; reinstall rlrun"


def _extra(name: str) -> tuple[str, str]:
    """Returns the name of an extra, and "yes" if it is installed, else the command that installs it."""
    if all(map(find_spec, EXTRAS[name])):
        return name, "yes"
    return name, f"no: pip install 'rlrun[{name}]'"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
