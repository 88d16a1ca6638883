"""Implements `rlrun new`, which writes a plug-in to start from, with a test that passes."""

import ast
import contextlib
import keyword
import os
import re
from collections.abc import Sequence
from pathlib import Path

from rlrun.errors import ConfigError, nearest
from rlrun.imports import other_of

TEMPLATES = Path(__file__).parents[1] / "templates"  # a folder for each kind, whose files say my_<kind> and My<Kind>
USAGE = "rlrun new KIND NAME"
HELP = f"""\
usage: {USAGE}

Writes a folder NAME with a plug-in of this kind and its test. Kinds: {{kinds}}.

  rlrun new algo my_algo
  pytest my_algo/
  rlrun train algo=./my_algo/my_algo.py env=CartPole"""


def new(words: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    known = kinds()
    if "--help" in words or "-h" in words:
        print(HELP.format(kinds=", ".join(known)))
        return 0
    if len(words) != 2:
        raise ConfigError(f"usage: {USAGE} (kinds: {', '.join(known)})")
    kind, name = words
    if kind not in known:
        raise ConfigError(f"no kind {kind!r}{nearest(kind, known)} (there are: {', '.join(known)})")
    texts = filled(kind, name)
    check_name(kind, name, texts)
    write(Path(name), texts)
    print("\n".join(map(str, texts)))
    print()
    print("\n".join(commands(texts[Path(name, f"{name}.py")])))
    return 0


def kinds() -> list[str]:
    """Returns the kinds of plug-ins that have a template."""
    return sorted(folder.name for folder in TEMPLATES.iterdir() if folder.is_dir())


def write(folder: Path, texts: dict[Path, str]) -> None:
    """Writes new files in a folder. Raises ConfigError if one cannot be written, and leaves none behind."""
    written = []
    is_new = not os.path.lexists(folder)
    try:
        folder.mkdir(exist_ok=True)
        for path, text in texts.items():
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink()
        if is_new:
            with contextlib.suppress(OSError):  # it was not created
                folder.rmdir()
        raise ConfigError(f"{error.filename or folder}: cannot be written ({error.strerror})") from None


def filled(kind: str, name: str) -> dict[Path, str]:
    """Returns the files of a plug-in: their paths and texts."""
    stem = f"my_{kind}"
    texts = {}
    for template in sorted((TEMPLATES / kind).iterdir()):
        if template.is_file():
            text = template.read_text(encoding="utf-8").replace(stem, name).replace(class_name(stem), class_name(name))
            texts[Path(name, template.name.replace(stem, name))] = text
    return texts


def class_name(name: str) -> str:
    """Returns the name of a class for the name of a module: MyAlgo for my_algo."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def check_name(kind: str, name: str, texts: dict[Path, str]) -> None:
    """Raises ConfigError if nothing can be written under this name."""
    from rlrun.settings import registry

    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name!r}: must be a name of small letters, digits and _, such as my_{kind}")
    own, template = f"my_{kind}", "".join(filled(kind, f"my_{kind}").values())
    if name != own and re.search(rf"\b{class_name(name)}\b", template):
        raise ConfigError(f"{name}: the file uses the name {class_name(name)} for something else; choose another name")
    if name in registry.modules().get(kind, {}):
        raise ConfigError(f"{name}: there is a registered {kind} of this name; choose another one")
    (module,) = [path for path in texts if path.stem == name and path.suffix == ".py"]
    other = other_of(name, module)
    if other is not None:
        raise ConfigError(f"{name}: there is a module of this name, {other}; choose another one")
    taken = [path for path in texts if os.path.lexists(path)]
    if os.path.lexists(name) and not Path(name).is_dir():
        taken = [Path(name)]
    if taken:
        raise ConfigError(f"{taken[0]}: exists already")


def commands(text: str) -> list[str]:
    """Returns the commands in the docstring of a module."""
    lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    return [line for line in lines if line.startswith(("pytest ", "rlrun "))]
