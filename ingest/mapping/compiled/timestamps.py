"""Converts texts and numbers to timestamps, or raises `Mismatch`."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ingest.domain.toml_errors import Keys
from ingest.mapping.compiled.conversions import MAX_MAGNITUDE, ROUNDING, Convert, to_decimal
from ingest.mapping.compiled.declaration import Field
from ingest.mapping.errors import MappingError, Mismatch, type_name

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX = {"unix": "seconds", "unix_ms": "milliseconds"}
# Others depend on the language of the system, or are not read back reliably.
_DIRECTIVES = frozenset("YymdHIMSfpzjbBaA%")
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_SAMPLE = datetime(2026, 11, 27, 21, 34, 56, tzinfo=UTC)
_OFFSET_LENGTH = len("+00:00")
_SECOND = timedelta(seconds=1)
_NO_ZONE = "a timestamp without a time zone, and without `zone` in the mapping"


def timestamp_conversion(field: Field, keys: Keys, *, is_version: bool) -> Convert:
    """Return the conversion of timestamps that a field declares.

    Args:
        field: with `format` and `zone`.
        keys: its location in the file.
        is_version: whether the timestamps order the versions of an order.

    Raises:
        MappingError: it cannot be used.
    """
    if field.format in _UNIX:
        if field.zone is not None:
            raise MappingError("`zone` is for local times, but Unix time is always in UTC", (*keys, "zone"))
        return _unix_timestamp(_UNIX[field.format])
    zone = None if field.zone is None else _zone(field.zone, (*keys, "zone"))
    parse, name = timestamp_parser(field.format or "iso", (*keys, "format"))
    local = _version_in if is_version and isinstance(zone, ZoneInfo) else _time_in

    def convert(value: Any) -> datetime:
        if value.__class__ is str:
            try:
                moment = parse(value)
            except (ValueError, TypeError, IndexError, OverflowError):
                raise Mismatch(f"got a `str` that is not a timestamp in {name}") from None
        else:
            moment = _constant(value)
        if moment.tzinfo is not None:
            return moment
        if zone is None:
            raise Mismatch(_NO_ZONE)
        return local(moment, zone)

    return convert


def constant_timestamp(value: Any) -> datetime:
    """Return a timestamp of the mapping file, which needs a time zone."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else _constant(value)
    except ValueError:
        raise Mismatch("got a `str` that is not a timestamp in ISO 8601") from None
    if moment.tzinfo is None:
        raise Mismatch(_NO_ZONE)
    return moment


def _constant(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise Mismatch(f"expected `str` with a timestamp, got {type_name(value)}")
    return value


def timestamp_parser(name: str, keys: Keys) -> tuple[Callable[[str], datetime], str]:
    """Return the function that reads a format, and the name of the format for errors."""
    if name == "iso":
        return datetime.fromisoformat, "ISO 8601"
    if name == "rfc2822":
        return _rfc2822_timestamp, "RFC 2822"
    if "%" not in name:
        raise MappingError(
            f"unknown format {name!r}: write iso, rfc2822, unix, unix_ms or a pattern such as %d.%m.%Y", keys
        )
    _check_pattern(name, keys)
    return lambda text: datetime.strptime(text, name), "the format of the mapping"  # noqa: DTZ007  the zone follows


def _check_pattern(pattern: str, keys: Keys) -> None:
    """Check that a pattern contains a whole date, and only directives that mean the same everywhere."""
    directives = _DIRECTIVE.findall(pattern)
    for directive in directives:
        if directive not in _DIRECTIVES:
            raise MappingError(f"`%{directive}` is not supported in a format", keys)
    try:
        read = datetime.strptime(_SAMPLE.strftime(pattern), pattern)  # noqa: DTZ007  only its date counts
        is_date = read.date() == _SAMPLE.date()
    except ValueError:
        is_date = False
    if not is_date:
        raise MappingError("the format needs the year, the month and the day: %Y, %m and %d", keys)


def _rfc2822_timestamp(text: str) -> datetime:
    moment = parsedate_to_datetime(text)
    # `-0000` is the time in UTC of a sender that hides its own zone.
    is_utc = moment.tzinfo is None and text.rstrip().endswith("-0000")
    return moment.replace(tzinfo=UTC) if is_utc else moment


def _unix_timestamp(unit: str) -> Convert:
    """Return the conversion of seconds or milliseconds since 1970, with `unit` as an argument of `timedelta`."""
    microseconds = Decimal(timedelta(**{unit: 1}) // timedelta(microseconds=1))

    def convert(value: Any) -> datetime:
        if value.__class__ is datetime:
            return value
        number = to_decimal(value)
        if abs(number.adjusted()) > MAX_MAGNITUDE:
            raise Mismatch("a timestamp out of range")
        try:
            return _EPOCH + timedelta(microseconds=int(ROUNDING.multiply(number, microseconds)))
        except OverflowError:
            raise Mismatch("a timestamp out of range") from None

    return convert


def _time_in(moment: datetime, zone: tzinfo) -> datetime:
    return moment.replace(tzinfo=zone)


def _version_in(moment: datetime, zone: tzinfo) -> datetime:
    """Return a local time that never precedes the time of an earlier event.

    When clocks are set back, an hour is repeated. A local time in it does not show whether it is of the first or the second pass, so that
    02:10 may be later than 02:50. All of these times become the moment of the change. They are then the same version, and
    the document that is fetched later is stored.
    """
    first, second = moment.replace(tzinfo=zone, fold=0), moment.replace(tzinfo=zone, fold=1)
    offset = first.utcoffset()
    if offset == second.utcoffset():
        return first
    before, after = first.astimezone(UTC), second.astimezone(UTC)
    if before > after:
        return first  # a time that the clocks have skipped
    while after - before > _SECOND:
        middle = before + (after - before) // 2
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after.replace(microsecond=0)


def _zone(name: str, keys: Keys) -> tzinfo:
    sign, hours, minutes = name[:1], name[1:3], name[4:]
    try:
        if sign in {"+", "-"} and len(name) == _OFFSET_LENGTH and name[3] == ":":
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            return timezone(offset if sign == "+" else -offset)
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ValueError, ZoneInfoNotFoundError, OSError):
        raise MappingError(f"unknown time zone {name!r}: write UTC, +01:00 or Europe/London", keys) from None
