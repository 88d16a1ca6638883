"""Implements `rlrun new`, which writes a plug-in to start from, with a test that passes."""

import ast
import keyword
from collections.abc import Sequence
from pathlib import Path

from rlrun.config.check import nearest
from rlrun.errors import ConfigError
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
    kinds = sorted(folder.name for folder in TEMPLATES.iterdir() if folder.is_dir())
    if "--help" in words or "-h" in words:
        print(HELP.format(kinds=", ".join(kinds)))
        return 0
    if len(words) != 2:
        raise ConfigError(f"usage: {USAGE} (kinds: {', '.join(kinds)})")
    kind, name = words
    if kind not in kinds:
        raise ConfigError(f"no kind {kind!r}{nearest(kind, kinds)} (there are: {', '.join(kinds)})")
    texts = filled(kind, name)
    check_name(kind, name, texts)
    Path(name).mkdir(exist_ok=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        print(path)
    print()
    print("\n".join(commands(texts[Path(name, f"{name}.py")])))
    return 0


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
    from rlrun import registry

    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise ConfigError(f"{name!r}: must be a name that Python takes for a module, such as my_{kind}")
    if name in registry.modules().get(kind, {}):
        raise ConfigError(f"{name}: there is a registered {kind} of this name; choose another one")
    (module,) = [path for path in texts if path.stem == name and path.suffix == ".py"]
    other = other_of(name, module)
    if other is not None:
        raise ConfigError(f"{name}: there is a module of this name, {other}; choose another one")
    for path in (Path(name), *texts):
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path}: exists already")


def commands(text: str) -> list[str]:
    """Returns the commands in the docstring of a module."""
    lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    return [line for line in lines if line.startswith(("pytest ", "rlrun "))]
