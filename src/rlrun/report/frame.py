"""Renders pages in one frame, `frame.html`: self-contained, in light and dark, and allowed to load nothing."""

import base64
import hashlib
import importlib.resources
import time
from functools import cache
from typing import Any

from rlrun import __version__
from rlrun.report import svg
from rlrun.report.names import printable, shortened


def render(template: str, style: str, command: str, readings: dict[str, object], **values: object) -> str:
    """Returns a page as HTML.

    template: path below rlrun of a template that extends `report/frame.html`. style: CSS of this page, in addition to
    that of all pages. command: the command that made the page. readings: curves that `page.js` shows next to the
    pointer. values: variables of the template; with `files`, the page has links to its pictures and tables.
    """
    from markupsafe import Markup

    style = packaged("report/page.css") + style
    script = packaged("report/page.js")
    page = _templates().get_template(template)
    text = page.render(
        command=command,
        readings=readings,
        shapes=Markup(svg.shapes()),
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        **values,
    )
    return str(text)


def packaged(name: str) -> str:
    """Returns the text of a file of this package."""
    return (importlib.resources.files("rlrun") / name).read_text(encoding="utf-8")


@cache
def _templates() -> Any:
    import jinja2

    loader = jinja2.FunctionLoader(packaged)
    templates = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_shown, loader=loader
    )
    templates.filters["shortened"] = shortened
    return templates


def _shown(value: Any) -> str:
    """Returns a value as text for the page. Markup stays unchanged; in other text, control characters are replaced."""
    if hasattr(value, "__html__"):
        return value
    return printable(str(value))


def _policy(style: str, script: str) -> str:
    """Returns a Content-Security-Policy that allows only this style and this script, and no requests."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
