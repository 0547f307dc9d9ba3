"""The documentation site, built by `make docs`.

The pages are plain Markdown, which is readable without the site. They contain no directives of Sphinx. The table of
contents is `contents.toml`, old addresses are in `redirects.txt`, and links to files outside this folder lead to the
project's source.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CONTENTS: dict[str, Any] = tomllib.loads((DOCS / "contents.toml").read_text("utf-8"))
SOURCE = PROJECT["urls"]["Source"]

project = "order-ingest"
copyright = "The order-ingest contributors, Apache License 2.0"
version = release = PROJECT["version"]

extensions = ["myst_parser"]
exclude_patterns: list[str] = []
myst_heading_anchors = 4
myst_enable_extensions = ["tasklist"]
pygments_style, pygments_dark_style = "friendly", "native"
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # shortened JSON and TOML; tests/docs checks complete blocks

html_theme = "furo"
html_title = f"order-ingest {version}"
html_baseurl = PROJECT["urls"]["Documentation"] + "/"
html_static_path = ["_static"]
html_favicon = html_logo = "../ingest/api/console/static/icon.svg"
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "search-scorer.js")
html_use_index = False
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_theme_options = {
    "source_view_link": SOURCE + "/blob/main/docs/{filename}",
    "top_of_page_buttons": ["view"],
}

linkcheck_ignore = [r"https?://[^/]*\.example\b", r"https?://(localhost|127\.0\.0\.1)\b"]
linkcheck_anchors = False

logger = logging.getLogger(__name__)


def toctree(pages: list[str], caption: str = "") -> str:
    """A hidden table of contents in MyST's syntax."""
    options = [":hidden:", ":glob:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "", "```{toctree}", *options, "", *(f"/{page}" for page in pages), "```", ""])


def prepare(app: Sphinx, docname: str, source: list[str]) -> None:  # noqa: ARG001 (the event passes it)
    """Add the table of contents to a page, and point links to files outside this folder at the project's source."""
    here = DOCS / Path(docname).parent

    def resolved(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / link["path"]))
        if target.is_relative_to(DOCS):
            return link[0]
        if not target.exists():
            logger.warning("%s leads to %s, which does not exist", docname, link["path"], location=docname)
        kind = "tree" if target.is_dir() else "blob"
        return f"{link['before']}{SOURCE}/{kind}/main/{target.relative_to(ROOT)}"

    source[0] = re.sub(
        r"(?P<before>\]\(|^\[[^\]]+\]: +)(?P<path>\.\./[^\s)#]*)", resolved, source[0], flags=re.MULTILINE
    )
    if docname == "index":
        source[0] += "".join(toctree(section["pages"], section["title"]) for section in CONTENTS["section"])
    elif docname in CONTENTS["below"]:
        source[0] += toctree(CONTENTS["below"][docname])


def add_words(app: Sphinx, document: nodes.document) -> None:
    """Let the search find a page by the words of `contents.toml`, as a whole or next to words of the page."""
    app.env.note_dependency(DOCS / "contents.toml")
    words = CONTENTS["words"].get(app.env.current_document.docname, [])
    if words:
        entries = [("single", word, "", "main", None) for word in words]
        document.insert(0, [nodes.meta(name="keywords", content=", ".join(words)), addnodes.index(entries=entries)])


class GithubAnchors(SphinxPostTransform):
    """Give each heading the anchor that it has on GitHub, which addresses in program texts use."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:  # noqa: ARG002 (Sphinx passes it)
        """Put the slug before the identifiers that Sphinx has made."""
        for section in self.document.findall(nodes.section):
            slug = section.get("slug")
            if slug and slug not in section["ids"]:
                section["ids"].append(slug)


def redirect(app: Sphinx, exception: Exception | None) -> None:
    """Write a page at each old address that leads to the new one and keeps the anchor."""
    if exception or app.builder.format != "html":
        return
    for line in (DOCS / "redirects.txt").read_text("utf-8").splitlines():
        old, new = line.split()
        page = Path(app.outdir, old + ".html")
        if old in app.env.found_docs or new not in app.env.found_docs:
            logger.warning("redirects.txt: %s is a page, or %s is none", old, new)
            continue
        address = os.path.relpath(new + ".html", Path(old).parent)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(
            f'<!doctype html><meta charset="utf-8"><title>Moved</title><link rel="canonical" href="{address}">'
            f'<script>location.replace("{address}" + location.hash)</script>'
            f'<meta http-equiv="refresh" content="1; url={address}"><a href="{address}">This page has moved.</a>\n',
            "utf-8",
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the functions above to Sphinx."""
    app.connect("source-read", prepare)
    app.connect("doctree-read", add_words)
    app.connect("build-finished", redirect)
    app.add_post_transform(GithubAnchors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
