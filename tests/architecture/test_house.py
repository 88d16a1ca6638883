"""The rules of ARCHITECTURE.md about imports and files, checked in the source."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import rlrun
import rlrun.engine
from rlrun.settings import registry

HOUSE = Path(rlrun.__file__).parent
FILES = {path.relative_to(HOUSE): path for path in sorted(HOUSE.rglob("*.py")) if "conf" not in path.parts[:-1]}
FILES = {short: path for short, path in FILES.items() if short.parts[0] != "conf"}
YAML = sorted((HOUSE / "conf").glob("**/*.yaml"))

# Rooms, lowest first: folders, and modules at the top of src/rlrun. A room imports only rooms of the lines above it.
LAYERS = """
errors
dotted images module operating_system spaces
files media memory
data_files imports lock
ray_connection settings
types
functional
nested
tensors
indexed
formats
snapshot
schedules
networks
core
models
buffers
envs
datasets shards
addons agents callbacks loops
engine
config
rundir
telemetry
run
bench export report
hub testing
cluster
sweep
cli
python
__init__
__main__
"""
LEVEL = {room: level for level, line in enumerate(LAYERS.split("\n")) for room in line.split()}
# Folder or module -> the only folders and modules that may import it.
ONLY_FOR: dict[str, tuple[str, ...]] = {
    "engine": ("engine/", "bench/", "run/lifecycle.py", "run/assemble.py", "run/exactness.py", "cli/doctor.py"),
    "cli": ("cli/", "__main__.py", "python.py"),
    "agents": ("agents/",),
    "models": ("models/", "agents/", "addons/", "callbacks/", "loops/"),
    "loops": ("loops/", "run/assemble.py", "run/evaluation.py", "run/policy.py", "config/jobs.py"),
    "run": (
        "run/",
        "cli/",
        "bench/",
        "cluster/server.py",
        "sweep/ends.py",
        "sweep/untrusted.py",
        "export/",
        "hub/",
        "python.py",
        "testing.py",
    ),
    "run.lifecycle": ("run/", "cli/", "cluster/server.py", "testing.py"),
}


@cache
def imports(path: Path) -> list[str]:
    """Every module that a file imports, at module level or inside functions."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def house_imports(path: Path) -> Iterator[str]:
    return (name.removeprefix("rlrun.") for name in imports(path) if name.startswith("rlrun."))


def inside(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def words(path: Path) -> set[str]:
    """Names in the code; comments and docstrings do not count."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def files(room: str) -> dict[Path, Path]:
    return {short: path for short, path in FILES.items() if str(short).startswith(room)}


def test_the_rules_see_the_house() -> None:
    assert {short.parts[0] for short in FILES} >= {"core", "cli", "config", "errors.py"}
    assert list(house_imports(HOUSE / "agents/actor_critic/sac.py")), "imports are found"
    assert len(YAML) > 30


def room_of(short: Path) -> str:
    return short.parts[0].removesuffix(".py")


def test_every_room_has_a_layer() -> None:
    assert {room_of(short) for short in FILES if short.parts[0] != "templates"} == LEVEL.keys()


def test_rooms_import_only_rooms_below() -> None:
    upward = {
        f"{short} imports {name}"
        for short, path in FILES.items()
        if short.parts[0] != "templates"
        for name in house_imports(path)
        if (other := name.partition(".")[0]) != room_of(short) and LEVEL.get(other, -1) >= LEVEL[room_of(short)]
    }
    assert not upward


@pytest.mark.parametrize("room", ONLY_FOR)
def test_a_closed_room_is_entered_by_its_owners_only(room: str) -> None:
    wrong = [
        f"{short} imports {name}"
        for short, path in FILES.items()
        for name in house_imports(path)
        if inside(name, (room,)) and not str(short).startswith((*ONLY_FOR[room], "templates"))
    ]
    assert not wrong


LOOPS = {short: path for short, path in files("loops/").items() if '@register("loop"' in path.read_text()}


def test_loops_name_neither_environments_nor_collector_nor_addons() -> None:
    assert len(LOOPS) == len(registry.names("loop"))
    for short, path in LOOPS.items():
        named = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not named & {"env", "collector", "addons"}, short


def test_maths_needs_nothing_but_torch() -> None:
    for short, path in files("functional/").items():
        foreign = {name.partition(".")[0] for name in imports(path)} - {"torch", "rlrun"} - sys.stdlib_module_names
        assert not foreign, short


# What models may import of rlrun: networks and maths, and of the contracts only these.
FOR_MODELS = ("models", "networks", "functional", "settings", "nested", "tensors", "types", "spaces", "errors")
OF_CORE = ("core.parts", "core.random", "core.state.RunningMoments")


def test_models_hold_no_optimiser() -> None:
    """The agent or add-on that holds a model trains it."""
    for short, path in files("models/").items():
        assert not words(path) & {"Optim", "optim", "kernel"}, short
        foreign = [name for name in house_imports(path) if not inside(name, (*FOR_MODELS, *OF_CORE))]
        assert not foreign, short


def test_agents_hold_no_compiler_no_device_and_no_dtype() -> None:
    forbidden = {"compile", "device", "dtype", "cuda", "cpu", "autocast", "half", "bfloat16", "item"}
    for short, path in files("agents/").items():
        assert not words(path) & forbidden, short


def test_commands_configs_and_run_folders_leave_torch_alone() -> None:
    light = [
        ".".join(["rlrun", *short.with_suffix("").parts])
        for short in FILES
        if short.parts[0] in ("cli", "config", "settings", "rundir.py", "types.py", "errors.py")
    ]
    code = (
        f"import sys, importlib\nfor name in {light}:\n"
        " importlib.import_module(name)\n assert 'torch' not in sys.modules, name"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_no_conditional_expression_inside_another() -> None:
    nested = [
        f"{short}:{node.lineno}"
        for short, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.IfExp)
        if any(isinstance(inner, ast.IfExp) for inner in ast.walk(node) if inner is not node)
    ]
    assert not nested


def test_every_module_says_what_it_is() -> None:
    texts = {short: path.read_text() for short, path in FILES.items()}
    assert not [str(short) for short, text in texts.items() if text and not ast.get_docstring(ast.parse(text))]


def test_no_drawer_for_everything() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [short for short in FILES if drawers & {part.removesuffix(".py") for part in short.parts}]


def test_agents_compose_and_do_not_climb() -> None:
    """At most nn.Module > Agent > X, and a subclass of X that overrides methods. SAC and TD3 share a base."""
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for path in files("agents/").values()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    assert bases["ActorCritic"] == ["Agent"]
    agents = {name for name, parents in bases.items() if {"Agent", "ActorCritic"} & {*parents}} - {"ActorCritic"}
    assert agents and all(len(bases[name]) == 1 for name in agents)
    siblings = {name for name, parents in bases.items() if agents & {*parents}}
    assert not [name for name, parents in bases.items() if siblings & {*parents}]


def test_every_agent_has_one_order() -> None:
    """Config, networks, act, update, then losses, then hooks."""
    first = ["Config", "__init__", "networks", "act", "update"]
    hooks = ["warm_up", "report", "lacks"]
    for short, path in files("agents/").items():
        for node in ast.parse(path.read_text()).body:
            names = [
                part.name for part in getattr(node, "body", ()) if isinstance(part, ast.FunctionDef | ast.ClassDef)
            ]
            if "update" not in names and "act" not in names:
                continue
            begin = [name for name in names if name in first]
            end = [name for name in names if name in hooks]
            assert begin == sorted(begin, key=first.index) and names[len(names) - len(end) :] == end, short


def test_nothing_is_unpickled() -> None:
    for short, path in FILES.items():
        names = set(imports(path))
        assert not {name.partition(".")[0] for name in names} & {"pickle", "cloudpickle", "dill", "joblib"}, short
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) not in ("torch.load", "np.load", "numpy.load"), short


def test_configs_name_parts_and_never_code() -> None:
    for path in YAML:
        text = path.read_text()
        assert "_target_" not in text and "oc.env" not in text, path.name


def test_every_number_of_an_algorithm_is_explained() -> None:
    silent = []
    for path in [path for path in YAML if path.parent.name == "algo"]:
        section = path.read_text().partition("\nalgo:\n")[2]
        for line in section.splitlines():
            key, _, value = line.strip().partition(":")
            own = line.startswith("  ") and not line.startswith("   ")
            if own and value.strip() and key not in ("name",) and "#" not in value:
                silent.append(f"{path.name}: {key}")
    assert not silent


# Modules that may open a file by its path, because the file is not part of a run, or is new.
OPENERS = {
    "files.py": "the one place for the files of runs",
    "snapshot/atomic.py": "new files, with O_EXCL",
    "telemetry/board.py": "a new file of events",
    "telemetry/stdout.py": "/dev/null",
    "run/provenance.py": "git's index",
    "config/sources.py": "our own YAML, and that of plug-ins",
    "config/declared.py": "plug-ins that the user types",
    "imports.py": "their text, for its digest",
    "operating_system.py": "/proc, and files with a pid",
    "engine/hardware_profile.py": "the user's own measurements",
    "envs/making/downloads.py": "new files in the user's own cache, and the address itself",
    "envs/saving/verdicts.py": "what an installed distribution says of its files",
    "bench/measure.py": "results of benchmarks",
    "report/frame.py": "our own templates",
    "settings/registry.py": "our own source",
    "cli/learning_results.py": "our own figures",
    "cli/new.py": "our own templates, and new files",
}
OPENING = re.compile(
    r"(?<![\w.])open\((?!files\.open_descriptor|descriptor|(cls|self),)|\.open\((\"|url)|\bos\.open\("
    r"|\.(read_text|read_bytes|write_text|write_bytes)\(|\bshutil\.copy|\bload_file\(|\bsave_file\("
)


def test_files_of_runs_are_opened_in_one_place() -> None:
    """A module that reads files of a run must open them through `files.py`."""
    texts = {str(short): path.read_text() for short, path in FILES.items()}
    assert {short for short, text in texts.items() if OPENING.search(text)} == OPENERS.keys()


# Names of the standard library that only some operating systems have, and modules that may use them.
OF_SOME_SYSTEMS = re.compile(
    r"import (fcntl|msvcrt|resource|termios|tty|pty|pwd|grp|winreg)\b|\"/proc/"
    r"|\bos\.(fork\b|wait|kill|get[eug]*id\b|getpgid|set\w*id\b|getloadavg|sched_|sysconf|statvfs|p(read|write)\b"
    r"|uname|nice|sync\b|mkfifo|fch|register_at_fork|O_(NOFOLLOW|NONBLOCK|CLOEXEC|DIRECTORY|BINARY))"
    r"|\bsignal\.(SIG(?!INT\b|TERM\b|_DFL\b|_IGN\b|nals?\b)[A-Z0-9]+|pthread_|alarm|setitimer|sigwait)"
    r"|\bos\.memfd_create|\bsocket\.(send_fds|recv_fds|AF_UNIX)"
)
SYSTEM_SPECIFIC = {
    "operating_system.py": "the one place for them",
    "cluster/server.py": "starts commands on Linux, by forks",
    "envs/stepping/workers.py": "env.backend=async needs Unix sockets",
}


def test_what_only_some_systems_have_stands_in_one_module() -> None:
    found = {str(short) for short, path in FILES.items() if OF_SOME_SYSTEMS.search(path.read_text())}
    assert found == SYSTEM_SPECIFIC.keys()


# Modules that may use private names of torch, because recording and compiling have no public functions.
PRIVATE = {
    "engine/recorder.py",
    "engine/script.py",
    "engine/operations.py",
    "engine/inductor.py",
    "functional/fused.py",
}
PRIVATE_NAME = re.compile(
    r"\btorch(\.\w+)*\._[a-z]|\baten\._[a-z]|\._(schema|cdata|modules|parameters|buffers)\b|\(torch(\.\w+)*, \"_"
)


def test_private_names_of_torch_stand_behind_two_doors() -> None:
    """Only recorders, which `trainer.engine=eager` does not import, and operations that have a plain alternative."""
    assert {str(short) for short, path in FILES.items() if PRIVATE_NAME.search(path.read_text())} == PRIVATE


def test_the_engine_is_entered_by_its_door() -> None:
    """Benchmarks are the exception, because they measure engines separately."""
    door = {"engine", *(f"engine.{name}" for name in rlrun.engine.__all__)}
    deep = [
        f"{short} imports {name}"
        for short, path in FILES.items()
        for name in house_imports(path)
        if inside(name, ("engine",)) and name not in door and not str(short).startswith(("engine/", "bench/"))
    ]
    assert not deep


# Reductions of agents, add-ons and models that are not over the rows of a batch, by file and what is reduced.
NOT_OVER_ROWS = {
    "agents/particles/svpg.py": {"distances"},  # particles
    "agents/policy/trust_regions.py": {"distance", "distance)", "first"},  # leaves of an action
    "agents/tabular/sarsa.py": {"self.q"},  # the table
    "agents/tabular/q_learning.py": {"self.q"},
    "agents/entropy/staged.py": {"self.average"},  # a running average
    "agents/entropy/sgd.py": {"self.average"},
    "agents/evolution/openai_es.py": {"fitness"},  # the population
    "agents/evolution/cma_es.py": {"fitness"},
    "agents/evolution/cem.py": {"fitness", "sqrt()"},
}
REDUCTION = re.compile(r"([\w.]+|\w+\S?[)\]]+)\.(?:mean|std|var|max|min)\(\)")


def test_reductions_over_rows_go_through_functional_losses() -> None:
    """A reduction over the rows of several processes then has one place."""
    found: dict[str, set[str]] = {}
    for room in ("agents/", "addons/", "models/"):
        for short, path in files(room).items():
            reduced = set(REDUCTION.findall(path.read_text()))
            if reduced:
                found[str(short)] = reduced
    assert found == NOT_OVER_ROWS


def test_a_class_name_has_one_meaning() -> None:
    """Each part has a `Config` of its own; any other name stands for one class."""
    homes: dict[str, list[str]] = {}
    for short, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name != "Config":
                homes.setdefault(node.name, []).append(str(short))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
