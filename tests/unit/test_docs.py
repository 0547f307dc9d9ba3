"""The reference pages say what the code does, and links lead to pages that exist."""

import ast
import re
from pathlib import Path

import pytest
from pydantic import SecretStr

import ingest
from ingest.domain.queue_state import QueueState
from ingest.settings import PREFIX, Settings
from ingest.telemetry.collectors import BuildCollector, QueueCollector
from ingest.telemetry.metrics import WORKER_METRICS
from ingest.telemetry.relay_metrics import RELAY_METRICS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_settings_page_has_each_setting_with_its_default_and_description() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")

    for name, field in Settings.model_fields.items():
        default = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
        shown = "" if default in {None, ""} else f"`{default}`"
        assert f"| `{PREFIX}{name.upper()}` | {shown} | {field.description} |" in page


def test_the_metrics_page_has_each_metric_with_its_labels() -> None:
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    gauges = [*QueueCollector("x", QueueState()).collect(), *BuildCollector().collect()]

    for spec in (*WORKER_METRICS, *RELAY_METRICS):
        label = f"`{spec.label}` = {', '.join(spec.values)}" if spec.label else ""
        assert f"| `{spec.name}` | {spec.kind} | {label} | {spec.help} |" in page
    for metric in gauges:
        labels = ", ".join(f"`{name}`" for name in metric.samples[0].labels)
        assert f"| `{metric.name}` | {metric.type} | {labels} | {metric.documentation} |" in page


def test_no_text_installs_a_package_that_nobody_publishes() -> None:
    texts = [*PAGES, *ROOT.glob("ingest/**/*.py"), *ROOT.glob("deploy/**/*.md")]

    telling = [path for path in texts if "pip install 'order-ingest" in path.read_text(encoding="utf-8")]

    assert telling == []


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(ingest/[\w./]+)`(?! \(\*new\*)", page)

    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)

    broken = [link for link in re.findall(r"\]\(\s*([^)\s]+)\s*\)", text) if not leads_somewhere(page, link)]

    assert broken == []


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


def _python_blocks() -> list[tuple[str, str]]:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    return [
        (f"{page.relative_to(ROOT)}:{number}", block)
        for page in pages
        for number, block in enumerate(
            re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL), 1
        )
    ]


@pytest.mark.parametrize(("place", "block"), _python_blocks())
def test_an_example_in_python_compiles_and_imports_what_is_public(place: str, block: str) -> None:
    compile(block, place, "exec")
    tree = ast.parse(block, place)

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ingest":
            assert node.module == "ingest", f"{place}: {node.module} is not public"
            assert {alias.name for alias in node.names} <= set(ingest.__all__), place


def test_no_alert_or_help_text_leads_to_a_file_that_an_installed_user_does_not_have() -> None:
    texts = [*(ROOT / "deploy/prometheus/rules").glob("*.yml"), *(ROOT / "deploy/systemd").iterdir()]
    found = [
        line for text in texts for line in text.read_text().splitlines() if re.search(r"(?<![/\w])docs/[a-z]", line)
    ]
    modules = (ROOT / "ingest/cli").rglob("*.py")
    found += [
        line for module in modules for line in module.read_text().splitlines() if re.search(r": docs/[a-z]", line)
    ]

    assert [line for line in found if not line.lstrip().startswith("#")] == []
