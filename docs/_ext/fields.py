"""Lists the fields of every documented class, explained by the comments beside them in the source.

The comment above a field is its explanation, and the trailing comment its shape. Without a comment above, the trailing
comment is the explanation.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from plain_docstrings import inline
from sphinx.application import Sphinx

AFTER_CONVERSION = 600  # priority; that of other listeners is 500


class Field(NamedTuple):
    """A field of a class: a key of a batch, an attribute of a dataclass or a class attribute."""

    name: str
    shape: str  # "" if the source gives none
    meaning: str


def fields(cls: type) -> list[Field]:
    """Returns the fields of a class that have a comment, without those of its base classes."""
    lines = inspect.getsource(sys.modules[cls.__module__]).splitlines()
    found = []
    for name, node in _entries(cls.__name__, ast.parse("\n".join(lines))):
        behind = lines[(node.end_lineno or 1) - 1].partition("  # ")[2]
        above = _above(lines, node.lineno - 1).partition(" Written by ")[0]
        if above:
            found.append(Field(name, behind, above))
        elif behind:
            found.append(Field(name, "", behind))
    return found


def _entries(cls: str, tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yields the fields of a class statement, or of the call of TypedDict that makes a class of this name."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == cls:
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id, line
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == cls:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Dict):
                    yield from ((str(ast.literal_eval(key)), key) for key in inner.keys if key is not None)


def _above(lines: list[str], place: int) -> str:
    """Returns the text of the comment lines above a line."""
    found: list[str] = []
    while place > 0 and lines[place - 1].strip().startswith("# "):
        place -= 1
        found.insert(0, lines[place].strip().removeprefix("# "))
    return " ".join(found)


def add(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Adds the list to the docstring of a class. Sphinx calls it."""
    if what != "class" or not isinstance(obj, type) or not obj.__module__.startswith("rlrun"):
        return
    for field in fields(obj):
        shape = f" {inline(field.shape)}" if field.shape else ""
        lines += ["", f"- ``{field.name}``{shape}: {inline(field.meaning)}"]
    lines.append("")


def skip(app: Sphinx, what: str, name: str, obj: object, skipped: bool, options: object) -> bool | None:
    """Skips nested classes, and the fields that autodoc would describe only as "Alias for field number N"."""
    is_field = str(getattr(obj, "__doc__", "")).startswith("Alias for field")
    if what == "class" and (is_field or isinstance(obj, type)):
        return True
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the listeners."""
    app.connect("autodoc-process-docstring", add, priority=AFTER_CONVERSION)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True}
