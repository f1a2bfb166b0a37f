"""The documentation site: Sphinx, furo and MyST; `make docs` builds it with warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent / "benchmarks")]

from sparing import __version__  # noqa: E402  # after the path is set

project = "sparing"
author = "The sparing engineers"
copyright = "the sparing engineers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "generated",
]
exclude_patterns = ["_ext"]

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
add_module_names = False
python_maximum_signature_line_length = 80

smartquotes = False  # options and formulas stay as they are written
copybutton_exclude = ".linenos, .gp"
html_theme = "furo"
html_title = f"sparing {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_dark_style = "a11y-dark"  # the theme's underlines modules, as if they were links
