"""The site is built without a warning, and all addresses lead to one of its pages."""

import re
import tomllib
from pathlib import Path

import pytest

from docs.links import Site
from docs.shown_texts import shown_texts

# The site is built once, which takes minutes on a loaded machine.
pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_each_link_of_the_site_leads_to_a_page_and_an_anchor(site: Site) -> None:
    assert site.broken() == []
    assert len(site.pages) > 60


def test_each_help_text_alert_and_unit_leads_to_a_page_and_an_anchor_of_the_site(site: Site) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    published = re.escape(project["urls"]["Documentation"])

    addresses = {page for text in shown_texts().values() for page in re.findall(rf"{published}/([^\s\"'`<>,)]+)", text)}

    assert {"deploy/systemd.html", "operate/alerts.html#ingestqueueold"} <= addresses
    assert sorted(address for address in addresses if not site.leads_somewhere("index.html", address)) == []


def test_each_old_address_leads_to_a_page(site: Site) -> None:
    moved = [line.split() for line in (DOCS / "redirects.txt").read_text("utf-8").splitlines()]

    assert [old for old, _ in moved if not site.leads_somewhere("index.html", f"{old}.html")] == []


def test_a_page_requests_no_file_from_another_host(site: Site) -> None:
    requested = re.compile(r"<(?:script|img|link rel=\"(?:stylesheet|icon)\")[^>]*(?:src|href)=\"(?:https?:)?//[^\"]+")

    found = {
        name: requested.findall((site.folder / name).read_text("utf-8"))
        for name in ("index.html", "operate/console.html", "search.html")
    }

    assert not any(found.values()), found
