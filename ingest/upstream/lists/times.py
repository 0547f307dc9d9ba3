"""Writes times into the requests for a list, and reads the times of its elements."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ingest.upstream.lists.declaration import ListProblem

_SECOND = timedelta(seconds=1)
_DIRECTIVES = frozenset("YmdHMSz%")
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,9})?", re.ASCII)
# Unix times in milliseconds are larger, and in seconds they are smaller until the year 5138.
_MILLISECONDS_FROM = 1e11


class ListTimes:
    """The times of one list.

    A period is widened by a second at each end, because some lists exclude the time that they are filtered by, and most compare whole
    seconds.

    Args:
        time: `iso`, `iso_without_zone`, `unix`, `unix_ms`, `rfc2822`, or a format such as `%Y-%m-%d %H:%M:%S`.
        zone: time zone of times without one.

    Raises:
        ListProblem: one of them is unknown.
    """

    def __init__(self, time: str, zone: str) -> None:
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ListProblem(f"unknown time zone {zone!r}: write a name such as Europe/Berlin", "zone") from None
        self._write = _writer(time)

    def start(self, moment: datetime) -> str:
        """Return the start of a period for a request."""
        return self._write(self._unambiguous(_whole(moment) - _SECOND, -1))

    def end(self, moment: datetime) -> str:
        """Return the end of a period for a request."""
        return self._write(self._unambiguous(_whole(moment) + 2 * _SECOND, 1))

    def read(self, value: object) -> datetime | None:
        """Return the time in an element, or None if it is none."""
        try:
            if isinstance(value, str) and not _NUMBER.fullmatch(value):
                return self._read_text(value)
            if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                number = float(value)
                seconds = number / 1_000 if abs(number) >= _MILLISECONDS_FROM else number
                return datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            pass
        return None

    def _read_text(self, text: str) -> datetime:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = parsedate_to_datetime(text)
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
        if not set(re.findall(r"%(.?)", time)) <= _DIRECTIVES:
            raise ListProblem(f"supports %Y %m %d %H %M %S %z only (got {time!r})", "time")
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
