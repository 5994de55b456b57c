"""Settings of the site that ``make docs`` builds."""

from jitla import __version__

project = "jitla"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
autodoc_typehints = "none"
html_theme = "alabaster"
html_theme_options = {"description": "NumPy functions, fused and compiled, unchanged", "page_width": "1100px"}
