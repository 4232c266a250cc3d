"""How Sphinx makes a site of these pages (`make docs`). The pages are plain Markdown and know nothing of it.

The navigation is that of docs/README.md: each of its headings is a part, with the pages it links to, in its order.
"""

import re
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]

project = "Perdure"
html_title = "Perdure"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/*/**.md"]
exclude_patterns = [".*", "build", "console", "dist", "examples", "requirements", "src", "tests", "tools", "bench"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.xref_missing",  # links to source files and folders, which a reader of the repository can follow
    "myst.header",
    "misc.highlighting_failure",  # YAML with templates in it
    "toc.not_included",
]
html_theme = "furo"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

_LINK = re.compile(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)")
_PART = re.compile(r"^## (?:\d+\. )?(.*)$", re.MULTILINE)


def navigation(text: str) -> list[tuple[str, list[str]]]:
    """The headings of docs/README.md, each with the pages below it, without those that were named before."""
    named: set[str] = set()
    parts = []
    _, *sections = _PART.split(text)
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        pages = dict.fromkeys(_page(link) for link in _LINK.findall(body))
        parts.append((title, [page for page in pages if page not in named]))
        named.update(pages)
    return parts


def _page(link: str) -> str:
    return str((ROOT / "docs" / link).resolve().relative_to(ROOT).with_suffix(""))


def _add_navigation(app: "Sphinx", page: str, source: list[str]) -> None:
    if page != root_doc:
        return
    parts = navigation((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    parts.append(("The project", ["docs/README", "CHANGELOG", "CONTRIBUTING", "SECURITY"]))
    for title, pages in parts:
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""])


def _add_first_page(app: "Sphinx", failure: Exception | None) -> None:
    """Servers of static files look for index.html; Sphinx names pages like their sources."""
    if failure is None:
        copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: "Sphinx") -> None:
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _add_first_page)
