"""Configuration of the documentation. `make docs` builds it; no page needs a network, to build it or to read it."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from workbench import __version__  # noqa: E402

project = "dask-workbench"
author = "the dask-workbench developers"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated"]
exclude_patterns = ["_ext", "contributors/_layers.md"]
nitpicky = True
# Types of other packages have their pages elsewhere, and links to them would need a network.
nitpick_ignore_regex = [(r"py:.*", r".*")]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
# Every dotted name and path in prose is written with backticks; nothing else becomes a link by itself.
myst_linkify_fuzzy_links = False

# CI executes the notebooks as tests; the site shows them as they are in git, without outputs.
nb_execution_mode = "force" if os.environ.get("DOCS_EXECUTE") else "off"
nb_execution_timeout = 180
nb_execution_raise_on_error = True
# myst-nb would load these from a CDN.
nb_ipywidgets_js = {}

# Docstrings use single backticks for code, as Markdown does.
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
python_display_short_literal_types = True

html_theme = "pydata_sphinx_theme"
html_title = "dask-workbench"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": "dask-workbench"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copyright = "2026, the dask-workbench developers. BSD-3-Clause"
