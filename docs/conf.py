"""Sphinx configuration: MyST Markdown, API pages from docstrings."""

import oz

project = "oz"
author = "The oz authors"
copyright = "The oz authors"
release = version = oz.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"oz {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
autodoc_typehints = "description"
autodoc_mock_imports = ["pyspark"]
autodoc_member_order = "bysource"
