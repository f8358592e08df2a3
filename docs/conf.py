"""The documentation's site: `bin/docs` builds it, with warnings as errors."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from bayes_planet import __version__  # noqa: E402

project = "bayes_planet"
author = "The authors of bayes_planet"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "repository_links",
]
exclude_patterns = ["_build"]
suppress_warnings = ["ref.python"]  # a field called `mean` in two records is no mistake

# Headings are linked as on GitHub, so that a page reads the same there and here.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autosummary_generate = False
toc_object_entries_show_parents = "hide"  # names of methods alone fit beside the page
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_inherit_docstrings = False  # Keras's are not written for Sphinx
autodoc_default_options = {"members": True, "show-inheritance": True}
default_role = "literal"
napoleon_use_rtype = False
napoleon_use_ivar = True

copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = "bayes_planet"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "bayes_planet"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    # Pages of wide tables have the whole width.
    "secondary_sidebar_items": {
        "**": ["page-toc"],
        **{page: [] for page in ("benchmark_tables", "configuration", "learning", "metrics", "training_runs")},
    },
}
html_sidebars = {"index": [], "layers": [], "troubleshooting": []}
