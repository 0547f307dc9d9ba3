"""A dead letter as JSON."""

from datetime import UTC, datetime

import pytest

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.operations.failed_orders.entry_json import shown as shown_dead_letter

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({b"origin": b"webhook:shop", b"other": b"1"}, {"origin": "webhook:shop", "other": "1"}),
        ({b"source": b"webhook:shop", b"other": b"1"}, {"origin": "webhook:shop", "other": "1"}),
        ({b"source": b"a", b"origin": b"b"}, {"source": "a", "origin": "b"}),
    ],
)
def test_the_field_that_earlier_releases_call_source_is_shown_as_the_origin(
    fields: dict[bytes, bytes], shown: dict[str, str]
) -> None:
    entry = DeadLetterEntry("1-1", "A", "rejected", "", 1, NOW, None, None, 0, None, fields)

    found = shown_dead_letter(entry, "shop-de")

    assert (found.source, found.fields) == ("shop-de", shown)
