"""Sphinx configuration: MyST Markdown, API pages from docstrings."""

import oz

project = "oz"
author = "The oz authors"
copyright = "The oz authors"
release = version = oz.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_title = f"oz {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_default_options = {"members": True}
autodoc_typehints = "description"
autodoc_mock_imports = ["pyspark"]
autoclass_content = "both"
autodoc_member_order = "bysource"
# `Subscriber` in a signature: `oz` and `oz.asyncio` have a class of this name each.
suppress_warnings = ["ref.python"]
