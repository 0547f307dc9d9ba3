"""Writes times into the requests for a list, and reads the times of its elements."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ingest.upstream.lists.declaration import ListProblem

_SECOND = timedelta(seconds=1)
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,9})?", re.ASCII)
_UNIX: Mapping[str, float] = {"unix": 1.0, "unix_ms": 1_000.0}
_EARLIEST, _LATEST = 1e9, 1e10
_RFC_2822 = re.compile(
    r"\s*([A-Za-z]{3},\s*)?[0-9]{1,2} [A-Za-z]{3} [0-9]{4} [0-9]{1,2}:[0-9]{2}(:[0-9]{2})?( ([+-][0-9]{4}|(?![AP]M)[A-Z]{1,3}))?\s*",
    re.ASCII,
)
# From the finest directive of a format to the unit of time that it leaves out.
_UNITS = (("S", _SECOND), ("M", timedelta(minutes=1)), ("H", timedelta(hours=1)), ("I", timedelta(hours=1)))

Parse = Callable[[str], datetime]


class ListTimes:
    """The times of one list.

    A period is widened by a second at each end, because some lists exclude the time that they are filtered by, and most compare whole
    seconds.

    Args:
        time: `iso`, `iso_without_zone`, `unix`, `unix_ms`, `rfc2822`, or a format such as `%Y-%m-%d %H:%M:%S`.
        zone: time zone of times without one.
        parse: reads a time in such a format.

    Attributes:
        unit: how exactly times are written.

    Raises:
        ListProblem: one of them is unknown.
    """

    def __init__(self, time: str, zone: str, parse: Parse | None = None) -> None:
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ListProblem(f"unknown time zone {zone!r}: write a name such as Europe/Berlin", "zone") from None
        self._write = _writer(time)
        self._time, self._parse = time, parse
        self.unit = next(
            (unit for directive, unit in _UNITS if "%" not in time or f"%{directive}" in time), timedelta(days=1)
        )

    def start(self, moment: datetime) -> str:
        """Return the start of a period for a request."""
        return self._write(self._unambiguous(_whole(moment) - _SECOND, -1))

    def end(self, moment: datetime) -> str:
        """Return the end of a period for a request."""
        return self._write(self._unambiguous(_whole(moment) + _SECOND + self.unit, 1))

    def read(self, value: object) -> datetime | None:
        """Return the time in an element, or None if it is none. The format of the list is tried first."""
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return None
        for read in (self._read_own, self._read_number, self._read_text):
            try:
                if (moment := read(value)) is not None:
                    return self._in_utc(moment)
            except (ValueError, TypeError, OverflowError, OSError):
                continue
        return None

    def _read_own(self, value: float | str) -> datetime | None:
        if self._parse is not None:
            return self._parse(value) if isinstance(value, str) else None
        unit = _UNIX.get(self._time)
        return None if unit is None else datetime.fromtimestamp(float(value) / unit, UTC)

    def _read_number(self, value: float | str) -> datetime | None:
        """Return a Unix time in seconds or milliseconds from 2001 to 2286. Other numbers are no times, such as 20261128140500."""
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            return None
        number = float(value)
        units = (unit for unit in _UNIX.values() if _EARLIEST <= number / unit < _LATEST)
        return next((datetime.fromtimestamp(number / unit, UTC) for unit in units), None)

    def _read_text(self, value: float | str) -> datetime | None:
        if not isinstance(value, str):
            return None
        if _RFC_2822.fullmatch(value):
            return parsedate_to_datetime(value)
        return datetime.fromisoformat(value)

    def _in_utc(self, moment: datetime) -> datetime:
        if moment.tzinfo is None:
            # In the hour that is repeated when summer time ends, the later one: an order counts as changed rather than as unchanged.
            moment = moment.replace(tzinfo=self._zone, fold=1)
        return moment.astimezone(UTC)

    def _unambiguous(self, moment: datetime, direction: int) -> datetime:
        """Return a time in the zone, moved out of the hour that is repeated when summer time ends."""
        local = moment.astimezone(self._zone)
        earlier, later = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
        if earlier is None or later is None or earlier <= later:
            return local
        return (moment + direction * (earlier - later)).astimezone(self._zone)


def _whole(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)


def _writer(time: str) -> Callable[[datetime], str]:
    if "%" in time:
        return lambda moment: moment.strftime(time)
    if time not in _FORMATS:
        raise ListProblem(f"write one of {', '.join(_FORMATS)}, or a format such as %Y-%m-%d (got {time!r})", "time")
    return _FORMATS[time]


_FORMATS: Mapping[str, Callable[[datetime], str]] = {
    "iso": lambda moment: moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "iso_without_zone": lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%S"),
    "unix": lambda moment: str(int(moment.timestamp())),
    "unix_ms": lambda moment: str(int(moment.timestamp()) * 1_000),
    "rfc2822": format_datetime,
}
