"""The reference pages agree with the code, and links lead to existing pages."""

import re
import tomllib
from pathlib import Path

import pytest

from docs.shown_texts import shown_texts
from ingest.domain.deliveries.queue_state import QueueState
from ingest.telemetry.collectors import BuildCollector, ObservedQueue, QueueCollector
from ingest.telemetry.metrics import WORKER_METRICS
from ingest.telemetry.relay_metrics import RELAY_METRICS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = ROOT / "docs" / "reference"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_metrics_page_has_each_metric_with_its_labels() -> None:
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    gauges = [
        *QueueCollector(
            [ObservedQueue("", "x", QueueState(), {"0": QueueState()}, {"0": "a:1"}, troubles={("0", "slow"): "a:1"})]
        ).collect(),
        *BuildCollector().collect(),
    ]

    for spec in (*WORKER_METRICS.values(), *RELAY_METRICS):
        label = f"`{spec.label}` = {', '.join(spec.values)}" if spec.label else ""
        label = ", ".join(filter(None, ["`source`" if spec.by_source else "", label]))
        assert f"| `{spec.name}` | {spec.kind} | {label} | {spec.help} |" in page
    for metric in gauges:
        labels = ", ".join(f"`{name}`" for name in metric.samples[0].labels)
        assert f"| `{metric.name}` | {metric.type} | {labels} | {metric.documentation} |" in page


def test_no_text_installs_a_package_that_nobody_publishes() -> None:
    texts = [*PAGES, *ROOT.glob("ingest/**/*.py"), *ROOT.glob("deploy/**/*.md")]

    telling = [path for path in texts if "pip install 'order-ingest" in path.read_text(encoding="utf-8")]

    assert telling == []


def test_the_pages_for_developers_name_files_that_exist() -> None:
    pages = ("explanation/architecture.md", "contribute/extensions.md")
    page = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    named = re.findall(r"`(ingest/[\w./]+)`(?! \(\*new\*)", page)

    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)

    broken = [link for link in re.findall(r"\]\(\s*([^)\s]+)\s*\)", text) if not leads_somewhere(page, link)]

    assert broken == []


def test_each_page_stands_once_in_the_table_of_contents() -> None:
    contents = tomllib.loads((DOCS / "contents.toml").read_text("utf-8"))
    listed = [page for section in contents["section"] for page in section["pages"]]
    listed += [page for pages in contents["below"].values() for page in pages]
    found = sorted(
        path.relative_to(DOCS).as_posix().removesuffix(".md") for page in listed for path in DOCS.glob(f"{page}.md")
    )

    assert [page for page in listed if not [*DOCS.glob(f"{page}.md")]] == []
    assert found == sorted(
        path.relative_to(DOCS).as_posix().removesuffix(".md")
        for path in DOCS.rglob("*.md")
        if path != DOCS / "index.md"
    )


def leads_somewhere(page: Path, link: str) -> bool:
    if "://" in link:
        return True
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown page gets from its headings."""
    headings = re.findall(r"^#+ +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_no_text_that_is_shown_leads_to_a_file_that_an_installed_user_does_not_have() -> None:
    bare = re.compile(r"(?<![\w./-])(?:docs/[\w-]+|(?:[a-z]+/)?[\w-]+\.md\b)")

    assert {path: found for path, text in shown_texts().items() if (found := bare.findall(text))} == {}


def test_the_front_page_has_a_section_for_each_chapter_of_the_table_of_contents() -> None:
    contents = tomllib.loads((DOCS / "contents.toml").read_text("utf-8"))
    front_page = (DOCS / "index.md").read_text("utf-8")

    missing = [section["title"] for section in contents["section"] if f"\n## {section['title']}\n" not in front_page]

    assert missing == []
