"""Sphinx's settings; ``make docs`` builds the site, and warnings are errors."""

from pathlib import Path

from sphinx.application import Sphinx

import aiofabric

project = "aiofabric"
author = "the aiofabric contributors"
copyright = author
release = aiofabric.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
suppress_warnings = ["ref.python"]  # a `name` that several classes have is code, not a link
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"aiofabric {release}"

myst_heading_anchors = 3
myst_links_external_new_tab = False

# `name` in a docstring links to what the reference has of that name, and is plain code otherwise.
default_role = "py:obj"
add_module_names = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Pages that GitHub's readers find at the root of the project.
_AT_THE_ROOT = {"project/contributing": "CONTRIBUTING.md", "project/changelog": "CHANGELOG.md"}
_LINKS = {
    "(docs/design.md)": "(../design.md)",
    "(docs/native-core.md)": "(../native-core.md)",
    "(docs/glossary.md)": "(../glossary.md)",
    "(docs/performance.md)": "(../performance.md)",
    "(docs/howto/": "(../howto/",
    "(docs/project/": "(",
    "(CHANGELOG.md)": "(changelog.md)",
}


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname in _AT_THE_ROOT:
        source[0] = (Path(app.srcdir).parent / _AT_THE_ROOT[docname]).read_text()
        for there, here in _LINKS.items():
            source[0] = source[0].replace(there, here)


def setup(app: Sphinx) -> None:
    """Sphinx's hook."""
    app.connect("source-read", _read)
