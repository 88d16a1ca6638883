"""Implements `rlrun completion`, which prints a script for a shell, and the words that complete a line.

Imports neither torch nor Hydra, because the shell waits for the words.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rlrun import files
from rlrun.errors import ConfigError, printable
from rlrun.rundir import CONFIG, RUNS

HELP = """\
usage: rlrun completion bash|zsh|fish

Prints a script that completes commands, groups, keys, values, environments and folders of runs in your shell.

  bash   add to ~/.bashrc:                    eval "$(rlrun completion bash)"
  zsh    add to ~/.zshrc, after compinit:     eval "$(rlrun completion zsh)"
  fish   add to ~/.config/fish/config.fish:   rlrun completion fish | source"""

# Each script calls `rlrun completion words LINE` with the line up to the cursor. A word that ends in `=`, `.` or `/` is
# incomplete, so no space follows it.
BASH = """\
_rlrun() {
    local word part last
    local line="${COMP_LINE:0:COMP_POINT}"
    local before="${line##*[[:space:]]}" current="${COMP_WORDS[COMP_CWORD]}"
    [[ $current == [=:@] ]] && current=""
    before="${before%"$current"}"  # bash splits words at = and :, and replaces only the last part
    COMPREPLY=()
    while IFS= read -r word; do
        last="$word"
        part="${word#"$before"}"
        [[ $part == *[!A-Za-z0-9_@%+=:,./-]* ]] && printf -v part %q "$part"  # the name of a folder may be anything
        COMPREPLY+=("$part")
    done < <(rlrun completion words "$line" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && $last == *[=./] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _rlrun rlrun
"""
ZSH = """\
_rlrun() {
    local -a found whole
    found=("${(@f)$(rlrun completion words "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    whole=("${(@)found:#*[=.\\/]}")
    compadd -S '' -- "${(@)found:|whole}"
    compadd -- "${(@)whole}"
}
compdef _rlrun rlrun
"""
FISH = """\
complete -c rlrun -f -a '(rlrun completion words (commandline -cp | string collect) 2>/dev/null)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
FILE = re.compile(r"(.*[\[,]|)(\.{1,2}/.*)")  # a value that ends in a path
SPACE, ESCAPED = re.compile(r"(?<!\\) "), re.compile(r"\\(.)")
NAMES_BYTES = 1 << 20


def completion(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    if "--help" in words or "-h" in words:
        print(HELP)
        return 0
    if len(words) == 2 and words[0] == "words":
        for word in candidates(words[1]):
            print(printable(word))
        return 0
    if len(words) != 1 or words[0] not in SCRIPTS:
        raise ConfigError(f"{' '.join(words) or 'no shell given'}: must be one of {', '.join(SCRIPTS)}")
    print(SCRIPTS[words[0]], end="")
    return 0


def candidates(line: str) -> list[str]:
    """Returns the words that may replace the last word of a command line. That word may be empty."""
    from rlrun.cli import COMMANDS, MODULES

    *before, current = [ESCAPED.sub(r"\1", word) for word in SPACE.split(line)]
    typed = [word for word in before if word]
    while typed and Path(typed[0]).name != "rlrun":  # words before the program, as in `time rlrun list`
        typed.pop(0)
    if len(typed) < 2:
        return _starting(current, COMMANDS)
    command, *typed = typed[1:]
    if command not in COMMANDS:
        return []
    module = import_module(f"rlrun.cli.{MODULES.get(command, command)}")
    if current.startswith("-"):
        return _starting(current, [*getattr(module, "OPTIONS", ()), "--help"])
    if command in ("train", "show"):
        return list(_of_train(current, typed))
    if command == "list":
        return _starting(current, _groups())
    if command == "completion":
        return _starting(current, SCRIPTS)
    if command == "new":
        return _starting(current, [] if typed else module.kinds())
    rules = getattr(module, "RULES", {})
    key, has_value, value = current.partition("=")
    if has_value:
        choices = rules[key].choices if key in rules else ()
        return list(_values(key, value, choices))
    found = []
    if getattr(module, "TAKES_RUNS", True):
        found = _runs(current)
    if typed or current or not found:  # settings follow the run
        found += _starting(current, [f"{key}=" for key in rules])
    return found


def _starting(current: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(current)]


def _groups() -> list[str]:
    from rlrun.cli.catalogue import WITHOUT_FILES
    from rlrun.config import sources

    return [*sources.groups(sources.folders()), *WITHOUT_FILES]


def _of_train(current: str, typed: Sequence[str]) -> Iterator[str]:
    """Yields completions of a word of `rlrun train`, which may begin with one of several algorithms, as `ppo.env.`."""
    from rlrun.config import sources

    with contextlib.suppress(ConfigError):  # the command itself reports it
        typed = sources.by_name(typed)
    algos = sources.algorithms(typed)
    algo, _, rest = current.partition(".")
    if len(algos) > 1 and algo in algos and current != algo:
        others = [word for word in typed if not word.startswith("algo=")]
        yield from (f"{algo}.{word}" for word in _settings(rest, [*others, f"algo={algo}"]))
        return
    yield from _settings(current, typed)
    if len(algos) > 1:
        yield from _starting(current, [f"{algo}." for algo in algos])


def _settings(current: str, typed: Sequence[str]) -> Iterator[str]:
    """Yields completions of a setting: a key up to its next dot, or `key=value`."""
    from rlrun.config import check, sources
    from rlrun.config.keys import keys

    where = sources.folders(sources.named_plugins(typed))
    groups = sources.groups(where)
    pairs = [word.partition("=") for word in typed]
    chosen = {key: value for key, _, value in pairs if value in groups.get(key, ())}
    key, has_value, value = current.partition("=")
    if match := FILE.fullmatch(value):
        first, path = match.groups()
        yield from (f"{key}={first}{name}" for name in _paths(path, ".py"))
        return
    if has_value and key == "init_from":
        yield from _values(key, value, _runs(value))
        return
    if has_value and key in groups:
        names = [*groups[key]]
        if key == "preset":
            names.append("none")
        if key == "env" and value:
            names += _gymnasium_ids()
        yield from _values(key, value, names)
        return
    found = keys(chosen, where)
    if has_value:
        if key in found:
            yield from _values(key, value, found[key].choices)
        return
    depth = key.count(".")
    names = []
    for known in [*(group for group in groups if "." not in group), *check.SHORT, *found]:
        if not known.startswith(key):
            continue
        parts = known.split(".")
        name = ".".join(parts[: depth + 1])
        if len(parts) == depth + 1 and (depth == 0 or parts[-1] != "name"):  # `name` is set by choosing the part
            names.append(f"{name}=")
        if len(parts) > depth + 1 or (known in found and found[known].value == {}):  # a section
            if name in groups:  # a part, which is chosen by its name
                names.append(f"{name}=")
            names.append(f"{name}.")
    yield from dict.fromkeys(names)


def _values(key: str, value: str, names: Iterable[str]) -> Iterator[str]:
    """Yields `key=value` for each name that starts with the value, or with the last of several, `A,B`."""
    first, comma, last = value.rpartition(",")
    for name in dict.fromkeys(names):
        if name.startswith(last):
            yield f"{key}={first}{comma}{name}"


def _gymnasium_ids() -> list[str]:
    """Returns the ids in Gymnasium's registry, from a file in the user's cache, because importing Gymnasium is slow."""
    from rlrun.operating_system import cache_folder
    from rlrun.snapshot.atomic import replace_text

    versions = [_version(package) for package in ("rlrun", "gymnasium", "ale_py")]
    path = cache_folder() / "environments.json"
    try:
        known = json.loads(files.read(path, NAMES_BYTES))
        if known["versions"] == versions:
            return [str(name) for name in known["names"]]
    except (OSError, ValueError, KeyError, TypeError, ConfigError):
        pass
    import rlrun.envs.builtin  # noqa: F401 (registers rlrun's own environments)
    from rlrun.config.environments import registered_ids

    names = registered_ids()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps({"versions": versions, "names": names}))
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)  # the next completion of an id is slow again
    return names


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _runs(current: str) -> list[str]:
    """Returns the runs below runs/ that start with the word, latest first; or else folders that start with it."""
    places = [*RUNS.glob(f"*/*/{CONFIG}"), *RUNS.glob(f"*/{CONFIG}")]
    found = _starting(current, sorted((str(place.parent) for place in places), key=_time, reverse=True))
    if found:
        return found
    return _paths(current)


def _paths(current: str, ending: str | None = None) -> list[str]:
    """Returns the folders, and the files with this ending, whose path starts with the word."""
    prefix = current[: current.rfind("/") + 1]
    found = []
    for path in sorted(Path(prefix or ".").glob("[!.]*")):
        if path.is_dir():
            found.append(f"{prefix}{path.name}/")
        elif ending and path.name.endswith(ending):
            found.append(f"{prefix}{path.name}")
    return _starting(current, found)


def _time(run: str) -> str:
    return Path(run).name  # the name of a run begins with its UTC time
