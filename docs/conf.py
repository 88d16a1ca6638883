"""Settings of the documentation site. `./scripts/docs` builds it."""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from rlrun import __version__

gc.disable()  # it would visit the nodes of all pages again and again, a seventh of the time of a build

project = "rlrun"
author = "the rlrun authors"
copyright = f"2026, {author}"
release = __version__
html_title = f"rlrun {release}"
html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
extensions += ["rlrun_pages", "plain_docstrings", "fields", "remembered_stems"]  # docs/_ext
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4  # headings are link targets, as on GitHub
autodoc_inherit_docstrings = False
autodoc_typehints = "none"  # signatures have them
exclude_patterns = ["_ext", "changes/*"]
nitpicky = True  # a reference without a target is an error
nitpick_ignore_regex = [
    ("py:.*", r"(gymnasium|torch|nn|numpy)\..*|Module|Tensor|Space")
]  # their documentation is elsewhere
