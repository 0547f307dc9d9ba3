"""How a mapping reads timestamps, and how it orders the versions of an order by local times."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.domain.orders.order import InvalidDocument, Order
from ingest.mapping.compiled.mapping import CompiledMapping
from ingest.mapping.errors import MappingError
from ingest.mapping.load import compile_mapping

MAPPING = """
[order]
id = "id"
status = {{ value = "placed" }}
placed_at = {field}
updated_at = {field}
currency = {{ value = "EUR" }}
[[lines]]
from = "items"
sku = "sku"
quantity = "quantity"
unit_price = "price"
"""


def mapping_with(**keys: str) -> CompiledMapping:
    given = "".join(f', {name} = "{value}"' for name, value in keys.items())
    return compile_mapping(MAPPING.format(field=f'{{ path = "at"{given} }}'))


def order_at(value: Any, **keys: str) -> Order:
    return mapping_with(**keys).decode(json.dumps({"id": "a", "at": value, "items": []}).encode(), None)


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        ({"format": "rfc2822"}, "Tue, 20 Nov 2012 00:00:00 +0000", "2012-11-20T00:00:00+00:00"),
        ({"format": "rfc2822"}, "Tue, 20 Nov 2012 01:02:03 -0500", "2012-11-20T01:02:03-05:00"),
        ({"format": "rfc2822"}, "20 Nov 2012 01:02 GMT", "2012-11-20T01:02:00+00:00"),
        ({"format": "rfc2822"}, "Tue, 20 Nov 2012 01:02:03 EST", "2012-11-20T01:02:03-05:00"),
        ({"format": "rfc2822"}, "Tue, 20 Nov 2012 01:02:03 -0000", "2012-11-20T01:02:03+00:00"),
        ({"format": "rfc2822", "zone": "+02:00"}, "Tue, 20 Nov 2012 01:02:03", "2012-11-20T01:02:03+02:00"),
        ({"format": "%d.%m.%Y %H:%M", "zone": "UTC"}, "23.01.2025 23:10", "2025-01-23T23:10:00+00:00"),
        ({"format": "%d.%m.%Y", "zone": "Europe/Berlin"}, "23.07.2025", "2025-07-23T00:00:00+02:00"),
        ({"format": "%m/%d/%Y %I:%M %p", "zone": "UTC"}, "01/23/2025 11:10 PM", "2025-01-23T23:10:00+00:00"),
        ({"format": "%Y%m%d%H%M%S", "zone": "UTC"}, "20250123231016", "2025-01-23T23:10:16+00:00"),
        ({"format": "%d %b %Y %H:%M:%S %z"}, "23 Jan 2025 23:10:16 -0500", "2025-01-23T23:10:16-05:00"),
        ({"format": "%Y-%m-%d %H:%M:%S.%f UTC", "zone": "UTC"}, "2025-01-23 23:10:16.5 UTC", "2025-01-23T23:10:16.5Z"),
        ({"format": "%A, %d %B %y, %H:%M%z"}, "Thursday, 23 January 25, 23:10Z", "2025-01-23T23:10:00+00:00"),
    ],
)
def test_formats_of_feeds(keys: dict[str, str], value: str, expected: str) -> None:
    order = order_at(value, **keys)

    assert order.placed_at == order.updated_at == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        ({"format": "rfc2822"}, "2012-11-20T00:00:00Z", "not a timestamp in RFC 2822"),
        ({"format": "rfc2822"}, "Tue, 99 Nov 2012 00:00:00 +0000", "not a timestamp in RFC 2822"),
        ({"format": "rfc2822"}, "", "not a timestamp in RFC 2822"),
        ({"format": "rfc2822"}, 7, "expected `str` with a timestamp, got `int`"),
        ({"format": "rfc2822"}, "Tue, 20 Nov 2012 01:02:03", "a timestamp without a time zone"),
        ({"format": "%d.%m.%Y"}, "23.01.2025", "a timestamp without a time zone"),
        ({"format": "%d.%m.%Y", "zone": "UTC"}, "2025-01-23", "not a timestamp in the format of the mapping"),
        ({"format": "%d.%m.%Y", "zone": "UTC"}, None, "no value for `placed_at`"),
        ({"format": "%d.%m.%Y", "zone": "UTC"}, [], "expected `str` with a timestamp, got `array`"),
    ],
)
def test_a_timestamp_in_another_format_is_an_error(keys: dict[str, str], value: Any, problem: str) -> None:
    with pytest.raises(InvalidDocument, match=problem):
        order_at(value, **keys)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"format": "ISO"}, "unknown format 'ISO': write iso, rfc2822, unix, unix_ms or a pattern such as %d.%m.%Y"),
        ({"format": "%d.%m. %H:%M"}, "the format needs the year, the month and the day: %Y, %m and %d"),
        ({"format": "%H:%M"}, "the format needs the year, the month and the day: %Y, %m and %d"),
        ({"format": "%d.%m.%Y %Z"}, "`%Z` is not supported in a format"),
        ({"format": "%c"}, "`%c` is not supported in a format"),
        ({"format": "%d.%m.%Y %"}, "`%` is not supported in a format"),
        ({"format": "%s"}, "`%s` is not supported in a format"),
        ({"format": "unix", "zone": "UTC"}, "`zone` is for local times, but Unix time is always in UTC"),
    ],
)
def test_a_format_that_cannot_be_used_is_an_error_of_the_file(keys: dict[str, str], problem: str) -> None:
    with pytest.raises(MappingError) as error:
        mapping_with(**keys)

    assert error.value.problem == problem


ZONES = [
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    # The repeated time is half an hour.
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
]


@given(
    st.sampled_from(ZONES), st.integers(-3 * 3600, 3 * 3600), st.integers(-3 * 3600, 3 * 3600), st.integers(0, 999_999)
)
def test_a_later_version_never_sorts_before_an_earlier_one(
    change: tuple[str, datetime], one: int, other: int, microseconds: int
) -> None:
    zone, at = change
    moments = sorted(at + timedelta(seconds=seconds, microseconds=microseconds) for seconds in (one, other))
    mapping = mapping_with(zone=zone)

    def version(moment: datetime) -> datetime:
        local = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None).isoformat()
        order = mapping.decode(json.dumps({"id": "a", "at": local, "items": []}).encode(), None)
        assert order.updated_at is not None
        return order.updated_at.astimezone(UTC)

    earlier, later = map(version, moments)

    assert earlier <= later
    assert abs(later - moments[1]) <= timedelta(hours=1)


def test_local_times_outside_the_repeated_hour_are_exact() -> None:
    for value, expected in [
        ("01:59:59.999999", 23),
        ("02:00:00", 1),
        ("02:30:00", 1),
        ("02:59:59.999999", 1),
        ("03:00", 2),
    ]:
        order = order_at(f"2026-10-25T{value}", zone="Europe/Berlin")
        assert order.updated_at is not None
        assert order.updated_at.astimezone(UTC).hour == expected

    # The time of the sale is not a version, and counts as the first pass.
    assert order_at("2026-10-25T02:30", zone="Europe/Berlin").placed_at.astimezone(UTC).hour == 0
    # With an offset there is no doubt, and neither is there in a fixed zone.
    assert order_at("2026-10-25T02:30+02:00", zone="Europe/Berlin").updated_at == datetime(
        2026, 10, 25, 0, 30, tzinfo=UTC
    )
    assert order_at("2026-10-25T02:30", zone="+02:00").updated_at == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    # A time that the clocks have skipped.
    skipped = order_at("2026-03-29T02:30", zone="Europe/Berlin").updated_at
    assert skipped is not None
    assert skipped.astimezone(UTC) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("currency", "amount", "expected"),
    [
        ("usd", 1099, "10.99"),
        ("jpy", 500, "500"),
        ("mga", 500, "500"),
        ("kwd", 5120, "5.120"),
        ("isk", 500, "5.00"),
        ("ugx", 500, "5.00"),
        ("huf", 1000, "10.00"),
        ("twd", 80000, "800.00"),
        ("clp", 7, "7"),
        ("iqd", 700, "7.00"),
    ],
)
def test_minor_units_of_stripe(currency: str, amount: int, expected: str) -> None:
    text = MAPPING.format(field='{ path = "at" }').replace(
        '{ value = "EUR" }', '{ path = "currency", change_case = "upper" }'
    )
    mapping = compile_mapping(text.replace('"price"', '{ path = "price", minor_units = "stripe" }'))
    item = {"sku": "a", "quantity": 1, "price": amount}
    body = json.dumps({"id": "a", "at": "2026-01-01T00:00:00Z", "currency": currency, "items": [item]})

    assert str(mapping.decode(body.encode(), None).lines[0].unit_price) == expected
