"""The description of a list in the configuration, and the times in its requests."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ingest.domain.errors import ConfigError
from ingest.mapping.compiled.timestamps import timestamp_parser
from ingest.settings import Settings, load_settings
from ingest.settings.masked_values import effective_source
from ingest.settings.source_file import source_settings
from ingest.sources.from_settings import source_of
from ingest.upstream.lists.declaration import ListProblem
from ingest.upstream.lists.times import ListTimes

SHOP = "[sources.shop-de.upstream]\nurl = 'https://shop.example/orders/{order_id}'\n"
LIST = "[sources.shop-de.list]\nurl = 'https://shop.example/orders?since={since}'\n"

Read = Callable[[str], Settings]


@pytest.fixture
def read(home: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.setenv("INGEST_SOURCES", "sources.toml")

    def read(text: str) -> Settings:
        (home / "sources.toml").write_text(text)
        return source_settings(load_settings())["shop-de"]

    return read


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("itmes = 'a'", "line 5, sources.shop-de.list.itmes: unknown key `itmes`; did you mean `items`?"),
        ("id = 1", "line 5, sources.shop-de.list.id: Expected `str`, got `int`"),
        ("items = 'a[0]'", "line 5, sources.shop-de.list.items: must be names of members"),
        ("amount = 'total.'", "line 5, sources.shop-de.list.amount: must be names of members"),
        ("next = 'page'", "line 4, sources.shop-de.list.url: must contain {cursor} for the number"),
        ("method = 'GET'\nbody = {}", "line 6, sources.shop-de.list.body: has no effect with GET"),
        ("body = '{'", "line 5, sources.shop-de.list.body: must be JSON"),
        ("zone = 'Mars'", "line 5, sources.shop-de.list.zone: unknown time zone 'Mars'"),
        ("time = '%A'", "line 5, sources.shop-de.list.time: the format needs the year"),
        ("time = '%Y-%m-%d %Q'", "line 5, sources.shop-de.list.time: `%Q` is not supported"),
        ("amount = { path = 'a', minor_units = 'currency' }", "sources.shop-de.list.amount.currency: `minor_units ="),
        ("time = 'epoch'", "line 5, sources.shop-de.list.time: write one of iso, "),
        ("overlap = 'soon'", "line 5, sources.shop-de.list.overlap: write seconds"),
        ("overlap = '8d'", "line 5, sources.shop-de.list.overlap: must be from 0 to 7 days"),
        ("body = {a = 2026-10-01}", "line 3, sources.shop-de.list: must not contain dates and times of TOML"),
    ],
)
def test_an_error_names_the_path_of_its_key(read: Read, keys: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(read(SHOP + LIST + keys), {})

    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("https://shop.example/orders", "must contain {since}"),
        ("ftp://shop.example/{since}", "must be an http or https URL"),
        ("https://{since}/", "must be an http or https URL"),
        ("https://shop.example/?s={since}&p={page}", "unknown placeholder {page}"),
        ("https://shop.example/?s={since}&p={cursor}", "must not contain {cursor}"),
    ],
)
def test_a_url_that_cannot_be_used_is_rejected(read: Read, url: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(read(f"{SHOP}[sources.shop-de.list]\nurl = '{url}'"), {})

    assert f"sources.shop-de.list.url: {error}" in str(caught.value)


def test_a_list_may_be_in_a_file_of_its_own(read: Read, home: Path) -> None:
    (home / "list.toml").write_text("url = 'https://shop.example/orders?since={since}'\noverlap = '10m'")

    named = source_of(read("[sources.shop-de]\nlist = 'list.toml'\npoll = '2m'\n" + SHOP), {})

    assert named.order_list is not None
    assert named.order_list.overlap.total_seconds() == 600
    assert named.poll == 120


def test_a_poll_needs_a_list(read: Read) -> None:
    with pytest.raises(ConfigError, match=r"^sources\.shop-de\.poll is set without sources\.shop-de\.list"):
        source_of(read("[sources.shop-de]\npoll = '5m'\n" + SHOP), {})


def test_the_unnamed_source_has_a_list_too() -> None:
    text = json.dumps({"url": "https://shop.example/orders?since={since}", "items": 5})

    with pytest.raises(ConfigError, match=r"^INGEST_ORDER_LIST: items: Expected `str`"):
        source_of(load_settings(order_list=text), {})


def test_values_of_the_url_are_masked(read: Read) -> None:
    shown = effective_source(read(SHOP + LIST.replace("{since}", "{since}&key=s3cret")))

    assert json.loads(shown["order_list"])["url"] == "https://shop.example/orders?since={since}&key=***"


MOMENT = datetime(2026, 10, 1, 12, 0, 0, 5, UTC)


@pytest.mark.parametrize(
    ("time", "zone", "start"),
    [
        ("iso", "Europe/Berlin", "2026-10-01T11:59:59Z"),
        ("iso_without_zone", "UTC", "2026-10-01T11:59:59"),
        ("iso_without_zone", "Europe/Berlin", "2026-10-01T13:59:59"),
        ("unix", "UTC", "1790855999"),
        ("unix_ms", "UTC", "1790855999000"),
        ("rfc2822", "UTC", "Thu, 01 Oct 2026 11:59:59 +0000"),
        ("%Y-%m-%d %H:%M:%S", "UTC", "2026-10-01 11:59:59"),
        ("%Y-%m-%dT%H:%M:%S%z", "Europe/Berlin", "2026-10-01T13:59:59+0200"),
    ],
)
def test_times_are_written_as_the_shop_reads_them(time: str, zone: str, start: str) -> None:
    assert ListTimes(time, zone).start(MOMENT) == start


@pytest.mark.parametrize(
    "value",
    [
        "2026-10-01T12:00:00Z",
        "2026-10-01T08:00:00-04:00",
        "2026-10-01 14:00:00",
        "Thu, 01 Oct 2026 12:00:00 +0000",
        1790856000,
        "1790856000",
        1790856000000,
        1790856000.0,
        "1 Oct 2026 12:00 GMT",
    ],
)
def test_times_of_elements_are_read_in_any_form(value: object) -> None:
    assert ListTimes("iso", "Europe/Berlin").read(value) == MOMENT.replace(microsecond=0)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "soon",
        True,
        [],
        {},
        1e300,
        "9" * 30,
        20261128140500,
        "20261128140500",
        "10/01/2026 2:05 PM",
        12,
        "5 Oct 2026 2:05 PM",
    ],
)
def test_other_values_are_no_times(value: object) -> None:
    assert ListTimes("iso", "UTC").read(value) is None


@pytest.mark.parametrize(
    ("time", "value"),
    [
        ("%d.%m.%Y %H:%M", "01.10.2026 14:00"),
        ("%m/%d/%Y %I:%M %p", "10/01/2026 2:00 PM"),
        ("%Y%m%d%H%M%S", "20261001140000"),
        ("unix_ms", 1790856000000),
        ("unix", "1790856000"),
        ("%d.%m.%Y %H:%M", "2026-10-01T12:00:00Z"),
    ],
)
def test_times_of_elements_are_read_in_the_declared_format_first(time: str, value: object) -> None:
    parse = timestamp_parser(time, ())[0] if "%" in time else None
    assert ListTimes(time, "Europe/Berlin", parse).read(value) == MOMENT.replace(microsecond=0)


def test_a_period_in_whole_minutes_contains_its_last_minute() -> None:
    times = ListTimes("%Y-%m-%d %H:%M", "UTC")

    assert (times.start(MOMENT), times.end(MOMENT)) == ("2026-10-01 11:59", "2026-10-01 12:01")


def test_a_period_includes_the_repeated_hour_whichever_the_shop_means() -> None:
    times = ListTimes("iso_without_zone", "Europe/Berlin")
    first, second = (datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1))

    assert [times.start(first), times.start(second)] == ["2026-10-25T01:29:59", "2026-10-25T02:29:59"]
    assert [times.end(first), times.end(second)] == ["2026-10-25T02:30:02", "2026-10-25T03:30:02"]
    assert times.read("2026-10-25T02:30:00") == second


def test_an_unknown_format_is_a_problem_of_its_key() -> None:
    with pytest.raises(ListProblem) as caught:
        ListTimes("x", "UTC")

    assert caught.value.keys == ("time",)
