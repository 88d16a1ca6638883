"""Lets autodoc read docstrings that are plain text: `code` in backticks, indented examples after a colon, and
explanations of arguments such as `obs [batch, ...]: what the agent sees`."""

import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"`([^`]+)`")
MARKUP = re.compile(r"([*_|])")  # has a meaning in reStructuredText
ARGUMENT = re.compile(r"([a-z_]\w*(?:, \w+)*(?: \[[^\]]*\])?): ")


def convert(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turns the lines of a docstring into reStructuredText, in place. Sphinx calls it."""
    paragraphs = "\n".join(lines).split("\n\n")
    converted = []
    is_example = False
    for place, text in enumerate(paragraphs):
        is_example = text.startswith(" ") and (is_example or (place > 0 and paragraphs[place - 1].endswith(":")))
        if is_example:
            converted.append(text)
            continue
        begins_example = text.endswith(":") and paragraphs[place + 1 :] and paragraphs[place + 1].startswith(" ")
        converted.append(_paragraph(text) + ":" * bool(begins_example))
    lines[:] = "\n\n".join(converted).split("\n")


def _paragraph(text: str) -> str:
    """Returns a paragraph, with the explanations of arguments as a list."""
    found: list[str] = []
    for line in text.split("\n"):
        begins = not found or found[-1].endswith(".") or found[-1].startswith("\n- ")
        argument = ARGUMENT.match(line)
        if argument and begins:
            found.append(f"\n- ``{argument[1]}``: {inline(line[argument.end() :])}")
        elif found and begins and line.startswith("Raises "):
            found.append(f"\n{inline(line)}")
        elif found and found[-1].startswith("\n- "):
            found[-1] += f" {inline(line.strip())}"
        else:
            found.append(inline(line.strip()))
    return "\n".join(found)


def inline(text: str) -> str:
    """Returns a text with `code` in backticks as reStructuredText."""
    parts = CODE.split(text)
    parts[::2] = [MARKUP.sub(r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"``{part}``\\ " for part in parts[1::2]]
    return "".join(parts)


def setup(app: Sphinx) -> dict[str, Any]:
    """Is called by Sphinx."""
    app.connect("autodoc-process-docstring", convert)
    return {"parallel_read_safe": True}
