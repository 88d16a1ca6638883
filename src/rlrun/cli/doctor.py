"""`rlrun doctor`: the versions and hardware of this installation, and its problems."""

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from rlrun import __version__
from rlrun.config import sources
from rlrun.errors import ConfigError
from rlrun.imports import EXTRAS

HELP = """\
usage: rlrun doctor [--probe]

Prints versions, devices, threads, the path of matrix products, what trainer.engine=auto will do, and extras; then what
is wrong. Exit code 1 when something is.

  --probe  measure this machine first, a minute or two: which engine, product path and number of threads are fastest.
           trainer.engine=auto follows what is found in runs that begin on this machine; their last bits may then differ
           from those of others. It is kept in rlrun/machine.json under XDG_CONFIG_HOME, else ~/.config: delete it, and
           all is as before."""

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "hydra-core", "omegaconf", "pydantic", "safetensors")


def doctor(words: Sequence[str]) -> int:
    """Run the command. Returns the exit code: 1 if there are problems."""
    if words and words[0] in ("--help", "-h"):
        print(HELP)
        return 0
    if list(words) not in ([], ["--probe"]):
        raise ConfigError(f"{' '.join(words)}: rlrun doctor knows --probe alone")
    if words:
        _probe()
    problems = [*_unmet("rlrun"), *_unmet("hydra-core"), *_configs()]
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
        print("all is well")
        return 0
    for problem in problems:
        print(f"problem: {problem}")
    print(f"{len(problems)} problem{'s' * (len(problems) != 1)}")
    return 1


def _hardware() -> Iterator[tuple[str, str]]:
    import torch

    from rlrun.engine import about

    yield "threads", f"1 unless trainer.threads says more; {len(os.sched_getaffinity(0))} CPUs may be used"
    yield from about()
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        yield f"cuda:{index}", f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
    if not torch.cuda.is_available():
        yield "cuda", "none"


def _probe() -> None:
    """Measure this machine and print the figures. They are saved only if no other process disturbed them."""
    from rlrun.bench import hardware_profile
    from rlrun.bench.probe import Probe

    print("measuring, a minute or two; whatever else runs here should rest meanwhile", flush=True)
    before = Probe.take()
    profile = hardware_profile.probe()
    for name, value in profile.measured.items():
        print(f"{name:32} {value:12,.1f}")
    if Probe.unsteady([before, Probe.take()]):
        print("not kept: the machine did not hold still; measure again when nothing else runs\n")
    else:
        print(f"kept in {profile.save()}\n")


def _unmet(package: str) -> Iterator[str]:
    """Requirements of a package that the installed versions do not meet, extras left out."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(line) for line in requires(package) or ()]
    except PackageNotFoundError:
        return  # run from a checkout
    for requirement in wanted:
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        have = _version(requirement.name)
        if have is None:
            yield f"{package} needs {requirement.name}{requirement.specifier}, which is missing"
        elif not requirement.specifier.contains(have, prereleases=True):
            yield f"{package} needs {requirement.name}{requirement.specifier}, found {have}"


def _configs() -> Iterator[str]:
    if not (sources.CONF / "train.yaml").is_file():
        yield f"no configs at {sources.CONF}; install rlrun again"


def _extra(name: str) -> tuple[str, str]:
    """An extra, and whether it is installed."""
    if all(map(find_spec, EXTRAS[name])):
        return name, "yes"
    return name, f"no: pip install 'rlrun[{name}]'"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
