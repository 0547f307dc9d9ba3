"""The reference pages that are generated from the code: `make reference`."""

from collections.abc import Iterator
from pathlib import Path

from ablation import safeguards

from docs.reference.commands import command_pages
from docs.reference.http_api import http_api_pages
from docs.reference.operations import operations_of_keys
from docs.reference.settings import settings_page
from ingest.services.http.api_routes import all_described

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SAFEGUARDS = REFERENCE.parent / "explanation" / "safeguards.md"


def generated() -> Iterator[tuple[Path, str]]:
    """The file and the text of each generated page."""
    for name, text in http_api_pages(all_described()):
        yield REFERENCE / f"{name}.md", text
    yield REFERENCE / "settings.md", settings_page()
    keys = REFERENCE.parent / "enqueue" / "api-keys.md"
    yield keys, operations_of_keys(keys.read_text(encoding="utf-8"))
    yield SAFEGUARDS, safeguards.page()
    for name, text in command_pages():
        yield REFERENCE / "cli" / f"{name}.md", text
