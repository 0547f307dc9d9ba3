"""The bodies of requests that change dead letters and retries. A selection never includes everything by omission."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from aiohttp import web

from ingest.api.http.json_responses import JSON
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits, read_body
from ingest.domain.deliveries.dead_letter import InvalidSelection, Selection
from ingest.domain.deliveries.retry_selection import RetrySelection

_MOST_IDS = 1000
_LONGEST = 128
_T = TypeVar("_T")


class RetriesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which retries: those that match all that is given.

    Attributes:
        ids: orders.
        reasons: why they are tried again.
        everything: all retries, required without criteria.
        dry_run: only count them.
    """

    ids: list[str] = []
    reasons: list[str] = []
    everything: bool = False
    dry_run: bool = False

    def selection(self) -> RetrySelection:
        """The selection.

        Raises:
            Problem: 422.
        """
        _check(self.ids, self.reasons)
        try:
            return RetrySelection(frozenset(self.ids), frozenset(self.reasons), everything=self.everything)
        except InvalidSelection as error:
            raise _invalid(str(error)) from error


class DeadLettersBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters: those that match all that is given.

    Attributes:
        ids: dead letters, or orders.
        reasons: of the dead letters.
        since: dead-lettered at this time or later.
        until: dead-lettered before this time.
        everything: all dead letters, required without criteria.
        dry_run: only count them.
    """

    ids: list[str] = []
    reasons: list[str] = []
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    dry_run: bool = False

    def selection(self) -> Selection:
        """The selection.

        Raises:
            Problem: 422.
        """
        _check(self.ids, self.reasons)
        since, until = (_utc(moment) for moment in (self.since, self.until))
        try:
            return Selection(frozenset(self.ids), frozenset(self.reasons), since, until, everything=self.everything)
        except InvalidSelection as error:
            raise _invalid(str(error)) from error


_decode_retries = msgspec.json.Decoder(RetriesBody).decode
_decode_dead_letters = msgspec.json.Decoder(DeadLettersBody).decode


async def read_retries_body(request: web.Request, limits: BodyLimits) -> RetriesBody:
    """The body of a request that changes retries.

    Raises:
        Problem: if it is none.
    """
    return _decoded(_decode_retries, await _read(request, limits))


async def read_dead_letters_body(request: web.Request, limits: BodyLimits) -> DeadLettersBody:
    """The body of a request that changes dead letters.

    Raises:
        Problem: if it is none.
    """
    return _decoded(_decode_dead_letters, await _read(request, limits))


async def _read(request: web.Request, limits: BodyLimits) -> bytes:
    if request.content_type != JSON:
        raise Problem(415, "content_type", f"the body must be {JSON}")
    return await read_body(request, limits)


def _decoded(decode: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "invalid_json", "the body is not JSON in UTF-8") from error


def _check(*lists: list[str]) -> None:
    if any(len(each) > _MOST_IDS for each in lists):
        raise _invalid(f"ids and reasons: at most {_MOST_IDS:,} of each")
    if any(len(text) > _LONGEST or "\0" in text for each in lists for text in each):
        raise _invalid(f"ids and reasons: at most {_LONGEST} characters each, and no NUL")


def _utc(moment: datetime | None) -> datetime | None:
    try:
        if moment is None or moment.tzinfo is not None:
            return moment and moment.astimezone(UTC)
        return moment.replace(tzinfo=UTC)
    except OverflowError as error:
        raise _invalid("a time is out of range") from error


def _invalid(detail: str) -> Problem:
    return Problem(422, "invalid_body", detail)
