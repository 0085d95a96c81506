"""Sphinx's settings; ``make docs`` builds the site, and warnings are errors."""

import os
import re
import sys
from enum import Enum, Flag
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring

import aiofabric
from aiofabric.metrics import FAMILIES

project = "aiofabric"
author = "the aiofabric contributors"
copyright = author
release = aiofabric.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
suppress_warnings = ["ref.python"]  # a `name` that several classes have is code, not a link
if os.environ.get("AIOFABRIC_INTERSPHINX"):  # without a network, the inventories below would be warnings
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "anyio": ("https://anyio.readthedocs.io/en/stable", None),
        "trio": ("https://trio.readthedocs.io/en/stable", None),
    }
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"aiofabric {release}"
html_favicon = "icon.svg"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
myst_html_meta = {
    "description": "Messages, remote memory and RPC between Python processes over libfabric, on asyncio or trio"
}
copybutton_prompt_text = "$ "  # a copied command has no prompt, and no output
copybutton_line_continuation_character = "\\"

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# `name` in a docstring links to what the reference has of that name, and is plain code otherwise.
default_role = "py:obj"
add_module_names = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True  # defaults as the source has them
python_maximum_signature_line_length = 88  # characters; a longer signature has one line for each argument
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


def _description(docstring: GoogleDocstring) -> list[str]:
    """The lines of an attribute's docstring.

    Napoleon would take the words before the first colon as a type. Types are in annotations here.
    """
    sections = GoogleDocstring(docstring._dedent(docstring._consume_to_end()), docstring._config)
    return docstring._format_field("", "", sections.lines())


GoogleDocstring._parse_attribute_docstring = _description

_RAISES = re.compile(r"(^|\. )Raises: (?=\S)")
_CLASS = re.compile(r"(?<![\w`.])(?:[a-z]+\.)?[A-Z]\w*(?:Error|Failed|Timeout|OfStream|NotFound)\b(?!`)")


def _render_raises(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str], *_: object
) -> None:
    """Make a field of a sentence "Raises: ...", and links of the classes in it."""
    for number, line in enumerate(lines):
        if found := _RAISES.search(line.lstrip()):
            end = next((at for at, text in enumerate(lines) if at > number and not text.strip()), len(lines))
            before, text = line.lstrip()[: found.end(1)], line.lstrip()[found.end() :]
            body = " ".join([text, *(more.strip() for more in lines[number + 1 : end])])
            lines[number:end] = [before.rstrip(), "", ":raises: " + _CLASS.sub(r"`\g<0>`", body)]
            return


# Methods and functions return objects of these classes; the arguments of the classes are internal.
_MADE = {
    *(f"aiofabric.{name}" for name in ("Listener", "ConnectionRequest", "Reservation", "Info", "Reactor")),
    *(f"aiofabric.{name}" for name in ("MessageEndpoint", "RdmEndpoint", "DatagramEndpoint", "ScalableEndpoint")),
    *(f"aiofabric.{name}" for name in ("Batch", "Claim", "Group", "MulticastGroup", "Peer", "EndpointSettings")),
    *("aiofabric.MemoryRegion", "aiofabric.rpc.Call", "aiofabric.rpc.ServerContext"),
    *(f"aiofabric.streams.{name}" for name in ("FabricListener", "FabricStream", "MessageStream")),
    *(f"aiofabric.streams.{name}" for name in ("DatagramStream", "ConnectedDatagramStream")),
    *(f"aiofabric.pipeline.{name}" for name in ("Item", "Items", "item.Scope")),
    *(f"aiofabric.aio.{name}" for name in ("FabricSocket", "FabricTransport", "Server")),
}

_REPRS = [
    (r"<class '(?:\w+\.)*(\w+)'>", r"\1"),
    (r"<(\w+): 0>", r"\1(0)"),
    (r"<(\w+\.\w+)(?:: -?\w+)?>", r"\1"),
    (r"(\w+Attr) = <factory>", r"\1 = \1()"),
    (r"(Mapping\[[^=]*\]) = <factory>", r"\1 = {}"),
    (r"\bDEFAULT_LIMITS\b", "Limits()"),
]


def _shorten(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Default values as a program would write them; no signature of what programs do not call."""
    if what == "class" and isinstance(obj, type) and (issubclass(obj, Enum) or name in _MADE):
        return "", None
    if signature:
        signature = re.sub(
            r"<(\w+)\.([A-Z_0-9]+(?:\|[A-Z_0-9]+)+)(?:: \w+)?>",
            lambda found: " | ".join(f"{found[1]}.{each}" for each in found[2].split("|")),
            signature,
        )
        for pattern, text in _REPRS:
            signature = re.sub(pattern, text, signature)
    return signature, returns


def _list_metrics(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str], *_: object
) -> None:
    """The metrics as a table, below the docstring of their dict."""
    if obj is FAMILIES:
        lines += ["", ".. list-table::", "   :header-rows: 1", ""]
        rows = [("name", "kind", "label", "meaning")]
        rows += [(f"``{key}``", each.kind, each.label, each.help) for key, each in FAMILIES.items()]
        for row in rows:
            lines += [f"   {'  ' if at else '* '}- {cell}" for at, cell in enumerate(row)]
        lines.append("")


def _object_of(signature: addnodes.desc_signature) -> object:
    """The object that a signature of the reference describes; None if no attribute has its name."""
    found: object = sys.modules.get(signature.get("module", ""))
    for name in signature.get("fullname", "").split("."):
        found = getattr(found, name, None)
    return found


def _name_values(app: Sphinx, doctree: nodes.document) -> None:
    """Values of flags in hexadecimal, and default values of flags by name: as decimal numbers they say nothing."""
    for signature in doctree.findall(addnodes.desc_signature):
        value = _object_of(signature)
        if not isinstance(value, Flag):
            continue
        member = signature["fullname"].rpartition(".")[2] in type(value).__members__
        text = f"{value.value:#x}" if member else str(value)
        for each in signature.findall(nodes.Text):
            if each.isdecimal() and int(each) == value.value:
                each.parent.replace(each, nodes.Text(text))


def _mark_tables_of_tests(app: Sphinx, doctree: nodes.document) -> None:
    """Let the names in the tables of one page break; tables.css has the rule."""
    if app.env.docname == "coverage":
        for table in doctree.findall(nodes.table):
            table["classes"].append("of-tests")


def setup(app: Sphinx) -> None:
    """Sphinx's hook."""
    app.connect("doctree-read", _name_values)
    app.connect("doctree-read", _mark_tables_of_tests)
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _render_raises, priority=400)  # before Napoleon
    app.connect("autodoc-process-docstring", _list_metrics)
    app.connect("autodoc-process-signature", _shorten)
