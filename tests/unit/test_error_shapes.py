"""Errors that differ only in values share one shape."""

import pytest

from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.error_shape import error_shape


@pytest.mark.parametrize(
    ("error", "shape"),
    [
        ("currency missing at $.total_price_set", "currency missing at $.total_price_set"),
        (
            "Expected `decimal`, got `str` - at `$.lines[3].price`",
            "Expected `decimal`, got `str` - at `$.lines[].price`",
        ),
        ("HTTP 404", "HTTP 404"),
        ("HTTP 422: order 12345 is unknown", "HTTP 422: order N is unknown"),
        ('no key "abc 12" in 2026-11-28T10:00:00.123Z, after 2.5s (30 tries)', "no key '…' in TIME, after N (N tries)"),
        ("the response is truncated after 1,234 bytes", "the response is truncated after N bytes"),
        ("order SO/2026/12 of 550e8400-e29b-41d4-a716-446655440000", "order ID of ID"),
        ("gid://shopify/Order/123 not found", "URL not found"),
        ("#1001 is not valid utf-8", "ID is not valid utf-8"),
        ("Invalid RFC3339 encoded datetime", "Invalid RFC3339 encoded datetime"),
        ("größe 'x' fehlt", "größe '…' fehlt"),
        ("", ""),
    ],
)
def test_a_shape_keeps_statuses_and_paths_and_replaces_values(error: str, shape: str) -> None:
    assert error_shape(error) == shape
    assert error_shape(shape) == shape


def test_a_long_error_has_a_short_shape() -> None:
    assert len(error_shape("x1 " * 10_000)) <= 300


@pytest.mark.parametrize(
    ("criteria", "matches"),
    [
        (EntryFilter(), True),
        (EntryFilter(text="ORDER 7"), True),
        (EntryFilter(text="a-1"), True),
        (EntryFilter(text="order 8"), False),
        (EntryFilter(shape="HTTP 422: order N"), True),
        (EntryFilter(shape="HTTP 422: order 9"), True),
        (EntryFilter(shape="HTTP 404: order N"), False),
        (EntryFilter(attributes={"origin": "api"}), True),
        (EntryFilter(attributes={"tenant": "x", "worker": "w"}), True),
        (EntryFilter(attributes={"tenant": "y"}), False),
        (EntryFilter(attributes={"absent": ""}), False),
    ],
)
def test_a_filter_matches_by_text_shape_and_fields(criteria: EntryFilter, *, matches: bool) -> None:
    fields = {b"source": b"api", b"tenant": b"x"}

    assert criteria.matches("A-1", "HTTP 422: order 7", fields, "w") is matches
