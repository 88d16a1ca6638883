"""`rlrun list` and `rlrun show`: what there is, and what every key means. Neither imports torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from rlrun.cli.columns import print_columns
from rlrun.cli.forms import check_form
from rlrun.config import check, sources
from rlrun.errors import ConfigError

if TYPE_CHECKING:
    from rlrun.config.compose import Composer, Word

LIST_HELP = """\
usage: rlrun list [group] [plugins=[package]]

The names in a group (algo, network, env, trainer, preset, ...), or all groups with how many names they hold.
`rlrun list wrapper` has the wrappers of environments, with their settings. With plugins=[...] their parts too."""

WRAPPER = "wrapper"

OPTIMAL = "optimal=true"

SHOW_HELP = """\
usage: rlrun show [algo=<name>] [env=<name>] [key=value ...]

Every key of the config that these words compose: its value, where that comes from, and what it means.

  rlrun show algo=sac
  rlrun show algo=sac env=HalfCheetah trainer=quick
  rlrun show env=FrozenLake optimal=true    the best return there is, by value iteration"""


def list(words: Sequence[str]) -> int:
    if "--help" in words or "-h" in words:
        print(LIST_HELP)
        return 0
    plugins = sources.named_plugins(words)
    groups = sources.groups(sources.folders(plugins))
    names = [word.removesuffix("s") if word not in groups else word for word in words if "=" not in word]
    if not names:
        rows = [(name, str(len(found)), ", ".join([*found][:8])) for name, found in groups.items()]
        print_columns([*rows, (WRAPPER, "", "of environments; rlrun list wrapper has them with their settings")])
        return 0
    known = [*groups, WRAPPER]
    unknown = [f"no group {name!r}{check.nearest(name, known)}" for name in names if name not in known]
    if unknown:
        raise ConfigError(*[f"{fault} (there are: {', '.join(known)})" for fault in unknown])
    for name in names:
        if name == WRAPPER:
            print_columns(_wrappers(plugins))
            continue
        print_columns([(option, _describe(name, file)) for option, file in groups[name].items()])
        if name == "env":
            print_columns([(id,) for id in _environments_of(plugins)])
            print("\nand everything Gymnasium knows: env=Walker2d-v5, env=ALE/Pong-v5, env=my_package:My-v0")
    return 0


def _wrappers(plugins: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Registered wrappers: name, settings with their types, first line of what they say of themselves."""
    import rlrun.envs.wrappers  # noqa: F401 (registers rlrun's)
    from rlrun import registry

    registry.load_installed()
    registry.load_named(plugins)
    for name, wrapper in registry.registered(WRAPPER).items():
        settings = get_type_hints(getattr(wrapper, "Config", None) or object)
        keys = ", ".join(f"{key}: {_type(hint)}" for key, hint in settings.items())
        yield name, keys or "-", (wrapper.__doc__ or "").strip().partition("\n")[0]


def _type(hint: Any) -> str:
    """A type as one writes it: `list[int | str]`."""
    inside = [*map(_type, get_args(hint))]
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(inside)
    if hint is NoneType:
        return "null"
    name = getattr(hint, "__name__", str(hint))
    return f"{name}[{', '.join(inside)}]" if inside else name


def _environments_of(plugins: Sequence[str]) -> Iterator[str]:
    """Ids that the modules named register with Gymnasium."""
    if plugins:
        from rlrun.config.environments import registered_by

        yield from registered_by(plugins)


def show(words: Sequence[str]) -> int:
    if "--help" in words or "-h" in words:
        print(SHOW_HELP)
        return 0
    check_form("show", words)
    from rlrun.config.compose import Composer
    from rlrun.config.jobs import composed, word_faults

    composer = Composer(sources.folders(sources.named_plugins(words)))
    optimal = OPTIMAL in words
    words = [word for word in words if word != OPTIMAL]
    read = [composer.read(word) for word in words]
    composition, choices, guessed, faults = composed(composer, read, required=())
    named = {word.key: str(word.values[0]) for word in read if word.is_group}
    settings = [word for word in read if not word.is_group and word.key.partition(".")[0] not in guessed]
    faults += [fault for word in settings for fault in word_faults(word, composition.tree)]
    if faults:
        raise ConfigError(*faults)
    values = composition.values(settings)
    if optimal:
        return _show_optimal(values)
    for group in ("algo", "env"):
        file = sources.options(group, composer.folders).get(named.get(group, ""))
        if file and (text := _describe(group, file)):
            print(f"{named[group]}: {text}")
    print_columns(_rows(values, _origins(composer, choices, read)))
    return 0


def _show_optimal(values: dict[str, Any]) -> int:
    from rlrun import registry
    from rlrun.config.schema import EnvConfig, parse
    from rlrun.envs.dynamics import optimal_return

    registry.load(values["plugins"])
    best, horizon = optimal_return(parse(EnvConfig, values["env"], "env"))
    print(f"optimal return: {best:.6g}" + (f" (within {horizon} steps)" if horizon else ""))
    return 0


def _rows(values: dict[str, Any], origins: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str, str, str]]:
    yield "key", "value", "from", "meaning"
    for key, value in check.leaves(values):
        origin, meaning = origins.get(key, ("", ""))
        if value is not None and key in ("name", "preset") and origin == sources.label(sources.CONF / "train.yaml"):
            origin = "algo and env"
        yield key, check.show(value), origin, meaning


def _origins(composer: "Composer", choices: Sequence[str], words: Sequence["Word"]) -> dict[str, tuple[str, str]]:
    """Where each key got its value, and the comment behind it. Later files win; only a comment replaces a comment."""
    origins: dict[str, tuple[str, str]] = {}
    for part in composer.parts(choices):
        file = sources.find(f"{part.path}.yaml", composer.folders)
        keys = sources.notes(file).meanings if file else {"id": ""}
        for name, meaning in keys.items():
            key = f"{part.package}.{name}".lstrip(".")
            origins[key] = (sources.label(file) if file else "Gymnasium", meaning or origins.get(key, ("", ""))[1])
    for word in words:
        for key in [word.key, *(key for key in origins if key.startswith(f"{word.key}."))]:
            if not word.is_group or word.key == "preset":
                origins[key] = ("command line", origins.get(key, ("", ""))[1])
    return origins


def _describe(group: str, file: Path) -> str:
    """The first comment of the YAML, or an environment's id."""
    return sources.notes(file).headline or (sources.env_id(file) if group == "env" else "")
