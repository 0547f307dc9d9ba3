"""Which dead letters a selection matches, and how times and dead letters are parsed and shown."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from dead_letter_entries import dead_fields
from hypothesis import given
from hypothesis import strategies as st

from ingest.cli.queues.action import list_reasons
from ingest.cli.terminal.text import counted, printable
from ingest.cli.terminal.times import InvalidTime, format_age, format_time, parse_time
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.selection import InvalidSelection, Selection
from ingest.queue.layout.entries import to_dead_letter

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def at(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def dead(entry_id: str = "1-0", order_id: str = "a", reason: str = "not_found", **fields: Any) -> DeadLetterEntry:
    return to_dead_letter(entry_id.encode(), dead_fields(order_id, reason, **{"dead_at": at(NOON), **fields}))


# -- selection ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "matches"),
    [
        (Selection(everything=True), True),
        (Selection(ids=frozenset({"7-1"})), True),
        (Selection(ids=frozenset({"a"})), True),
        (Selection(ids=frozenset({"b", "a"})), True),
        (Selection(ids=frozenset({"b", "7-10", "7"})), False),
        (Selection(reasons=frozenset({"not_found"})), True),
        (Selection(reasons=frozenset({DeadReason.NOT_FOUND, DeadReason.REJECTED})), True),
        (Selection(reasons=frozenset({"rejected"})), False),
        (Selection(since=NOON), True),
        (Selection(since=NOON + timedelta(milliseconds=1)), False),
        (Selection(until=NOON), False),
        (Selection(until=NOON + timedelta(milliseconds=1)), True),
        (Selection(since=NOON.astimezone(timezone(timedelta(hours=5))), until=NOON + timedelta(days=1)), True),
        (Selection(ids=frozenset({"a"}), reasons=frozenset({"not_found"}), since=NOON), True),
        (Selection(ids=frozenset({"a"}), reasons=frozenset({"rejected"})), False),
        (Selection(ids=frozenset({"b"}), reasons=frozenset({"not_found"})), False),
        (Selection(reasons=frozenset({"not_found"}), until=NOON), False),
    ],
)
def test_a_dead_letter_matches_a_selection_when_it_meets_every_criterion(
    selection: Selection, *, matches: bool
) -> None:
    assert selection.matches(dead("7-1")) is matches


@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"ids": frozenset()},
        {"everything": True, "ids": frozenset({"a"})},
        {"everything": True, "since": NOON},
        {"since": NOON, "until": NOON},
        {"since": NOON, "until": NOON - timedelta(days=1)},
    ],
)
def test_a_selection_without_or_with_contradicting_criteria_is_invalid(criteria: dict[str, Any]) -> None:
    with pytest.raises(InvalidSelection):
        Selection(**criteria)


def test_an_entry_without_an_order_id_is_found_by_its_own() -> None:
    nameless = to_dead_letter(b"7-1", {b"reason": b"invalid_message"})

    assert Selection(ids=frozenset({"7-1", "b"})).names(nameless) == {"7-1"}
    assert not Selection(ids=frozenset({"", "None"})).matches(nameless)


def test_both_ids_of_a_dead_letter_match_it() -> None:
    assert Selection(ids=frozenset({"7-1", "a", "b"})).names(dead("7-1")) == {"7-1", "a"}


# -- reading an entry ---------------------------------------------------------------------------------------------


def test_an_entry_is_read_with_all_that_dead_lettering_and_replaying_wrote() -> None:
    fields = dead_fields("a", "rejected", error="HTTP 400: é", attempts=4, worker="w-1", dead_at=1_700_000_000_123,
                    first_enqueued_at=1_600_000_000_001, replays=2, replayed_at=1_650_000_000_999, tenant="x", attempt=4)  # fmt: skip

    read = to_dead_letter(b"1700000000123-0", fields)

    assert read == DeadLetterEntry(
        entry_id="1700000000123-0",
        order_id="a",
        reason="rejected",
        error="HTTP 400: é",
        attempts=4,
        dead_at=datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        first_enqueued_at=datetime(2020, 9, 13, 12, 26, 40, 1_000, tzinfo=UTC),
        worker="w-1",
        replays=2,
        replayed_at=datetime(2022, 4, 15, 5, 20, 0, 999_000, tzinfo=UTC),
        fields={b"tenant": b"x", b"attempt": b"4"},
    )


@pytest.mark.parametrize("nonsense", [b"", b"-1", b"1e3", b"9" * 40, b"\xff", "٣".encode(), None])
def test_an_invalid_number_is_read_as_missing(nonsense: bytes | None) -> None:
    numbers = dict.fromkeys(("attempts", "dead_at", "first_enqueued_at", "replays", "replayed_at"), nonsense)

    read = to_dead_letter(b"1700000000123-0", dead_fields("a", **numbers))

    assert (read.attempts, read.first_enqueued_at, read.replays, read.replayed_at) == (None, None, 0, None)
    assert read.dead_at == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)


def test_an_entry_with_nothing_in_it_and_an_id_beyond_all_dates_is_read() -> None:
    read = to_dead_letter(b"18446744073709551615-18446744073709551615", {})

    assert (read.order_id, read.reason, read.error, read.worker) == (None, "", "", None)
    assert read.dead_at.year == 2286


def test_bytes_that_are_not_utf_8_are_read_as_escapes() -> None:
    read = to_dead_letter(b"1-0", dead_fields(b"\xff\x00", error=b"caf\xe9"))

    assert (read.error, read.order_id) == ("caf\\xe9", "\\xff\0")


# -- times --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOON - timedelta(seconds=90)),
        ("30m", NOON - timedelta(minutes=30)),
        ("2h", NOON - timedelta(hours=2)),
        ("1.5h", NOON - timedelta(minutes=90)),
        ("7d", NOON - timedelta(days=7)),
        ("1w", NOON - timedelta(days=7)),
        ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T08:30", datetime(2026, 1, 1, 8, 30, tzinfo=UTC)),
        ("2026-01-01 08:30:15.250", datetime(2026, 1, 1, 8, 30, 15, 250_000, tzinfo=UTC)),
        ("2026-01-01T08:30:00Z", datetime(2026, 1, 1, 8, 30, tzinfo=UTC)),
        ("2026-01-01T08:30:00+02:00", datetime(2026, 1, 1, 6, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_iso_8601_or_an_age(text: str, moment: datetime) -> None:
    parsed = parse_time(text, NOON)

    assert parsed == moment
    assert parsed.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    ["", "h", "2", "-2h", "2 h", "2H", "2y", "9999999999d", "1e9d", "٣h", "yesterday", "2026-13-01", "10:00",
     "0001-01-01T00:00+10:00"],
)  # fmt: skip
def test_an_invalid_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidTime, match="2h"):
        parse_time(text, NOON)


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001  hypothesis wants them so
def test_a_formatted_time_can_be_parsed(moment: datetime) -> None:
    assert parse_time(format_time(moment), NOON) == moment.replace(microsecond=0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0 s ago"),
        (0, "0 s ago"),
        (119, "119 s ago"),
        (120, "2 min ago"),
        (7_200, "2 h ago"),
        (864_000, "10 d ago"),
    ],
)
def test_an_age_is_shown_in_a_fitting_unit(seconds: int, shown: str) -> None:
    assert format_age(NOON - timedelta(seconds=seconds), NOON) == shown


# -- texts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zoë ☕", "Zoë ☕"),
        ("a\nb\tc\r\n", "a\\nb\\tc\\r\\n"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("[red]x[/red]", "[red]x[/red]"),
    ],
)
def test_text_that_could_control_a_terminal_is_shown_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 20))
def test_any_text_is_printable_on_one_line(text: str, most: int) -> None:
    assert printable(text).isprintable()
    assert printable(text, most).count("…") <= text.count("…") + 1


def test_a_text_is_shortened_to_the_limit() -> None:
    assert (printable("abcd", 4), printable("abcde", 4)) == ("abcd", "abc…")


def test_reasons_are_listed_the_most_frequent_first() -> None:
    assert list_reasons({"b": 1, "a": 1, "c": 2_000, "": 3}) == "2,000 c, 3 without a reason, 1 a, 1 b"


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert (counted(1, "dead letter"), counted(2_000, "dead letter")) == ("1 dead letter", "2,000 dead letters")
